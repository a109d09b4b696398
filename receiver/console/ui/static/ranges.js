// Time range of the page: the form with two times in the time zone of the reader, and reloading.

import { element } from "./elements.js";

const MS_OF = { s: 1_000, m: 60_000 };
// Without the buttons that copy ids, which their script adds later.
const CONTROLS = "a[href], button:not(.copy-id), input, select, textarea, summary, [tabindex]";
const KEPT = "reloaded";

const menu = document.getElementById("ranges");
const form = document.getElementById("absolute");
const fields = [form.elements.since, form.elements.until];

const pad = (number) => String(number).padStart(2, "0");

// A time in the form that a field has, in the time zone of the reader.
function localValue(at) {
  const day = [at.getFullYear(), pad(at.getMonth() + 1), pad(at.getDate())].join("-");
  return `${day}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

// The fields keep their times when the time zone changes.
function offerZones() {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zones = [element("option", { value: "utc" }, "UTC"), element("option", { value: "local" }, name || "local time")];
  const zone = element("select", { ariaLabel: "Time zone" }, ...zones);
  form.querySelector(".dim").replaceWith(zone);
  const show = (text, isLocal) => (isLocal ? localValue(new Date(`${text}Z`)) : new Date(text).toISOString().slice(0, 19));
  zone.addEventListener("change", () => {
    for (const field of fields) if (field.value) field.value = show(field.value, zone.value === "local");
  });
  form.addEventListener("submit", (event) => {
    if (zone.value === "utc") return;
    event.preventDefault();
    const url = new URL(location.href);
    for (const field of fields) url.searchParams.set(field.name, new Date(field.value).toISOString());
    location.assign(url);
  });
  if (document.getElementById("zone").textContent !== "UTC") {
    zone.value = "local";
    zone.dispatchEvent(new Event("change"));
  }
}

// A reload would close a menu and lose what was typed.
function isBusy() {
  const isChanged = (field) => field.type !== "hidden" && field.value !== field.defaultValue && field.type !== "checkbox";
  return (
    document.hidden ||
    document.querySelector("details.menu[open], dialog[open], .brush") !== null ||
    [...document.querySelectorAll("input, textarea")].filter((field) => field.form !== form).some(isChanged)
  );
}

function reloadEvery(milliseconds) {
  const due = Date.now() + milliseconds;
  setInterval(() => {
    if (Date.now() < due || isBusy()) return;
    const focused = [...document.querySelectorAll(CONTROLS)].indexOf(document.activeElement);
    const kept = { url: location.href, x: scrollX, y: scrollY, focused, id: document.activeElement?.id };
    sessionStorage.setItem(KEPT, JSON.stringify(kept));
    location.reload();
  }, 1_000);
}

function restore() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  sessionStorage.removeItem(KEPT);
  if (kept?.url !== location.href) return;
  const focused = (kept.id && document.getElementById(kept.id)) || document.querySelectorAll(CONTROLS)[kept.focused];
  focused?.focus({ preventScroll: true });
  scrollTo(kept.x, kept.y);
}

offerZones();
if (menu.dataset.refresh) {
  try {
    restore();
  } catch {
    // Storage may be forbidden: the page is reloaded without its focus.
  }
  reloadEvery(parseInt(menu.dataset.refresh, 10) * MS_OF[menu.dataset.refresh.slice(-1)]);
}
