"""`trace-drain explain TRACE_ID`: one trace explained by a language model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from receiver.cli.shell.api_client import Row, query_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, loaded_with, serve_command
from receiver.console.queries.traces.traces import normalized_trace_id
from receiver.errors import CommandFailed
from receiver.platform.explain.request import Preview
from receiver.sizes import counted
from receiver.supervisor.state import running_receiver

NOT_IN_THE_TRACE = "(not supported: the trace has no span {})"


@click.command(
    epilog=examples(
        "trace-drain explain 5b8efff798038103d269b633813fc60c",
        "trace-drain explain 5b8efff798038103d269b633813fc60c --dry-run | jq .   # what would be sent",
        "trace-drain explain 5b8efff798038103d269b633813fc60c --show-sent",
    )
)
@click.argument("trace_id", metavar="ID")
@config_option
@data_option
@click.option("--dry-run", is_flag=True, help="Print the first request, byte for byte, and send nothing.")
@click.option("--show-sent", is_flag=True, help="Print on standard error what each request adds.")
def explain(trace_id: str, *, config: str | None, data: str | None, dry_run: bool, show_sent: bool) -> None:
    """Explain the trace ID, 32 hex digits, by the language model of the settings.

    Sends a summary of the trace, without what looks like a secret, to `platform.gateway_url`. Costs money.
    """
    settings = loaded_with(config, data).settings
    state = running_receiver(settings)
    if state is None:
        raise CommandFailed(f"no receiver runs; `{serve_command(settings)}` starts one")
    path = f"/api/v1/traces/{normalized_trace_id(trace_id)}/explain"
    (preview,) = query_receiver(settings, state, path, {}, document=Preview)
    click.echo(preview_text(preview), err=True)
    if dry_run:
        click.echo(preview["body"])
        return
    for text in shown(query_receiver(settings, state, path, {}, method="POST"), show_sent=show_sent):
        click.echo(text, nl=False)


def preview_text(preview: Mapping[str, Any]) -> str:
    """Return what would be sent, and what that may cost."""
    image = f" and an image of {counted(preview['image_bytes'], 'byte')}" if preview["image_bytes"] else ""
    redacted = counted(preview["redacted"], "redacted text")
    if preview["redacted_by"]:
        redacted += f" ({', '.join(f'{rule} {count}' for rule, count in preview['redacted_by'].items())})"
    first = (
        f"{counted(preview['bytes'], 'byte')}, about {counted(preview['tokens'], 'token')}{image}, {redacted}"
    )
    most = f"at most {counted(preview['tokens_max'], 'token')} in all requests"
    costs = "cost not known: platform.explain.input_price and output_price are not set"
    if preview["cost"] is not None:
        costs = f"cost about {preview['cost']:.4f}, at most {preview['cost_max']:.4f}, without images"
    return printable(f"{preview['model']} at {preview['gateway']}: {first}; {most}; {costs}")


def shown(events: Iterable[Row], *, show_sent: bool = False) -> Iterator[str]:
    """Yield the text of an explanation. Raises `CommandFailed` if it is incomplete."""
    for event in events:
        if stated := event.get("stated"):
            yield sentence_text(stated)
        elif (sent := event.get("sent")) and show_sent:
            click.echo(json.dumps(sent["added"], indent=2), err=True)
        elif called := event.get("called"):
            click.echo(printable(f"the model called {called['name']} {called['arguments']}"), err=True)
        elif ended := event.get("ended"):
            yield "\n"
            click.echo(usage_text(ended["usage"]), err=True)
            if ended["problem"]:
                raise CommandFailed(printable(_failure_text(ended)))


def _failure_text(ended: Row) -> str:
    if ended["outcome"] == "none":
        return f"there is no answer: {ended['problem']}"
    return f"the answer was cut: {ended['problem']}; what was printed is not an explanation"


def sentence_text(stated: Mapping[str, Any]) -> str:
    """Return a sentence. A mark follows a sentence that names a span that the trace does not have."""
    text = "".join(f"[span:{part['text']}]" if part["is_span"] else part["text"] for part in stated["parts"])
    unknown = [part["text"] for part in stated["parts"] if part["is_span"] and not part["is_known"]]
    if not unknown:
        return printable(text)
    body = text.rstrip()
    return printable(f"{body} {NOT_IN_THE_TRACE.format(', '.join(unknown))}{text[len(body) :]}")


def usage_text(usage: Mapping[str, Any]) -> str:
    about = "about " if usage["is_estimated"] else ""
    cost = "" if usage["cost"] is None else f", cost {usage['cost']:.4f}"
    sent, received = counted(usage["input_tokens"], "token"), counted(usage["output_tokens"], "token")
    return f"{about}{sent} sent, {received} received{cost}"


def printable(text: str) -> str:
    """Return a text of any length with control and direction characters escaped, except line feeds."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )
