// Streams the explanation of a trace into its page. The texts of the model are text nodes, never markup.

import { element } from "./elements.js";

const form = document.getElementById("explain");
const stop = document.getElementById("stop");
const button = form.querySelector("button");
const section = document.getElementById("explanation");
const outcome = document.getElementById("outcome");
const answer = document.getElementById("answer");
const usage = document.getElementById("usage");
const sent = document.getElementById("sent");
const trace = form.dataset.trace;
const STRUCK = " Struck sentences name spans that this trace does not have.";

function partOf({ text, is_span: isSpan, is_known: isKnown }) {
  if (!isSpan) return text;
  if (!isKnown) return element("span", "id", text);
  const link = element("a", "id", text);
  link.href = `/trace/${trace}?span=${encodeURIComponent(text)}`;
  return link;
}

function preformatted(text) {
  const made = element("pre", "wrapped", text);
  made.tabIndex = 0;
  return made;
}

const count = (number) => number.toLocaleString("en");

const show = {
  sent({ bytes, added }) {
    const summary = element("summary", "", `Request of ${count(bytes)} bytes`);
    sent.append(element("li", "", element("details", "", summary, preformatted(JSON.stringify(added, null, 2)))));
    outcome.textContent = "The model reads.";
  },
  called({ name, arguments: given }) {
    sent.append(element("li", "", "The model called ", element("code", "", name), " with ", element("code", "", given)));
  },
  stated({ parts, is_refuted: isRefuted }) {
    answer.append(element(isRefuted ? "del" : "span", "", ...parts.map(partOf)));
    outcome.textContent = "The model answers.";
  },
  ended({ outcome: arrived, problem, usage: used }) {
    if (arrived === "none") fail(`There is no answer: ${problem}.`);
    else if (problem) cut(`The answer was cut: ${problem}.`);
    else outcome.textContent = `The model has answered.${answer.querySelector("del") ? STRUCK : ""}`;
    const cost = used.cost === null ? "" : `, cost ${used.cost.toFixed(4)}`;
    const about = used.is_estimated ? "About " : "";
    usage.textContent = `${about}${count(used.input_tokens)} tokens sent, ${count(used.output_tokens)} received${cost}.`;
  },
};

function fail(text) {
  outcome.replaceChildren(element("span", "error", text));
}

function cut(text) {
  answer.classList.add("cut");
  fail(`${text} What arrived is not an explanation.`);
}

// Show each line of a response when it arrives. Returns whether the last line confirms their number.
async function follow(body) {
  let rest = "";
  let lines = 0;
  for await (const piece of body.pipeThrough(new TextDecoderStream())) {
    const texts = (rest + piece).split("\n");
    rest = texts.pop();
    for (const text of texts) {
      const event = JSON.parse(text);
      if (event.end) return event.end.count === lines;
      lines += 1;
      for (const [name, content] of Object.entries(event)) show[name]?.(content);
    }
  }
  return false;
}

async function explain(signal) {
  const response = await fetch(`/api/v1/traces/${trace}/explain`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: "{}",
    signal,
  });
  if (!response.ok) {
    const { detail } = await response.json();
    fail(detail);
  } else if (!(await follow(response.body))) cut("The answer of the receiver was cut.");
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const abort = new AbortController();
  stop.onclick = () => abort.abort();
  section.hidden = false;
  stop.hidden = false;
  button.disabled = true;
  for (const part of [answer, usage, sent]) part.replaceChildren();
  answer.classList.remove("cut");
  outcome.textContent = "Sending.";
  try {
    await explain(abort.signal);
  } catch {
    cut(abort.signal.aborted ? "Stopped." : "The receiver does not answer.");
  }
  stop.hidden = true;
  button.disabled = false;
});
