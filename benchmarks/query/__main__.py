"""Command line of `make bench-query`: measures every question and writes QUERY.md."""

from __future__ import annotations

import os
from pathlib import Path

import click

from benchmarks.query.cases import TRACE
from benchmarks.query.ingest import measure_ingest
from benchmarks.query.measure import Size, in_new_process, measure
from benchmarks.query.page import page
from benchmarks.query.results import Ingest, IngestPlan, Results, SizeResult
from benchmarks.report import machine
from benchmarks.store.compare import engine_of
from benchmarks.store.segments import varied
from benchmarks.store.workspace import DISK_BYTES_PER_SPAN, log, temporary_directory
from receiver.console.queries.questions import QUESTIONS

HERE = Path(__file__).parent.parent


@click.command()
@click.option(
    "--spans", default="10000000,50000000", show_default=True, help="Table sizes, separated by commas."
)
@click.option(
    "--projects", default="1,20,1000", show_default=True, help="Numbers of projects, separated by commas."
)
@click.option(
    "--questions",
    default="",
    help="Only these, separated by commas: trace or names of questions.  [default: all]",
)
@click.option(
    "--runs", default=7, show_default=True, type=click.IntRange(1), help="Warm runs of each question."
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["questions", "ingest"]),
    help="ingest: the latency of acknowledgements beside queries. [both]",
)
@click.option("--stored", default=2_000_000, show_default=True, help="Stored spans of the part ingest.")
@click.option("--rate", default=5_000.0, show_default=True, help="Spans per second of the part ingest.")
@click.option("--seconds", default=60.0, show_default=True, help="Duration of a round of the part ingest.")
@click.option("--rounds", default=3, show_default=True, help="Rounds without and with queries, each.")
@click.option("--dir", "parent", type=click.Path(path_type=Path), default=HERE / ".last", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=HERE, help="Directory of the results.")
def main(  # noqa: PLR0913 - options
    parts: tuple[str, ...],
    *,
    spans: str,
    projects: str,
    questions: str,
    runs: int,
    stored: int,
    rate: float,
    seconds: float,
    rounds: int,
    parent: Path,
    out: Path,
) -> None:
    """Measure the questions on the embedded engine. Needs 600 bytes of disk space per span."""
    names = [name for name in questions.split(",") if name]
    if unknown := set(names) - {TRACE, *QUESTIONS}:
        raise click.BadParameter(
            f"{', '.join(sorted(unknown))}: expected names of {', '.join([TRACE, *QUESTIONS])}",
            param_hint="--questions",
        )
    out.mkdir(exist_ok=True)
    results = Results.read(out / "query.json")
    sizes = (Size(int(count), int(number)) for count in spans.split(",") for number in projects.split(","))
    for size in sizes if not parts or "questions" in parts else ():
        with temporary_directory(parent, size.spans * DISK_BYTES_PER_SPAN, varied(*size)) as directory:
            measured = measure(size, directory, log, runs=runs, questions=names)
            engine = in_new_process(engine_of, directory)
        by_name = {case.name: case for case in measured}
        results.add(SizeResult(*size, machine(), engine, os.getloadavg()[0], by_name))
        _write(results, out)
    # Runs if the part is selected, or if neither parts nor questions are selected.
    if "ingest" in parts or not (parts or names):
        plan, load = IngestPlan(stored, rate, seconds, rounds), os.getloadavg()[0]
        with temporary_directory(parent, stored * DISK_BYTES_PER_SPAN, 0) as directory:
            results.ingest = Ingest(machine(), load, plan, measure_ingest(plan, directory, log))
        _write(results, out)
    log(f"results written to {out / 'QUERY.md'}")


def _write(results: Results, out: Path) -> None:
    results.write(out / "query.json")
    (out / "QUERY.md").write_text(page(results))


if __name__ == "__main__":
    main()
