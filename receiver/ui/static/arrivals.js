// Which spans of repeated answers are new, and which of them wait while the reader has paused.

export class Arrivals {
  // `overlapMs`: how much later than a newer span a span may become readable and still be shown.
  constructor({ rowsMax, overlapMs, shown = [] }) {
    this.rowsMax = rowsMax;
    this.overlapMs = overlapMs;
    this.isPaused = false;
    this.waiting = []; // newest first
    this.seen = new Set(shown.map((row) => row.key));
    this.afterMs = 0;
    this.advance(shown);
  }

  advance(rows) {
    if (rows.length) this.afterMs = Math.max(this.afterMs, rows[0].received_ms - this.overlapMs);
  }

  // Take an answer, newest first. Returns the rows to show now, newest first.
  take(rows) {
    const fresh = rows.filter((row) => !this.seen.has(row.key));
    // The next answer begins no earlier, so a row that is not in this one never appears again.
    this.seen = new Set(rows.map((row) => row.key));
    this.advance(rows);
    this.waiting = [...fresh, ...this.waiting].slice(0, this.rowsMax);
    return this.isPaused ? [] : this.release();
  }

  release() {
    const rows = this.waiting;
    this.waiting = [];
    return rows;
  }

  // Pause, or go on. Returns the rows to show now.
  toggle() {
    this.isPaused = !this.isPaused;
    return this.isPaused ? [] : this.release();
  }
}
