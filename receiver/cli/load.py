"""`trace-drain load`."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click
import uvloop

from receiver.cli.asking import TOKEN_FROM, NothingFound, answered_at, running_on
from receiver.cli.group import examples
from receiver.cli.options import config_option, loaded_with
from receiver.cli.readiness import require_store_process
from receiver.errors import CommandFailed, OperatorError
from receiver.load.client import Target
from receiver.load.plan import Url, parse_header, parse_url, secret_in, tls_context
from receiver.load.report import document, lines, progress_line
from receiver.load.requests import Recipe, RequestStream, signed_with
from receiver.load.run import Plan, Result, Run
from receiver.load.tally import Tally
from receiver.load.traffic import Shape
from receiver.load.verify import Ask, Findings, Verifier
from receiver.logs import harmless_text

Command = TypeVar("Command", bound=Callable[..., Any])
Given = Mapping[str, Any]
"""Options by name, as click has checked them."""

DURATION_S = 10.0
PREPARED = 2_000
"""Compressed requests made before the clock starts: compressing costs more than receiving."""
EXIT_WRONG = 1
EXIT_INTERRUPTED = 130


class Hopeless(CommandFailed):
    """No request can be answered as things are."""


class Positive(click.FloatRange):
    """More than nothing, and a number: `nan` and `inf` pass a range of click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's
        """Refuse what is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is endless or no number; expected one above 0", param, ctx)
        return number


_POSITIVE = Positive(min=0, min_open=True)
_OPTIONS = [
    click.option("--spans", type=click.IntRange(1, 50_000), default=520, help="Spans per request."),
    click.option("--attributes", type=click.IntRange(0, 1_000), default=11, help="Attributes per span."),
    click.option(
        "--events", type=click.FloatRange(0, 1), default=0.1, help="Share of spans that have an event."
    ),
    click.option("--projects", type=click.IntRange(1, 999_999), default=20, help="Number of projects."),
    click.option(
        "--cardinality",
        type=click.IntRange(1, 10**9),
        default=10**6,
        help="Distinct values of attributes such as user and order ids.",
    ),
    click.option("--seed", type=int, default=1, help="The same seed makes the same spans."),
    click.option("--encoding", type=click.Choice(["protobuf", "json"]), default="protobuf"),
    click.option("--compression", type=click.Choice(["none", "gzip"]), default="none"),
    click.option("--connections", type=click.IntRange(1, 10_000), default=8, help="Concurrent connections."),
    click.option("--duration", type=_POSITIVE, metavar="SECONDS", help="[10, unless --requests is given]"),
    click.option("--requests", type=click.IntRange(1, 2**32), help="Stop after this many requests."),
    click.option(
        "--rate",
        type=_POSITIVE,
        metavar="SPANS/S",
        help="Send at this rate (open loop); without it, as fast as answers arrive.",
    ),
    click.option("--timeout", type=_POSITIVE, default=10.0, metavar="SECONDS", help="Timeout of one try."),
    click.option(
        "--patience",
        type=_POSITIVE,
        default=60.0,
        metavar="SECONDS",
        help="Timeout of all tries of a request.",
    ),
    click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="Add a header; may be repeated."),
    click.option("--token-file", metavar="FILE", help="Bearer token."),
    click.option("--signature-secret-file", metavar="FILE", help="Sign bodies by HMAC with this secret."),
    click.option("--signature-header", default="x-vercel-signature"),
    click.option("--signature-algorithm", type=click.Choice(["sha1", "sha256"]), default="sha1"),
    click.option("--ca", metavar="FILE", help="Trust only these certificates (PEM)."),
    click.option("--insecure", is_flag=True, help="Accept any certificate."),
    click.option("--verify", is_flag=True, help="Verify afterwards what the store holds."),
    click.option(
        "--data", metavar="DIR", help="For --verify: data directory of a receiver that runs on this machine."
    ),
    config_option,
    click.option(
        "--api", metavar="URL", help="For --verify: URL of the API of a receiver on another machine."
    ),
    click.option("--api-token-file", metavar="FILE", help="For --verify with --api: bearer token."),
    click.option(
        "--settle",
        type=_POSITIVE,
        default=30.0,
        metavar="SECONDS",
        help="For --verify: how long to wait for spans that are not stored yet.",
    ),
    click.option("--format", "form", type=click.Choice(["table", "json"]), default="table"),
]


def _with_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(
    context_settings={"show_default": True},
    epilog=examples(
        "trace-drain load http://127.0.0.1:4318 --requests 1000 --verify --data data",
        "trace-drain load https://traces.example:4318/v1/traces --token-file token --rate 50000",
    ),
)
@click.argument("url")
@_with_options
@click.pass_context
def load(ctx: click.Context, /, url: str, **given: Any) -> None:  # noqa: ANN401 - as click has checked them
    """Send realistic traces to URL, measure the answers, and verify that acknowledged spans are stored.

    Exits with 1 if a request was not acknowledged (at once if no retry can help, as with a certificate that
    is not trusted), or if --verify finds a span missing, stored twice, or changed. Every request has its own
    trace ids. Latency counts from when a request was due.
    """
    target, recipe, plan = orders(parse_url(url), given)
    ask = _api(given) if given["verify"] else None
    feed = RequestStream(recipe, given["requests"]) if given["requests"] else RequestStream(recipe)
    if recipe.compression == "gzip":
        click.echo("compressing requests before the clock starts", err=True)
        feed.prepare(given["requests"] or PREPARED)
    run = Run(plan, target, feed, Tally(recipe.shape.spans))
    result = uvloop.run(_measured(run))
    findings = None
    if ask and not (result.was_interrupted or result.hopeless):
        click.echo("asking the store", err=True)
        findings = Verifier(ask, recipe, settle_s=given["settle"]).verify(result)
    for line in shown(result, findings, form=given["form"]):
        click.echo(line)
    if result.hopeless:
        raise Hopeless(f"stopped, because no retry can help: {result.hopeless}")
    ctx.exit(exit_code_of(result, findings))


async def _measured(run: Run) -> Result:
    return await run.run(
        lambda elapsed_s, tally: click.echo(harmless_text(progress_line(elapsed_s, tally)), err=True)
    )


def orders(url: Url, given: Given) -> tuple[Target, Recipe, Plan]:
    """Turn options into where, what and how fast."""
    shape = Shape(
        spans=given["spans"],
        attributes=given["attributes"],
        events_share=given["events"],
        projects=given["projects"],
        cardinality=given["cardinality"],
        seed=given["seed"],
    )
    recipe = Recipe(
        shape,
        secrets.token_bytes(4),
        url.authority,
        url.path,
        encoding=given["encoding"],
        compression=given["compression"],
        headers=tuple(_headers(given)),
        sign=_signing(given),
    )
    context = tls_context(ca_file=given["ca"], is_insecure=given["insecure"]) if url.is_tls else None
    target = Target(url.host, url.port, context, given["timeout"], given["patience"])
    duration_s = given["duration"] or (None if given["requests"] else DURATION_S)
    rate = given["rate"]
    return target, recipe, Plan(given["connections"], duration_s, rate and rate / shape.spans)


def _headers(given: Given) -> Iterator[tuple[str, str]]:
    for text in given["header"]:
        yield parse_header(text)
    if given["token_file"]:
        yield "Authorization", f"Bearer {secret_in(given['token_file'], '--token-file')}"


def _signing(given: Given) -> Callable[[bytes], tuple[str, str]] | None:
    if not given["signature_secret_file"]:
        return None
    secret = secret_in(given["signature_secret_file"], "--signature-secret-file")
    return signed_with(secret.encode(), given["signature_header"], given["signature_algorithm"])


def _api(given: Given) -> Ask:
    """Where the store is asked."""
    settings = loaded_with(given["config"], given["data"]).settings
    url, token, token_from = given["api"], "", TOKEN_FROM
    if url:
        token_from = "--api-token-file FILE"  # noqa: S105 - a place
        token = secret_in(given["api_token_file"], "--api-token-file") if given["api_token_file"] else ""
    else:
        state = running_on(settings)
        if state is None:
            raise OperatorError(
                f"no receiver runs on '{settings.data_dir}'; --verify expects --data DIR or "
                "--config FILE of one that does, or --api URL"
            )
        require_store_process(state)
        url, token = state.urls["api"], settings.api_token

    def ask(path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        try:
            yield from answered_at(url, token, path, query, token_from=token_from)
        except NothingFound:
            return

    return ask


def shown(result: Result, findings: Findings | None, *, form: str) -> Iterator[str]:
    """Return the lines to print."""
    if form == "json":
        yield json.dumps(document(result, findings), indent=2)
        return
    yield from (f"{name:<17} {text}" for name, text in lines(result, findings))


def exit_code_of(result: Result, findings: Findings | None) -> int:
    """Tell programs what became of it."""
    if findings is not None and not findings.are_good:
        return EXIT_WRONG
    if result.was_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_WRONG if result.tally.lost else 0
