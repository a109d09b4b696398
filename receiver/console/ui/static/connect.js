// Check list of a drain: polls every 2 seconds until every step is done; buttons that copy.

import { element } from "./elements.js";

const POLL_MS = 2000;
const WORDS = { done: "✓", failed: "✕", waiting: "…" };
const list = document.querySelector(".checks");
const verdict = document.getElementById("verdict");

function setText(element, text) {
  // Only a changed text is written, because a screen reader reads a changed region again.
  if (element.textContent !== text) element.textContent = text;
}

function show(answer) {
  answer.checks.forEach((check, place) => {
    const item = list.children[place];
    item.className = check.state;
    setText(item.querySelector(".state-word"), WORDS[check.state]);
    setText(item.querySelector(".text"), check.text);
  });
  verdict.className = `verdict ${answer.verdict.state}`;
  setText(verdict, answer.verdict.text || `${answer.verdict.name}: not yet.`);
  return answer.verdict.state === "done";
}

async function poll() {
  let isDone = false;
  try {
    if (!document.hidden) {
      const answer = await fetch(list.dataset.url, { headers: { Accept: "application/json" } });
      if (answer.ok) isDone = show(await answer.json());
    }
  } catch {
    // The receiver is being restarted: the list stays until the next poll.
  }
  if (!isDone) setTimeout(poll, POLL_MS);
}

for (const text of document.querySelectorAll(".copy")) {
  if (!navigator.clipboard) break; // only pages over HTTPS or on this machine may copy
  const button = element("button", { type: "button", className: "quiet copy-button" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  });
  text.after(button);
}

if (!("done" in verdict.dataset)) setTimeout(poll, POLL_MS);
