// Overview of a trace above its waterfall: every span on a canvas that is as wide as the page and a few pixels high.

const HEIGHT_PX = 64;
const PITCH_MIN_PX = 2; // of a row: its bars, and a gap of a pixel
const PITCH_MAX_PX = 8;
const SPAN = 1;
const FAILED = 2;

// The sections of equal kind in each row of pixels. A row stands for a group of spans, a column for a moment.
// Their number depends on the size of the canvas, not on the number of spans, so large traces are drawn fast.
export function sectionsOf(trace, shown, errors, width, rows) {
  const cells = new Uint8Array(width * rows);
  const spansPerRow = Math.max(1, shown.length / rows);
  const scale = width / Math.max(1, trace.duration);
  const mark = (place, index, kind) => {
    const left = Math.min(width - 1, Math.floor(trace.start[place] * scale));
    const right = Math.min(width, Math.max(left + 1, Math.round((trace.start[place] + trace.took[place]) * scale)));
    const row = Math.floor(index / spansPerRow) * width;
    cells.fill(kind, row + left, row + right);
  };
  shown.forEach((place, index) => mark(place, index, SPAN));
  shown.forEach((place, index) => errors.has(place) && mark(place, index, FAILED));
  const sections = [];
  for (let at = 0; at < cells.length; ) {
    let end = at + 1;
    while (end % width && cells[end] === cells[at]) end++;
    if (cells[at]) sections.push({ row: Math.floor(at / width), left: at % width, width: end - at, isFailed: cells[at] === FAILED });
    at = end;
  }
  return sections;
}

export function drawOverview(canvas, trace, shown, errors) {
  canvas.width = Math.max(1, canvas.clientWidth);
  canvas.height = HEIGHT_PX;
  const pen = canvas.getContext("2d");
  // A canvas does not know the names of the style sheet, so the browser has to compute each colour.
  const color = (name) => {
    canvas.style.color = `var(${name})`;
    return getComputedStyle(canvas).color;
  };
  const rows = Math.max(1, Math.min(HEIGHT_PX / PITCH_MIN_PX, shown.length));
  const pitch = Math.min(PITCH_MAX_PX, Math.floor(HEIGHT_PX / rows));
  const colors = { span: color("--mark"), failed: color("--error-mark") };
  for (const section of sectionsOf(trace, shown, errors, canvas.width, rows)) {
    pen.fillStyle = section.isFailed ? colors.failed : colors.span;
    pen.globalAlpha = section.isFailed ? 1 : 0.6;
    pen.fillRect(section.left, section.row * pitch, section.width, pitch - 1);
  }
}
