"""Receiver without the API: it stores spans, and a receiver with the API reads them after a restart."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import SPANS_PER_REQUEST, trace_body


class ReceiverAlone(ReceiverProcess):
    """A receiver whose API is off."""

    def _is_ready(self) -> bool:
        try:
            return self._get(self.state()["admin"], "/readyz").status == HTTPStatus.OK
        except (OSError, ValueError, KeyError):
            return False


def test_receiver_without_the_api_stores_spans(tmp_path: Path) -> None:
    with ReceiverAlone(tmp_path, config="[api]\nenabled = false\n") as receiver:
        assert receiver.post(trace_body(1)).status == HTTPStatus.OK
        receiver.wait_until_stored()
        state, store = receiver.state(), receiver.state()["pids"]["store"]
        command = Path(f"/proc/{store}/cmdline").read_bytes().decode().split("\0")
        refused = receiver.run_command("spans")

    assert state["api"] == ""
    assert "api" not in state["urls"]
    assert "receiver.processes.store" in command
    assert "the API of the receiver is off" in refused.stderr
    with ReceiverProcess(tmp_path) as receiver:
        assert len(receiver.spans_once_stored(SPANS_PER_REQUEST)) == SPANS_PER_REQUEST
