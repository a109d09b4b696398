// New spans of repeated responses, and the spans that wait while the page is paused.

const COMPLETE_ANSWERS_MIN = 10; // responses without a gap that end the notice of a gap, so that it does not flicker

export class Arrivals {
  // `overlapMs`: maximum delay of a span after a newer span until which it is still shown.
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

  // Whether recent spans were left out.
  get hasGap() {
    return this.completeAnswers < COMPLETE_ANSWERS_MIN;
  }

  // Add a response, newest first. Returns the rows to show now, newest first.
  take(rows, isCut = false) {
    const fresh = rows.filter((row) => !this.seen.has(row.key));
    // Responses overlap: the older rows of a cut response are known, unless more rows arrived than a response has.
    this.completeAnswers = isCut && fresh.length === rows.length ? 0 : this.completeAnswers + 1;
    // The next response begins no earlier, so a row that is not in this response never appears again.
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

  // Pause or resume. Returns the rows to show now.
  toggle() {
    this.isPaused = !this.isPaused;
    return this.isPaused ? [] : this.release();
  }
}
