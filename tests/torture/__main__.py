"""`python -m tests.torture --duration 30m --seed 7`: break a receiver for so long, then see what it kept.

Exit code 0: every promise held. 1: one was broken. 2: the run was void, it saw too little to prove anything.
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

from tests.torture.report import as_json, summary, table
from tests.torture.run import Plan, Run

EXIT_CODES = {"held": 0, "violated": 1, "void": 2}
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """`90`, `90s`, `30m` or `2h`."""
    unit = UNITS_S.get(text[-1:])
    return float(text[:-1]) * unit if unit else float(text)


def say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


@contextmanager
def directory(*, keep: bool, disk_mib: int) -> Iterator[Path]:
    """Where the receiver lives: on this machine's disk, or on a small one made for it."""
    path = Path(tempfile.mkdtemp(prefix="torture-"))
    if disk_mib:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mib}m", "tmpfs", str(path)], check=True)  # noqa: S607
    try:
        yield path
    finally:
        if keep:
            say(f"kept: {path}")
        else:
            if disk_mib:
                subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S607
            shutil.rmtree(path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.torture", description=__doc__)
    parser.add_argument("--duration", type=seconds, default=90.0, help="of load and faults: 90s, 30m, 2h")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--gap", type=float, default=0.7, help="mean seconds between faults")
    parser.add_argument("--kills", type=int, default=0, help="go on until so many processes were killed")
    parser.add_argument("--pause", type=float, default=0.1, help="of a sender between two deliveries")
    parser.add_argument(
        "--disk-mib", type=int, default=0, help="on a tmpfs of this size that is filled at times"
    )
    parser.add_argument("--json", type=Path, help="where to write the summary")
    parser.add_argument("--keep", action="store_true", help="leave the data directory for a look")
    asked = parser.parse_args()
    say(f"seed {asked.seed}, {asked.duration:.0f} s")
    with directory(keep=asked.keep, disk_mib=asked.disk_mib) as data:
        plan = Plan(
            asked.seed,
            asked.duration,
            data,
            asked.gap,
            asked.pause,
            owns_disk=bool(asked.disk_mib),
            kills_min=asked.kills,
        )
        numbers = summary(Run(plan, say).run())
    sys.stdout.write(table(numbers) + "\n")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(as_json(numbers) + "\n")
    return EXIT_CODES[numbers["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
