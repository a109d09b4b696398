// Keys of the flame graph: arrows go from frame to frame, so that Tab stops at one frame only.

const graph = document.getElementById("flame");

// The frame that is above or below another: on the next level, around its middle; or its neighbour.
export function nextFrame(frames, at, key) {
  const { left, right, level } = frames[at];
  const middle = (left + right) / 2;
  const beside = (frame) => frame.level === level;
  const found = {
    ArrowUp: () => frames.findLastIndex((frame) => frame.level === level - 1 && frame.left <= middle && frame.right >= middle),
    ArrowDown: () => frames.findIndex((frame) => frame.level === level + 1 && frame.right > left && frame.left < right),
    ArrowLeft: () => frames.findLastIndex((frame, index) => index < at && beside(frame)),
    ArrowRight: () => frames.findIndex((frame, index) => index > at && beside(frame)),
  }[key];
  return found ? found() : -1;
}

if (graph) {
  const links = [...graph.querySelectorAll("a")];
  const frames = links.map((link) => {
    const { left, right } = link.getBoundingClientRect();
    return { left, right, level: Number(link.dataset.level) };
  });
  const first = Math.max(0, links.findIndex((link) => link.hasAttribute("aria-current")));
  links.forEach((link, index) => link.setAttribute("tabindex", index === first ? "0" : "-1"));
  graph.addEventListener("keydown", (event) => {
    const at = links.indexOf(event.target.closest("a"));
    const next = at < 0 || event.ctrlKey || event.metaKey || event.altKey ? -1 : nextFrame(frames, at, event.key);
    if (next < 0) return;
    event.preventDefault();
    links[at].setAttribute("tabindex", "-1");
    links[next].setAttribute("tabindex", "0");
    links[next].focus();
  });
}
