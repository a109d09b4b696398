"""Conversation with the model: requests, calls of tools, and the answer, as events for the reader.

Invariant: an answer is complete only if the gateway ended it in order. The last event reports a stream that
was cut, a model that does not stop calling tools, or an exhausted budget.
Never: sends more than the first request, the calls that the model made, and the results of the tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal

import msgspec

from receiver.console.tools.mcp.result import CHARACTERS_PER_TOKEN
from receiver.errors import ReceiverError
from receiver.platform.client.chat import Assembly, ChatRequest, Completion, Fragment, Message
from receiver.platform.client.chat import Usage as Counted
from receiver.platform.client.errors import NotSent, PlatformError, Rejected
from receiver.platform.explain.claims import Sentence, Sentences
from receiver.platform.explain.request import (
    ANSWER_CHARACTERS_MAX,
    Prepared,
    Usage,
    body_of,
    cost_of,
    tokens_of,
)
from receiver.platform.explain.toolbox import SUMMARY_TOKENS_MAX
from receiver.settings import Explain

ROUNDS_MAX: Final = 6
"""Maximum number of requests of one explanation."""
CALLS_MAX: Final = 8
"""Maximum number of calls of tools in one explanation."""
SECONDS_MAX: Final = 300.0
"""Maximum time of one explanation. A gateway could keep a stream open without ever sending a text."""
NO_MORE_CALLS: Final = "no more calls are possible; answer now with what is known"
Outcome = Literal["complete", "cut", "none"]
"""Result: an explanation, a part of an answer, or nothing."""
ChatStream = Callable[[ChatRequest], AsyncGenerator[Fragment, None]]
"""Sends a request to the gateway. Raises `PlatformError` unless the answer is whole."""


class NoAnswer(ReceiverError):  # noqa: N818 - a verdict
    """The model returned no complete answer. The text has the reason."""


class Sent(msgspec.Struct, frozen=True):
    """A request to the model. Together, these events list every byte sent."""

    round: int
    bytes: int
    tokens: int
    """Cautious estimate, without an image."""
    added: Sequence[Message]
    """Messages that the previous request did not have; in the first request, without the instructions."""


class Called(msgspec.Struct, frozen=True):
    """The model called a tool."""

    name: str
    arguments: str
    characters: int
    """Length of the result."""


class Stated(msgspec.Struct, frozen=True):
    """A sentence of the answer."""

    parts: Sequence[Any]
    is_refuted: bool


class Ended(msgspec.Struct, frozen=True):
    outcome: Outcome
    problem: str
    """Reason why the answer is incomplete or missing."""
    usage: Usage


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event: the only member that is set."""

    sent: Sent | None = None
    called: Called | None = None
    stated: Stated | None = None
    ended: Ended | None = None


class Conversation:
    def __init__(self, stream: ChatStream, prepared: Prepared, settings: Explain) -> None:
        self._stream = stream
        self._prepared = prepared
        self._settings = settings
        self._sentences = Sentences(prepared.span_ids)
        self._request = prepared.request
        self._sent_tokens = 0
        """Estimated."""
        self._calls_left = CALLS_MAX
        self._characters_left = ANSWER_CHARACTERS_MAX
        self._is_begun = False
        """Whether a part of an answer has arrived."""
        self._usage = Usage(0, 0, is_estimated=False, cost=None)
        self._ends_at_s = asyncio.get_running_loop().time() + SECONDS_MAX

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events of the explanation; the last is `Ended`."""
        problem = ""
        try:
            async with aclosing(self._rounds()) as events:
                async for event in events:
                    yield event
        # The gateway failed, or a limit was reached: the received part is no answer.
        except (PlatformError, NoAnswer) as error:
            problem = str(error)
        for sentence in self._sentences.finish():
            yield _stated(sentence)
        usage = self._usage
        cost = cost_of(self._settings, usage.input_tokens, usage.output_tokens)
        outcome: Outcome = "complete" if not problem else "cut" if self._is_begun else "none"
        yield Event(ended=Ended(outcome, problem, msgspec.structs.replace(usage, cost=cost)))

    async def _rounds(self) -> AsyncGenerator[Event, None]:
        first = 1  # without the instructions
        for number in range(1, ROUNDS_MAX + 1):
            yield Event(sent=self._count(number, self._request.messages[first:]))
            first = len(self._request.messages)
            answer = Assembly()
            async with aclosing(self._answered(answer)) as events:
                async for event in events:
                    yield event
            completion = answer.completion()
            if not completion.tool_calls:
                _require_whole(completion)
                return
            async for event in self._called(completion):
                yield event
        raise NoAnswer(f"the model asked for tools in each of {ROUNDS_MAX} rounds and did not answer")

    async def _answered(self, answer: Assembly) -> AsyncGenerator[Event, None]:
        """Send the request and yield the sentences of its answer."""
        counted, left_before, is_refused = Counted(), self._characters_left, False
        try:
            async with aclosing(self._stream(self._request)) as fragments:
                while (fragment := await self._next(fragments)) is not None:
                    self._is_begun = True
                    self._take(fragment)
                    answer.add(fragment)
                    counted = fragment.usage or counted
                    for sentence in self._sentences.add(fragment.text):
                        yield _stated(sentence)
        except (NotSent, Rejected):
            is_refused = True
            raise
        finally:
            # Also for an answer that was cut, because it costs money.
            if not is_refused:
                self._add_usage(counted, left_before - self._characters_left)

    async def _next(self, fragments: AsyncGenerator[Fragment, None]) -> Fragment | None:
        """Return the next fragment; `None` at the end. Raises `NoAnswer` at the limit of time."""
        try:
            async with asyncio.timeout_at(self._ends_at_s):
                return await anext(fragments, None)
        except TimeoutError:
            raise NoAnswer(f"the answer was not complete after {SECONDS_MAX:.0f} s") from None

    def _take(self, fragment: Fragment) -> None:
        """Count the characters of a fragment. Raises `NoAnswer` at the limit."""
        # With names and ids, because the next request repeats them.
        calls = sum(len(call.id) + len(call.name) + len(call.arguments) for call in fragment.tool_calls)
        self._characters_left -= len(fragment.text) + calls
        if self._characters_left < 0:
            raise NoAnswer(f"the answer is longer than {ANSWER_CHARACTERS_MAX} characters")

    async def _called(self, completion: Completion) -> AsyncGenerator[Event, None]:
        """Add the calls of a completion and their results to the next request."""
        self._add(
            Message(role="assistant", content=completion.text or None, tool_calls=completion.tool_calls)
        )
        for call in completion.tool_calls:
            result = await self._result(call.function.name, call.function.arguments)
            self._add(Message(role="tool", tool_call_id=call.id, content=result))
            yield Event(called=Called(call.function.name, call.function.arguments, len(result)))

    def _add(self, message: Message) -> None:
        self._request = msgspec.structs.replace(self._request, messages=(*self._request.messages, message))

    def _count(self, number: int, added: Sequence[Message]) -> Sent:
        """Return the event of the next request. Raises `NoAnswer` if the budget has no room for it."""
        tokens = tokens_of(self._request)
        if self._sent_tokens + tokens > self._settings.tokens_max:
            raise NoAnswer(f"the next request would exceed the budget of {self._settings.tokens_max} tokens")
        self._sent_tokens += tokens
        return Sent(number, len(body_of(self._request)), tokens, added)

    async def _result(self, name: str, arguments: str) -> str:
        """Return the result of a call, unless another request could then exceed the budget."""
        self._calls_left -= 1
        next_tokens = tokens_of(self._request) + SUMMARY_TOKENS_MAX
        if self._calls_left < 0 or self._sent_tokens + next_tokens > self._settings.tokens_max:
            return NO_MORE_CALLS
        return await self._prepared.toolbox.call(name, arguments)

    def _add_usage(self, counted: Counted, characters: int) -> None:
        """Add the tokens of a request, or an estimate if the gateway did not count them."""
        sent, received = counted.prompt_tokens, counted.completion_tokens
        before, is_estimated = self._usage, sent is None or received is None
        if sent is None:
            sent = tokens_of(self._request)
        if received is None:
            received = -(-characters // CHARACTERS_PER_TOKEN)
        self._usage = Usage(
            before.input_tokens + sent,
            before.output_tokens + received,
            is_estimated=before.is_estimated or is_estimated,
            cost=None,
        )


def _require_whole(completion: Completion) -> None:
    """Raise `NoAnswer` if the gateway ended the answer before the model did."""
    # The specification lists no reasons, so an unknown reason counts as an ordinary end.
    if completion.finish_reason == "length":
        raise NoAnswer("the model reached its maximum length")
    if completion.finish_reason in {"content_filter", "error"}:
        raise NoAnswer("the provider withheld the rest, or failed")
    if not completion.text.strip():
        raise NoAnswer("the model answered without text")


def _stated(sentence: Sentence) -> Event:
    return Event(stated=Stated([part._asdict() for part in sentence.parts], sentence.is_refuted))
