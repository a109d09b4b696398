"""Explanations for callers: one at a time for each caller, each with a line in the log."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from receiver.console.api.source import LimitableSource
from receiver.errors import CallerBusy, QueueFull
from receiver.platform.client.chat import ChatRequest, Fragment
from receiver.platform.client.gateway import Gateway
from receiver.platform.explain.conversation import Conversation, Event
from receiver.platform.explain.request import Preview, prepare, preview_of
from receiver.settings import Platform

EXPLANATIONS_MAX: Final = 4
"""Maximum number of explanations at a time, of all callers."""


async def gateway_stream(settings: Platform, request: ChatRequest) -> AsyncGenerator[Fragment, None]:
    """Send a request to the gateway of the settings, and yield the fragments of its answer."""
    gateway = Gateway(settings.gateway_url, settings.api_key, settings.timeout_s)
    async with gateway, aclosing(gateway.stream(request)) as fragments:
        async for fragment in fragments:
            yield fragment


class Explainer:
    def __init__(self, settings: Callable[[], Platform]) -> None:
        """`settings`: called for each explanation, because a reload may change them."""
        self._settings = settings
        self._running: set[str] = set()
        """Names of the callers."""

    async def preview(self, source: LimitableSource, trace_id: str) -> Preview:
        """Return the preview. Raises `NoSuchTrace`, or `NotConfigured` if explanations are off."""
        settings = self._settings()
        return preview_of(await prepare(source, settings, trace_id), settings)

    async def explain(
        self, source: LimitableSource, trace_id: str, caller: str
    ) -> AsyncGenerator[Event, None]:
        """Explain a trace. Raises as `preview`, or `CallerBusy` or `QueueFull`, before the first event."""
        settings = self._settings()
        with self._place(caller), _logged(settings.explain.model, caller) as course:
            prepared = await prepare(source, settings, trace_id)
            conversation = Conversation(partial(gateway_stream, settings), prepared, settings.explain)
            async with aclosing(conversation.events()) as events:
                async for event in events:
                    course.add(event)
                    yield event

    @contextmanager
    def _place(self, caller: str) -> Iterator[None]:
        if caller in self._running:
            raise CallerBusy("an explanation for this user runs already; expected one at a time")
        if len(self._running) >= EXPLANATIONS_MAX:
            raise QueueFull(f"{EXPLANATIONS_MAX} explanations run already; retry later")
        self._running.add(caller)
        try:
            yield
        finally:
            self._running.discard(caller)


@dataclass(slots=True)
class _Course:
    """Fields of the log line of an explanation."""

    bytes: int = 0
    """Size of all its requests."""
    problem: str = "cancelled"
    """Reason why it has no answer; empty if it has an answer."""

    def add(self, event: Event) -> None:
        if event.sent:
            self.bytes += event.sent.bytes
        if event.ended:
            self.problem = event.ended.problem


@contextmanager
def _logged(model: str, caller: str) -> Iterator[_Course]:
    """Log the caller, the number of sent bytes and the outcome of an explanation. Texts are not logged."""
    began_s, course = time.monotonic(), _Course()
    try:
        yield course
    except Exception as error:
        course.problem = type(error).__name__
        raise
    finally:
        structlog.get_logger().info(
            "explanation ended",
            name=caller,
            model=model,
            bytes=course.bytes,
            seconds=round(time.monotonic() - began_s, 3),
            error=course.problem,
        )
