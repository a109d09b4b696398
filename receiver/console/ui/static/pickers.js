// Choice of a project and a deployment in the frame: a choice reloads the page for it, and the lists stay up to date.

import { element } from "./elements.js";

const REFRESH_MS = 15_000;

const form = document.getElementById("pickers");

const option = ({ value, text }) => element("option", { value }, text);

// The chosen value stays selected, even if the list no longer has it.
function fill(select, choices) {
  const texts = choices.map((choice) => choice.text).join("\n");
  // An open list must not change.
  if (select.dataset.texts === texts || document.activeElement === select) return;
  select.dataset.texts = texts;
  const chosen = select.selectedOptions[0];
  const options = choices.map(option);
  const isKept = !chosen.value || choices.some((choice) => choice.value === chosen.value);
  const value = chosen.value;
  select.replaceChildren(select.options[0], ...options, ...(isKept ? [] : [chosen]));
  select.value = value;
}

async function refresh() {
  if (document.hidden) return;
  const chosen = new URLSearchParams({ project: form.elements.project.value });
  const answer = await fetch(`/choices?${chosen}`);
  if (!answer.ok) return;
  for (const [name, choices] of Object.entries(await answer.json())) {
    fill(form.elements[name], choices);
  }
}

// The receiver may be unavailable for a while; the next attempt follows.
const attempt = () => refresh().catch(() => {});

form.addEventListener("change", (event) => {
  // A deployment belongs to one project.
  if (event.target.name === "project") form.elements.deployment.value = "";
  // Without empty parameters.
  for (const select of form.querySelectorAll("select")) select.disabled = !select.value;
  form.requestSubmit();
});
// The back button restores the page as it was left: with disabled fields, and with the new choice.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  form.reset();
  for (const select of form.querySelectorAll("select")) select.disabled = false;
});
attempt();
setInterval(attempt, REFRESH_MS);
