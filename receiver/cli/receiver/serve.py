"""`trace-drain serve`: runs the receiver in the foreground."""

from __future__ import annotations

import asyncio
import os
import resource
import sys

import click
import structlog

from receiver import logs, transcode
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import settings_options, sources_of
from receiver.config.checks import require_engine
from receiver.errors import OperatorError
from receiver.processes import intake_module, store_module
from receiver.settings import Settings
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


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Every connection needs a descriptor, and the usual soft limit of 1024 is meant for `select`.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_machine(settings: Settings) -> None:
    """Raise `OperatorError` if a requirement is missing; the message says how to install it."""
    if not sys.platform.startswith("linux"):
        raise OperatorError(f"the platform is '{sys.platform}'; expected Linux")
    require_engine(settings)
