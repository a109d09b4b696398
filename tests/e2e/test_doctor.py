"""Tests of `trace-drain doctor`: the first red line names each of many misconfigurations."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from receiver.cli import main
from tests.e2e.receiver_process import ReceiverProcess
from tests.support.certificates import make_certificate
from tests.support.misbehaving_proxy import Change, Message, Page, proxy

AUTHORITY = trustme.CA()
SECRET, TOKEN = "canary-secret-1", "canary-token-1"
SETTINGS = f"""
[limits]
body_bytes_max = "8MiB"
[[drain]]
name = "web"
path = "/web"
token = "{TOKEN}"
signature_header = "x-sig"
signature_secret = "{SECRET}"
verify_header = "v1"
[[drain]]
name = "other"
path = "/other"
token = "canary-token-2"
"""


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    with ReceiverProcess(tmp_path_factory.mktemp("doctor"), config=SETTINGS) as running:
        yield running


@dataclass(frozen=True)
class Case:
    """A misconfiguration, and the first red line that names it."""

    step: str
    text: str
    change: Change | None = None
    """What a proxy does to requests; without it, there is none."""
    answer: Callable[[list[tuple[str, str]]], list[tuple[str, str]]] = list
    url: str = "http://127.0.0.1:{port}/web"
    options: tuple[str, ...] = ()
    tls: Callable[[Path], ssl.SSLContext] | None = None
    settings: tuple[str, str] = ("", "")
    """Text of the settings of the command, and its replacement."""
    store: str = ""
    """`store.url` of a receiver of its own."""


def page(status: int, content_type: str = "text/html", **headers: str) -> Change:
    named = [("Content-Type", content_type), *headers.items()]
    return lambda _: Page(status, named)


def on_post(change: Change) -> Change:
    return lambda message: change(message) if message.method == "POST" else message


def dropped(name: str) -> Change:
    return lambda message: replace(message, headers=message.without(name))


def renamed(message: Message) -> Message:
    return replace(message, headers=[*message.without("x-sig"), ("x-other", message.value("x-sig"))])


def doubled(message: Message) -> Message:
    return replace(message, headers=[*message.headers, ("Authorization", "Bearer proxy")])


def encoded_again(message: Message) -> Message:
    is_json = message.body.startswith(b"{")
    return replace(message, body=json.dumps(json.loads(message.body)).encode()) if is_json else message


def truncated(message: Message) -> Message:
    return replace(message, body=message.body[:-1])


def as_form(message: Message) -> Message:
    form = ("Content-Type", "application/x-www-form-urlencoded")
    return replace(message, headers=[*message.without("content-type"), form]) if message.body else message


def limited(message: Message) -> Message | Page:
    return message if len(message.body) <= 1 << 20 else Page(413, [("Content-Type", "text/html")])


def silent(message: Message) -> Message:
    time.sleep(1.5)
    return message


def served(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def self_signed(directory: Path) -> ssl.SSLContext:
    now = datetime.now(UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(directory, now - timedelta(days=1), now + timedelta(days=90)))
    return context


def expired(_: Path) -> ssl.SSLContext:
    past = datetime.now(UTC) - timedelta(days=2)
    return served(AUTHORITY.issue_cert("localhost", not_before=past - timedelta(days=9), not_after=past))


def lagging(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, "Mon, 01 Jan 2024 00:00:00 GMT" if name == "Date" else value) for name, value in headers]


def without_verification(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() != "x-vercel-verify"]


TLS_URL = "https://localhost:{port}/web"
CA = ("--ca", "{ca}")
CASES = {
    "URL is not https": Case("url", "not https", url="http://traces.example/web"),
    "host name without an address": Case("dns", "has no address", url="https://traces.invalid/web"),
    "nothing listens": Case("tcp", "refuses connections", url="https://127.0.0.1:{free}/web"),
    "https to a plain port": Case("tls", "speaks plain HTTP", url="https://127.0.0.1:{port}/web"),
    "authority not trusted": Case(
        "tls",
        "chain that is not trusted",
        url=TLS_URL,
        tls=lambda _: served(AUTHORITY.issue_cert("localhost")),
    ),
    "self-signed certificate": Case("tls", "self-signed", url=TLS_URL, tls=self_signed),
    "certificate of another name": Case(
        "tls",
        "another name",
        url=TLS_URL,
        options=CA,
        tls=lambda _: served(AUTHORITY.issue_cert("a.example")),
    ),
    "expired certificate": Case("tls", "has expired", url=TLS_URL, options=CA, tls=expired),
    "redirect": Case(
        "endpoint", "redirects to https://a.example/", page(308, Location="https://a.example/?t=1")
    ),
    "page of another server": Case("endpoint", "another server answers", page(200)),
    "receiver behind the proxy is down": Case("endpoint", "does not reach the receiver", page(502)),
    "login of a proxy": Case("endpoint", "login or firewall", page(401)),
    "proxy does not answer": Case("endpoint", "is not answered", silent, options=("--timeout", "0.5")),
    "wrong path": Case("endpoint", "no drain has the path", url="http://127.0.0.1:{port}/wbe"),
    "path that a proxy rewrites": Case(
        "endpoint", "a proxy rewrites the path", lambda message: replace(message, path="/v2/web")
    ),
    "verify header removed": Case(
        "endpoint", "lacks the header", lambda message: message, without_verification
    ),
    "clock": Case("endpoint", "the clock", lambda message: message, lagging),
    "POST not allowed": Case("credentials", "405 to a POST", on_post(page(405))),
    "unknown token": Case("credentials", "token is not one", options=("--token-file", "{wrong}")),
    "token of another drain": Case(
        "credentials", "that of drain 'other'", options=("--token-file", "{other}")
    ),
    "old secret": Case("credentials", "such as an old one", options=("--secret-file", "{wrong}")),
    "wrong algorithm": Case("credentials", "expects HMAC-sha1", options=("--algorithm", "sha256")),
    "signature in another header": Case(
        "credentials", "signs in another header", options=("--signature-header", "x-signature")
    ),
    "token removed": Case("credentials", "'authorization' does not arrive", dropped("authorization")),
    "signature renamed": Case("credentials", "'x-sig' does not arrive", renamed),
    "second token": Case("credentials", "arrives twice", doubled),
    "not reloaded": Case("credentials", "does not match", settings=(SECRET, "canary-secret-2")),
    "body encoded again": Case("json", "does not arrive as it was sent", encoded_again),
    "body truncated": Case("json", "does not arrive as it was sent", truncated),
    "content type changed": Case("json", "content type", as_form),
    "limit of a proxy": Case("body size", "413 to a POST", limited),
    "project not resolved": Case(
        "project", "finds no project", settings=("[limits]", '[resolve]\npreset = "vercel"\n[limits]')
    ),
    "store down": Case("readable", "the store does not accept", store="http://127.0.0.1:{free}/otel"),
}


def doctor(*arguments: str) -> tuple[list[dict[str, Any]], int, str]:
    """Return the steps, the exit code and the whole output of the command."""
    result = CliRunner().invoke(main, ["doctor", *arguments, "--format", "json"], catch_exceptions=False)
    return [json.loads(line) for line in result.stdout.splitlines()], result.exit_code, result.output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def first_red(case: Case, running: ReceiverProcess, directory: Path) -> tuple[str, str, str]:
    """Run the command against one misconfiguration; return its first red line and the whole output."""
    config = directory / "settings.toml"
    config.write_text(SETTINGS.replace(*case.settings) if case.settings[0] else SETTINGS)
    config.chmod(0o600)
    files = {"wrong": "canary-wrong", "other": "canary-token-2"}
    for name, content in files.items():
        (directory / name).write_text(content)
    AUTHORITY.cert_pem.write_to_path(str(directory / "ca"))
    with ExitStack() as open_parts:
        if case.store:
            (directory / "data").mkdir()
            store = case.store.format(free=free_port())
            running = open_parts.enter_context(
                ReceiverProcess(directory / "data", "--store", store, config=SETTINGS)
            )
        port = running.address[1]
        if case.change is not None or case.tls is not None:
            context = case.tls(directory) if case.tls else None
            change = case.change or (lambda message: message)
            port = open_parts.enter_context(proxy(port, change, case.answer, context))
        paths = {name: str(directory / name) for name in (*files, "ca")}
        steps, code, output = doctor(
            case.url.format(port=port, free=free_port()),
            *("--config", str(config), "--data", str(running.data), "--drain", "web"),
            *(option.format(**paths) for option in case.options),
        )
    red = [step for step in steps if step["state"] == "failed"]
    later = [step["state"] for step in steps[steps.index(red[0]) + 1 :]] if red else []
    assert code == 1, output
    assert set(later) <= {"skipped"}, output
    assert red[0]["fix"], output
    return red[0]["step"], red[0]["text"], output


def test_the_first_red_line_names_each_misconfiguration(receiver: ReceiverProcess, tmp_path: Path) -> None:
    wrong = {}
    for number, (name, case) in enumerate(CASES.items()):
        (directory := tmp_path / str(number)).mkdir()
        try:
            step, text, output = first_red(case, receiver, directory)
        except (AssertionError, IndexError) as error:
            wrong[name] = str(error)
            continue
        if step != case.step or case.text not in text or "canary" in output:
            wrong[name] = f"{step}: {text}"

    assert wrong == {}


def test_a_drain_that_works_has_no_red_line_and_its_samples_are_not_counted(
    receiver: ReceiverProcess, tmp_path: Path
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(SETTINGS)
    ca = tmp_path / "ca"
    AUTHORITY.cert_pem.write_to_path(str(ca))

    with proxy(receiver.address[1], tls=served(AUTHORITY.issue_cert("localhost"))) as port:
        steps, code, output = doctor(
            f"https://localhost:{port}/web",
            *("--config", str(config), "--data", str(receiver.data), "--ca", str(ca)),
        )

    states = {step["step"]: step["state"] for step in steps}
    assert code == 0, output
    assert {name: state for name, state in states.items() if state != "ok"} == {"dns": "warning"}
    assert all(set(step) == {"step", "state", "ms", "text", "fix"} for step in steps)
    assert "no span of the last 7d matches" in receiver.run_command("services", "--since", "7d").stderr
    assert "lines agree" in (ledger := receiver.command("ledger", "--verify")) or "line agrees" in ledger


@pytest.mark.parametrize(
    "url", ["traces.example", "ftp://a/b", "https://user:x@a/b", "https://a:99999/", "http://[::1"]
)
def test_text_that_is_no_url_is_refused(url: str, tmp_path: Path) -> None:
    _, code, output = doctor(url, "--data", str(tmp_path))

    assert code == 2
    assert "expected https://HOST" in output
    assert "user:x" not in output
