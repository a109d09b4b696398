"""Command line of the torture run: `python -m tests.torture --duration 30m --seed 7`.

Exit code 0: every promise held. 1: a promise was broken. 2: the run saw too little to prove anything.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.torture.report import as_json, summary, table, violations
from tests.torture.run import Plan, Result, Run
from tests.torture.steady import Steady, lines

EXIT_CODES = {"held": 0, "violated": 1, "void": 2}
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Parse `90`, `90s`, `30m` or `2h`."""
    unit = UNITS_S.get(text[-1:])
    return float(text[:-1]) * unit if unit else float(text)


def print_line(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


@contextmanager
def data_directory(*, keep: bool, disk_mib: int) -> Iterator[Path]:
    """Yield the receiver's data directory: on this machine's disk, or on a small tmpfs made for the run."""
    path = Path(tempfile.mkdtemp(prefix="torture-"))
    if disk_mib:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mib}m", "tmpfs", str(path)], check=True)  # noqa: S607
    try:
        yield path
    finally:
        if keep:
            print_line(f"the data directory remains: {path}")
        else:
            if disk_mib:
                subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S607
            shutil.rmtree(path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.torture", description=__doc__)
    parser.add_argument("--duration", type=seconds, default=90.0, help="load and faults: 90s, 30m, 2h")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--gap", type=float, default=0.7, help="mean seconds between faults")
    parser.add_argument("--kills", type=int, default=0, help="continue until this many processes were killed")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two deliveries of a sender")
    parser.add_argument(
        "--disk-mib", type=int, default=0, help="run on a tmpfs of this size, which is filled at times"
    )
    parser.add_argument("--json", type=Path, help="file for the summary")
    parser.add_argument(
        "--steady", action="store_true", help="no faults; queries during the load, and no resource may grow"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data directory")
    options = parser.parse_args()
    print_line(f"seed {options.seed}, {options.duration:.0f} s")
    with data_directory(keep=options.keep, disk_mib=options.disk_mib) as data:
        plan = Plan(
            options.seed,
            options.duration,
            data,
            options.gap,
            options.pause,
            owns_disk=bool(options.disk_mib),
            is_steady=options.steady,
            kills_min=options.kills,
        )
        result = Run(plan, print_line).run()
    if result.steady is not None:
        return _report_steady(result, result.steady)
    numbers = summary(result)
    sys.stdout.write(table(numbers) + "\n")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(as_json(numbers) + "\n")
    return EXIT_CODES[numbers["verdict"]]


def _report_steady(result: Result, steady: Steady) -> int:
    """Print the resources. A run without faults would be void for `summary`."""
    broken = violations(result)
    spans = result.findings.counts["rows"]
    sys.stdout.write("\n".join([*lines(steady.monitor.series), ""]))
    retried = steady.queries.retried
    sys.stdout.write(f"{spans} spans, {steady.queries.answered} queries, {len(retried)} of them retried\n")
    sys.stdout.write("".join(f"retried: {text}\n" for text in retried))
    for text, count in result.outcomes.reasons.items():
        sys.stdout.write(f"{count} deliveries were answered 503: {text}\n")
    sys.stdout.write("\n".join([*(broken or ["no resource grew, and every promise held"]), ""]))
    return EXIT_CODES["violated" if broken else "held"]


if __name__ == "__main__":
    sys.exit(main())
