"""`trace-drain load`: a load test, which verifies that all acknowledged spans are stored."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click
import uvloop

from receiver.cli.shell.api_client import TOKEN_FROM, NothingFound, query_url
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, loaded_with
from receiver.cli.shell.readiness import require_store_process
from receiver.errors import CommandFailed, OperatorError
from receiver.printable import harmless_text
from receiver.supervisor.state import running_receiver
from trace_drain_testing.load.client import Target
from trace_drain_testing.load.plan import Url, parse_header, parse_url, read_secret, tls_context
from trace_drain_testing.load.report import document, lines, progress_line
from trace_drain_testing.load.requests import RUN_BYTES, Recipe, RequestStream, signed_with
from trace_drain_testing.load.run import LoadPlan, Result, Run
from trace_drain_testing.load.tally import Tally
from trace_drain_testing.load.traffic import Shape
from trace_drain_testing.load.verify import Findings, Query, Verifier

Command = TypeVar("Command", bound=Callable[..., Any])
Options = Mapping[str, Any]
"""Values of the options by name, already checked by click."""

DURATION_S = 10.0
PREPARED = 2_000
"""Number of requests that are compressed before the measurement, because that costs most of the CPU."""
EXIT_WRONG = 1
EXIT_INTERRUPTED = 130


class PermanentFailure(CommandFailed):
    """No request can succeed: the error is permanent."""


class Positive(click.FloatRange):
    """A finite number above 0: click's own ranges accept `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's
        """Reject `nan` and `inf`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number; expected a number above 0", param, ctx)
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
        help="Send at this rate (open loop). By default, send as fast as answers arrive.",
    ),
    click.option("--timeout", type=_POSITIVE, default=10.0, metavar="SECONDS", help="Timeout of an attempt."),
    click.option(
        "--patience",
        type=_POSITIVE,
        default=60.0,
        metavar="SECONDS",
        help="Timeout of a request with all its retries.",
    ),
    click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="Add a header; may be repeated."),
    click.option("--token-file", metavar="FILE", help="Bearer token."),
    click.option("--signature-secret-file", metavar="FILE", help="Sign bodies by HMAC with this secret."),
    click.option("--signature-header", default="x-platform-signature"),
    click.option("--signature-algorithm", type=click.Choice(["sha1", "sha256"]), default="sha1"),
    click.option("--ca", metavar="FILE", help="Trust only the CA certificates in this file (PEM)."),
    click.option("--insecure", is_flag=True, help="Accept any certificate."),
    click.option("--verify", is_flag=True, help="Afterwards verify the content of the store."),
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
        help="For --verify: maximum time to wait for spans that are not stored yet.",
    ),
    click.option("--format", "form", type=click.Choice(["table", "json"]), default="table"),
]


def _with_options(command: Command) -> Command:
    # Decorators apply from the last to the first, and the help lists them in the order of the list.
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
def load(ctx: click.Context, /, url: str, **options: Any) -> None:  # noqa: ANN401 - checked by click
    """Send realistic traces to URL, measure the answers, and verify that acknowledged spans are stored.

    Exits with 1 if a request was not acknowledged, or if --verify finds a span missing, stored twice, or
    changed. Stops at once if no retry can help, as with an untrusted certificate. Every request has its own
    trace ids. Latency is measured from the time at which a request was due.
    """
    target, recipe, plan = parse_options(parse_url(url), options)
    query = _api(options) if options["verify"] else None
    feed = RequestStream(recipe, options["requests"]) if options["requests"] else RequestStream(recipe)
    if recipe.compression == "gzip":
        click.echo("compressing requests before the clock starts", err=True)
        feed.prepare(options["requests"] or PREPARED)
    run = Run(plan, target, feed, Tally(recipe.shape.spans))
    result = uvloop.run(_run(run))
    findings = None
    if query and not (result.was_interrupted or result.permanent_error):
        click.echo("verifying what the store contains", err=True)
        findings = Verifier(query, recipe, settle_s=options["settle"]).verify(result)
    for line in output_lines(result, findings, form=options["form"]):
        click.echo(line)
    if result.permanent_error:
        raise PermanentFailure(f"stopped, because no retry can help: {result.permanent_error}")
    ctx.exit(exit_code_of(result, findings))


async def _run(run: Run) -> Result:
    return await run.run(
        lambda elapsed_s, tally: click.echo(harmless_text(progress_line(elapsed_s, tally)), err=True)
    )


def parse_options(url: Url, options: Options) -> tuple[Target, Recipe, LoadPlan]:
    """Convert the options to the target, the content of the requests, and the pace."""
    shape = Shape(
        spans=options["spans"],
        attributes=options["attributes"],
        events_share=options["events"],
        projects=options["projects"],
        cardinality=options["cardinality"],
        seed=options["seed"],
    )
    recipe = Recipe(
        shape,
        # Not from the seed: a second run must not repeat the trace ids of the first run.
        secrets.token_bytes(RUN_BYTES),
        url.authority,
        url.path,
        encoding=options["encoding"],
        compression=options["compression"],
        headers=tuple(_headers(options)),
        sign=_signing(options),
    )
    context = tls_context(ca_file=options["ca"], is_insecure=options["insecure"]) if url.is_tls else None
    target = Target(url.host, url.port, context, options["timeout"], options["patience"])
    duration_s = options["duration"] or (None if options["requests"] else DURATION_S)
    rate = options["rate"]
    return target, recipe, LoadPlan(options["connections"], duration_s, rate and rate / shape.spans)


def _headers(options: Options) -> Iterator[tuple[str, str]]:
    for text in options["header"]:
        yield parse_header(text)
    if options["token_file"]:
        yield "Authorization", f"Bearer {read_secret(options['token_file'], '--token-file')}"


def _signing(options: Options) -> Callable[[bytes], tuple[str, str]] | None:
    if not options["signature_secret_file"]:
        return None
    secret = read_secret(options["signature_secret_file"], "--signature-secret-file")
    return signed_with(secret.encode(), options["signature_header"], options["signature_algorithm"])


def _api(options: Options) -> Query:
    """Return the function that queries the API for --verify."""
    settings = loaded_with(options["config"], options["data"]).settings
    url, token, token_from = options["api"], "", TOKEN_FROM
    if url:
        token_from = "--api-token-file FILE"  # noqa: S105 - the name of an option
        token = (
            read_secret(options["api_token_file"], "--api-token-file") if options["api_token_file"] else ""
        )
    else:
        state = running_receiver(settings)
        if state is None:
            raise OperatorError(
                f"no receiver runs on '{settings.data_dir}'; --verify expects --data DIR or "
                "--config FILE of a running receiver, or --api URL"
            )
        require_store_process(state)
        url, token = state.api_url, settings.api_token

    def query(path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        try:
            yield from query_url(url, token, path, query, token_from=token_from)
        except NothingFound:
            return

    return query


def output_lines(result: Result, findings: Findings | None, *, form: str) -> Iterator[str]:
    if form == "json":
        yield json.dumps(document(result, findings), indent=2)
        return
    yield from (f"{name:<17} {text}" for name, text in lines(result, findings))


def exit_code_of(result: Result, findings: Findings | None) -> int:
    """Return 1 if a request was not acknowledged or a stored span is wrong, else 0."""
    # Checked first, because a lost span matters more than an interruption.
    if findings is not None and not findings.are_good:
        return EXIT_WRONG
    if result.was_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_WRONG if result.tally.lost else 0
