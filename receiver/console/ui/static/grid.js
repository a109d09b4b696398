// Geometry of charts over time: the intervals that a dragged rectangle covers, and the durations if the chart has
// them. Pure functions, without the page.

const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

const rowsOf = (grid) => (grid.bounds ? grid.bounds.length - 1 : 1);

// The cells between two corners, in the units of the chart: inclusive columns, and rows from the shortest.
export function cellsBetween(grid, [x1, y1], [x2, y2]) {
  const columnAt = (x) => clamp(Math.floor(((x - grid.left) / (grid.width - grid.left)) * grid.columns), 0, grid.columns - 1);
  const rows = rowsOf(grid);
  const rowAt = (y) => clamp(Math.floor(((grid.height - y) / grid.height) * rows), 0, rows - 1);
  return {
    columns: [columnAt(Math.min(x1, x2)), columnAt(Math.max(x1, x2))],
    rows: [rowAt(Math.max(y1, y2)), rowAt(Math.min(y1, y2))],
  };
}

// The rectangle of cells, in the units of the chart.
export function rectangleOf(grid, { columns, rows }) {
  const width = (grid.width - grid.left) / grid.columns;
  const height = grid.height / rowsOf(grid);
  return {
    x: grid.left + columns[0] * width,
    y: grid.height - (rows[1] + 1) * height,
    width: (columns[1] - columns[0] + 1) * width,
    height: (rows[1] - rows[0] + 1) * height,
  };
}

// The page's parameters for cells: their time range within the page's, and their durations as selection.
export function parametersOf(grid, { columns, rows }) {
  const at = (column) => (grid.begin + column * grid.step) * 1000;
  const since = Math.max(at(columns[0]), Date.parse(grid.since));
  const until = Math.min(at(columns[1] + 1), Date.parse(grid.until));
  const times = { since: new Date(since).toISOString(), until: new Date(until).toISOString() };
  if (!grid.bounds) return times;
  const low = grid.bounds[rows[0]];
  // The slowest row has no end: the chart has no longer durations.
  const high = rows[1] === grid.bounds.length - 2 ? "" : ` duration<${grid.bounds[rows[1] + 1]}`;
  return { ...times, selection: `duration>=${low}${high}` };
}
