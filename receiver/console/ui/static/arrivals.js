// Which spans of repeated answers are new, and which of them wait while the reader has paused.

const COMPLETE_ANSWERS_MIN = 10; // so many answers without a gap end the notice about one, which else would flicker

export class Arrivals {
  // `overlapMs`: how much later than a newer span a span may become readable and still be shown.
  constructor({ rowsMax, overlapMs, shown = [] }) {
    this.rowsMax = rowsMax;
    this.overlapMs = overlapMs;
    this.isPaused = false;
    this.waiting = []; // newest first
    this.completeAnswers = COMPLETE_ANSWERS_MIN;
    this.seen = new Set(shown.map((row) => row.key));
    this.afterMs = 0;
    this.advance(shown);
  }

  advance(rows) {
    if (rows.length) this.afterMs = Math.max(this.afterMs, rows[0].received_ms - this.overlapMs);
  }

  // Whether spans were left out lately.
  get hasGap() {
    return this.completeAnswers < COMPLETE_ANSWERS_MIN;
  }

  // Take an answer, newest first. Returns the rows to show now, newest first.
  take(rows, isCut = false) {
    const fresh = rows.filter((row) => !this.seen.has(row.key));
    // Answers overlap: the older rows of a cut answer are known, unless more arrived than an answer has.
    this.completeAnswers = isCut && fresh.length === rows.length ? 0 : this.completeAnswers + 1;
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
