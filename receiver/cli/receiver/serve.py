"""`trace-drain serve`: runs the receiver in the foreground."""

from __future__ import annotations

import asyncio
import os

import click
import structlog

from receiver import logs, transcode
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import settings_options, sources_of
from receiver.processes import intake_module, store_module
from receiver.supervisor.machine import check_machine, raise_file_limit
from receiver.supervisor.run import Plan, supervise


@click.command(
    epilog=examples(
        "trace-drain serve --data data",
        "trace-drain serve --config /etc/trace-drain/trace-drain.toml",
        "trace-drain serve --listen 0.0.0.0:4318 --tls-self-signed --config trace-drain.toml",
        "trace-drain serve --store https://ingest@clickhouse.example:8443/otel",
    )
)
@settings_options
@click.pass_context
def serve(ctx: click.Context, /, config: str | None, **flags: object) -> None:
    """Run the receiver until Ctrl-C or SIGTERM. SIGHUP reloads drains, secrets and certificates.

    A stop completes pending deliveries first; a second Ctrl-C ends the receiver at once. Every flag is also a
    setting of the configuration file and an environment variable: see `trace-drain config show`.
    """
    sources = sources_of(config, **flags)
    loaded = sources.load()
    check_machine(loaded.settings)
    raise_file_limit()
    logs.set_up(loaded.settings.log_format, process="supervisor")
    log = structlog.get_logger()
    for warning in loaded.warnings:
        log.warning(warning)
    if transcode.BUILD_PROFILE != "release":
        log.warning("the core is a debug build, which is ten times slower; run `make setup`")
    modules = intake_module(loaded.settings), store_module(loaded.settings)
    plan = Plan(sources, loaded, dict(os.environ), *modules)
    ctx.exit(asyncio.run(supervise(plan)))
