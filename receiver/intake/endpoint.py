"""Endpoint: state that all connections of the drain endpoint share."""

from __future__ import annotations

from typing import Any, cast

from aiohttp.web_server import Server

from receiver.http import parser
from receiver.intake.batch_handler import BatchCommitter, BatchHandler
from receiver.intake.handler import DeliveryHandler
from receiver.metrics import Metrics
from receiver.settings import Limits
from receiver.transcode import FastPath


class Endpoint(Server):
    """The handler of all requests, the limits in force, and aiohttp's list of open connections."""

    def __init__(
        self, delivery_handler: DeliveryHandler, committer: BatchCommitter, limits: Limits, metrics: Metrics
    ) -> None:
        """Raise `OperatorError` if aiohttp has no C parser."""
        parser.require_c_parser()
        # aiohttp passes the reply to `finish_response` only, which is ours.
        super().__init__(cast("Any", delivery_handler.answer))
        self.delivery_handler = delivery_handler
        self.limits = limits
        self.is_stopping = False
        """Whether each connection is closed with its next answer."""
        self.batch_handler = BatchHandler(delivery_handler, committer, lambda: self.is_stopping)
        self.fast_path = FastPath()
        self._metrics = metrics

    def catch_up(self) -> None:
        """Let the protocols note what the core took and answered."""
        for protocol in self.fast_path.take_changed():
            protocol.catch_up()

    def count_http_refusal(self, status: int) -> None:
        """Count a request that was refused before it reached the delivery handler."""
        self._metrics.add("refusals", reason=f"http_{status}")
        self._metrics.add("deliveries", drain="", status=str(status))
