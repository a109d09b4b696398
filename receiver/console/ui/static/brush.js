// Selection by dragging: a time range in a chart over time, and a rectangle in a heatmap with durations.
// A click on a link of the chart follows the link.

import { cellsBetween, parametersOf, rectangleOf } from "./grid.js";

const DRAG_MIN = 5; // pixels; a shorter movement of the pointer is a click
const SVG = "http://www.w3.org/2000/svg";

function gridOf(chart) {
  const { since, until, bounds, ...numbers } = chart.dataset;
  const grid = { since, until, bounds: bounds ? bounds.split(" ") : null };
  for (const [name, text] of Object.entries(numbers)) grid[name] = Number(text);
  return grid;
}

function placeIn(chart, event) {
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
  return [point.x, point.y];
}

function open(parameters) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  location.assign(url);
}

function watch(chart) {
  const grid = gridOf(chart);
  const rectangle = document.createElementNS(SVG, "rect");
  rectangle.setAttribute("class", "brush");
  let start = null;
  let cells = null;

  const stop = () => {
    start = cells = null;
    rectangle.remove();
  };
  chart.addEventListener("pointerdown", (event) => {
    const [x, y] = placeIn(chart, event);
    if (event.button !== 0 || x < grid.left || y > grid.height) return;
    start = { x: event.clientX, y: event.clientY, place: [x, y] };
  });
  addEventListener("pointermove", (event) => {
    if (!start) return;
    if (!cells && Math.hypot(event.clientX - start.x, event.clientY - start.y) < DRAG_MIN) return;
    cells = cellsBetween(grid, start.place, placeIn(chart, event));
    for (const [name, value] of Object.entries(rectangleOf(grid, cells))) rectangle.setAttribute(name, value);
    chart.append(rectangle);
  });
  addEventListener("pointerup", () => {
    if (cells) open(parametersOf(grid, cells));
    start = null;
  });
  addEventListener("pointercancel", stop);
  addEventListener("keydown", (event) => event.key === "Escape" && stop());
  // The end of a drag on a cell is not a click on it, and cells cannot be dragged as links.
  chart.addEventListener("click", (event) => cells && event.preventDefault(), { capture: true });
  chart.addEventListener("dragstart", (event) => event.preventDefault());
}

document.querySelectorAll("svg[data-step]").forEach(watch);
