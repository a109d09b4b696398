"""Sessions of a real receiver: a restart keeps them, and a new token ends them."""

from __future__ import annotations

import http.client
import signal
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.e2e.receiver_process import ReceiverProcess

TOKENS = ("first token of ann", "second token of ann")
WAIT_S = 30.0


def config(token: str) -> str:
    return f"[[api.user]]\nname = 'ann'\ntoken = '{token}'\nrole = 'operator'\n"


def request(
    running: ReceiverProcess, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, str]:
    """Return the status of an answer and the cookie that it sets."""
    address = urlsplit(running.state()["urls"]["api"]).netloc
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, (answer.headers["Set-Cookie"] or "").partition(";")[0]


def log_in(running: ReceiverProcess, token: str) -> tuple[int, str]:
    form = "application/x-www-form-urlencoded"
    return request(running, "POST", "/login", urlencode({"token": token}), Content_Type=form)


@pytest.mark.timeout(180)
def test_restart_keeps_a_session_and_a_new_token_ends_it(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, config=config(TOKENS[0])) as running:
        status, cookie = log_in(running, TOKENS[0])
        assert status == 303
        assert request(running, "GET", "/api/v1/health", Cookie=cookie)[0] == 200
        assert request(running, "GET", "/api/v1/health")[0] == 401

        running.stop()
        running.start()
        assert request(running, "GET", "/api/v1/health", Cookie=cookie)[0] == 200

        (tmp_path / "trace-drain.toml").write_text(config(TOKENS[1]))
        assert running.process
        running.process.send_signal(signal.SIGHUP)
        running.wait_until(
            lambda: request(running, "GET", "/api/v1/health", Cookie=cookie)[0] == 401,
            "the session did not end",
        )
        assert [log_in(running, token)[0] for token in TOKENS] == [403, 303]

    assert not any(text in running.log() for text in (*TOKENS, cookie))
    assert '"user logged in"' in running.log()
