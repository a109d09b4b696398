// Buttons that copy ids: after each element with `data-copy`. Nothing is shown if the browser cannot copy.

import { element } from "./elements.js";

const SHOWN_MS = 1500;

const canCopy = Boolean(navigator.clipboard) || document.queryCommandSupported?.("copy");
const status = element("p", { className: "hidden", role: "status" });

async function copy(text) {
  // Only pages over HTTPS or of this machine have a clipboard.
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = element("textarea", { value: text, className: "hidden" });
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  if (!isCopied) throw new Error("not copied");
}

export function copyButton(text) {
  const button = element("button", { type: "button", className: "quiet copy-id", textContent: "⧉", ariaLabel: `Copy ${text}` });
  button.addEventListener("click", async () => {
    const isCopied = await copy(text).then(() => true, () => false);
    button.textContent = isCopied ? "✓" : "✕";
    status.textContent = isCopied ? `Copied ${text}` : "The browser did not copy";
    setTimeout(() => {
      button.textContent = "⧉";
      status.textContent = "";
    }, SHOWN_MS);
  });
  return button;
}

// Add the buttons of the ids in a part of the page.
export function addCopyButtons(part) {
  if (!canCopy) return;
  for (const id of part.querySelectorAll("[data-copy]:not([data-copy=''])")) id.after(copyButton(id.dataset.copy));
}

document.body.append(status);
addCopyButtons(document);
