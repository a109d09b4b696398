"""Versions of this package, its compiled core and its dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from receiver import __version__, transcode


def versions() -> dict[str, str]:
    return {
        "version": __version__,
        "core": transcode.VERSION,
        "core_profile": transcode.BUILD_PROFILE,
        "python": platform.python_version(),
        "aiohttp": _installed("aiohttp"),
        "clickhouse_connect": _installed("clickhouse-connect"),
        "engine": _engine(),
    }


def _engine() -> str:
    """Return the version of the embedded engine; its major and minor version are those of ClickHouse."""
    engine = _installed("chdb-core")
    return f"chdb {_installed('chdb')} (engine {engine})" if engine != "not installed" else engine


def _installed(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return "not installed"
