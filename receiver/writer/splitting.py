"""Splitting: stores a segment in pieces if the store cannot store it with one INSERT.

    DATA/splits/<segment>.<epoch>.json     the plan: the pieces still to be stored, and the rows that are dead

A piece is a set of rows of the segment with its own identity, so it is inserted and counted like a segment.
Pieces can be split again. A unit is split because whole days are missing, or because it has too many days, is
too large, or contains refused rows. If the store refuses a piece of a single row, the row is dead. All pieces
of a segment share an epoch.

The segment itself stays in the journal, and its deliveries stay pending in the deduplication window, until no
piece is left. Then it is opened once more, without rows to insert, and recorded in the ledger.

Invariant: the plan is on disk before a piece is inserted, and a piece stays in the plan until its rows were
counted or are dead. After deduplication, nothing but the plan decides about the rows of a segment.
Never: touches files with unknown names; it logs them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path

import msgspec

from receiver.durable.files import DISK, delete_drafts, make_directories, unlink_if_exists, write_durably
from receiver.journal.epoch_directory import draw_epoch
from receiver.journal.names import start_name
from receiver.journal.segment_core import Core, RowRange
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.writer.outcome import partition_id
from receiver.writer.reading import SegmentFile
from receiver.writer.segment_state import DAYS_MAX, DeadLettered, SplitCause, Splitting
from receiver.writer.shards import Shards
from receiver.writer.units import (
    DeadRows,
    OpenUnit,
    Piece,
    Plan,
    PlannedPiece,
    Rows,
    Unit,
    intersect,
    merge_adjacent,
    read_planned,
    row_count,
    segment_of,
    split_in_half,
)

PIECES = 4
"""Pieces per split. With four, 9 levels of splits isolate one refused row among 200,000."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{10,20})\.([0-9a-f]{16})\.json")


class Splitter:
    """Plans of the segments that were split."""

    def __init__(self, root: Path, core: Core, shards: Shards, epoch: Callable[[], int] = draw_epoch) -> None:
        self._root = root
        self._core = core
        self._shards = shards
        self._epoch = epoch
        self._paths: dict[SegmentId, Path] = {}
        self._plans: dict[SegmentId, Plan] = {}
        # An earlier process may have been killed between the rename of a plan and its sync.
        self._is_synced = not root.exists()
        self.unusable: set[SegmentId] = set()
        """Split segments that wait because their plan cannot be read or synced, as of the last listing."""
        delete_drafts(root)
        # Not `glob`, which returns nothing for a directory that it may not read. Without its plan, a
        # segment would be inserted as a whole after its pieces.
        for name in DISK.names(root) if root.exists() else ():
            self._register(root / name)

    def _register(self, path: Path) -> None:
        named = _NAME.fullmatch(path.name)
        if named is None or not path.is_file():
            limited.warning(
                "writer: split",
                "unknown name in the directory of split segments",
                action="left untouched",
                path=str(path),
            )
        else:
            self._paths[SegmentId(int(named[1], 16), int(named[2]))] = path

    def epoch_of(self, segment: SegmentId) -> int | None:
        """Return the epoch that all pieces of a segment share; `None` if it was not split."""
        path = self._paths.get(segment)
        return None if path is None else int(path.name.split(".")[1], 16)

    def plan_of(self, segment: SegmentId) -> Plan | None:
        """Return the plan of a segment. Raises `OSError`, `DecodeError`."""
        if segment in self._paths and segment not in self._plans:
            self._plans[segment] = msgspec.json.decode(DISK.read(self._paths[segment]), type=Plan)
        return self._plans.get(segment)

    def units(self, sealed: Iterable[SegmentFile]) -> Iterator[Unit]:
        """Yield the segments, with each split segment replaced by its remaining pieces."""
        self.unusable.clear()
        is_synced = self._sync()
        for segment in sealed:
            plan = self._readable_plan(segment.id)
            epoch = self.epoch_of(segment.id)
            if epoch is None:
                yield segment
            elif plan is not None and is_synced:
                pieces: list[Unit] = [
                    Piece(SegmentId(epoch, piece.seq), segment, piece.rows, plan, self._core)
                    for piece in plan.pieces
                ]
                # Without pieces, the segment itself is listed once more, to be recorded and deleted.
                yield from pieces or [segment]
            else:
                # Not inserted as a whole: pieces of it may be stored already.
                self.unusable.add(segment.id)

    def _readable_plan(self, segment: SegmentId) -> Plan | None:
        """Return the plan of a segment; `None` if it has no plan, or its plan cannot be read now."""
        try:
            return self.plan_of(segment)
        except FileNotFoundError:
            del self._paths[segment]
            return None
        except (OSError, msgspec.DecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is damaged"
            limited.error(
                "writer: split", "plan of a split segment cannot be read", segment=str(segment), error=cause
            )
            return None

    def _sync(self) -> bool:
        """Sync the plans if they may not be durable yet. No piece is inserted before that."""
        if not self._is_synced and self._root.exists():
            try:
                DISK.sync_directory(self._root.parent)
                DISK.sync_directory(self._root)
            except OSError as error:
                limited.error(
                    "writer: split", "plans of split segments cannot be synced yet", error=error.strerror
                )
                return False
            self._is_synced = True
        return True

    def split(self, opened: OpenUnit, state: Splitting) -> bool:
        """Split the rows of a unit that are not stored. Return False if it cannot be split further.

        Raises `ValueError` if the core cannot read the segment, or rows of it are missing.
        """
        plan, rows = self._plan_or_new(opened), _rows_of(opened)
        days = self._rows_by_day(opened, plan, state.days)
        cause = state.suspicion.cause
        groups = (
            _groups_of_days(days, is_missing=cause is SplitCause.MISSING)
            if cause in {SplitCause.MISSING, SplitCause.DAYS}
            else _quarters(merge_adjacent(row_range for day in days.values() for row_range in day))
        )
        # Splitting again would give the same single piece forever.
        if groups == [rows]:
            return False
        # Numbers are not reused: the store may hold rows of a replaced piece under its number.
        pieces = (PlannedPiece(seq, group) for seq, group in enumerate(groups, start=plan.next_seq))
        # Only the search for refused rows has a limit.
        is_search = cause is SplitCause.REFUSED
        self._replace_by(
            opened.unit,
            msgspec.structs.replace(
                plan,
                pieces=(*plan.pieces, *pieces),
                next_seq=plan.next_seq + len(groups),
                refused_code=state.suspicion.code if is_search else plan.refused_code,
                splits=plan.splits + is_search,
            ),
        )
        limited.warning("writer: split", f"segment {opened.unit.id} is stored in pieces", error=cause.value)
        return True

    def keep_dead(self, opened: OpenUnit, state: DeadLettered) -> None:
        """Record that the rows of a unit that are not stored become a dead letter."""
        ranges = _rows_of(opened)
        count = max(0, opened.rows - opened.rows_stored)
        plan = self._plan_or_new(opened)
        if state.days:
            # If the file cannot be read, all rows of the unit go into the dead letter, including stored rows.
            with suppress(ValueError):
                days = self._rows_by_day(opened, plan, state.days)
                ranges = merge_adjacent(row_range for day in days.values() for row_range in day)
                count = row_count(ranges)
        dead = DeadRows(state.cause, state.text, count, ranges)
        self._replace_by(opened.unit, msgspec.structs.replace(plan, dead=(*plan.dead, dead)))

    def remove_stored(self, piece: Piece) -> None:
        """Remove a piece from the plan after its rows were counted."""
        plan = self.plan_of(piece.segment.id)
        if plan is not None:
            self._replace_by(piece, plan)

    def delete(self, segment: SegmentId) -> None:
        """Delete the plan of a segment that was deleted."""
        self._plans.pop(segment, None)
        path = self._paths.get(segment)
        if path is not None:
            unlink_if_exists(path)
            del self._paths[segment]

    def delete_orphaned(self, present: Container[SegmentId]) -> None:
        """Delete the plans without pieces whose segment is not in `present`."""
        for segment in [segment for segment in self._paths if segment not in present]:
            plan = self._readable_plan(segment)
            if plan is not None and not plan.pieces:
                self.delete(segment)

    def _rows_by_day(self, opened: OpenUnit, plan: Plan, days: Collection[str]) -> dict[str, Rows]:
        """Return the rows of a unit on these days, newest day first. No days: all of them."""
        unit = opened.unit
        content = read_planned(unit.segment if isinstance(unit, Piece) else unit, plan, self._core)
        by_day: defaultdict[str, list[RowRange]] = defaultdict(list)
        for first, stop, day, shard in self._core.day_runs(content, self._shards.count):
            name = partition_id(day, shard)
            if not days or name in days:
                by_day[name].append((first, stop))
        return {day: intersect(by_day[day], _rows_of(opened)) for day in sorted(by_day, reverse=True)}

    def _plan_or_new(self, opened: OpenUnit) -> Plan:
        plan = self.plan_of(segment_of(opened.unit))
        return plan or Plan(opened.rows, opened.received_ms)

    def _replace_by(self, unit: Unit, plan: Plan) -> None:
        """Write a plan in which new pieces or dead rows replace this piece."""
        segment = segment_of(unit)
        if isinstance(unit, Piece):
            pieces = tuple(piece for piece in plan.pieces if piece.seq != unit.id.seq)
            plan = msgspec.structs.replace(plan, pieces=pieces)
        # All pieces share the epoch of the first plan, so that one query finds all their rows.
        path = self._paths.get(segment) or self._root / f"{segment}.{start_name(self._epoch())}.json"
        # After a failed write either plan may be on disk: it is synced and read again before its next use.
        self._is_synced = False
        make_directories(self._root)
        delete_drafts(self._root)
        DISK.sync_directory(self._root.parent)
        # Before the write, because the plan may be on disk even if the write fails.
        self._paths[segment] = path
        self._plans.pop(segment, None)
        write_durably(path, msgspec.json.encode(plan))
        self._plans[segment], self._is_synced = plan, True


def _rows_of(opened: OpenUnit) -> Rows:
    return opened.unit.rows if isinstance(opened.unit, Piece) else ((0, opened.rows),)


def _groups_of_days(days: Mapping[str, Rows], *, is_missing: bool) -> list[Rows]:
    """Group days so that each group fits in one INSERT. Makes smaller groups after a refusal."""
    names = [day for day, rows in days.items() if rows]
    size = DAYS_MAX if is_missing or len(names) > DAYS_MAX else ceil(len(names) / PIECES)
    groups = [names[at : at + size] for at in range(0, len(names), max(1, size))]
    return [merge_adjacent(row_range for day in group for row_range in days[day]) for group in groups]


def _quarters(rows: Rows) -> list[Rows]:
    parts = [rows]
    while len(parts) < PIECES and any(row_count(part) > 1 for part in parts):
        parts = [half for part in parts for half in (split_in_half(part) if row_count(part) > 1 else (part,))]
    return parts
