// A page that takes longer than 300 ms: a bar, the old content dimmed, and a button that cancels.

import { element } from "./elements.js";

const AFTER_MS = 300;

let timer = 0;
let bar = null;

function end() {
  clearTimeout(timer);
  bar?.remove();
  bar = null;
  document.querySelector("main")?.removeAttribute("aria-busy");
}

function cancel() {
  const isIncomplete = document.readyState === "loading";
  stop();
  end();
  if (isIncomplete) {
    const again = element("a", { href: location.href, textContent: "Load it again" });
    document.querySelector("main").append(element("p", { className: "empty" }, "The page was cancelled. ", again, "."));
  }
}

function begin() {
  end();
  timer = setTimeout(() => {
    const button = element("button", { type: "button", textContent: "Cancel" });
    button.addEventListener("click", cancel);
    bar = element("div", { id: "loading", role: "status" }, element("span", { textContent: "Loading…" }), button);
    document.body.append(bar);
    document.querySelector("main")?.setAttribute("aria-busy", "true");
  }, AFTER_MS);
}

// This document: its frame arrives before its content.
if (document.readyState === "loading") {
  begin();
  document.addEventListener("DOMContentLoaded", end);
}
// The next document. A browser without this interface shows its own indicator only.
globalThis.navigation?.addEventListener("navigate", (event) => {
  if (event.hashChange || event.downloadRequest !== null || !event.destination || event.destination.sameDocument) return;
  begin();
});
globalThis.navigation?.addEventListener("navigateerror", end);
addEventListener("pagehide", end);
