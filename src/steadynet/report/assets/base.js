"use strict";
// Everything is shown as text, never as HTML, so that no content of a file can become a part of the page.
const DATA = JSON.parse(document.getElementById("data").textContent);
const GALLERY = DATA.gallery;
const VERDICT_TEXTS = { unsat: "proved", sat: "refuted", timeout: "timed out", unknown: "unknown", error: "error" };
const VERDICT_NAMES = { unsat: "UNSAT", sat: "SAT", timeout: "TIMEOUT", unknown: "UNKNOWN", error: "ERROR" }; // of verifiers
const LOOKS = { unsat: "good", sat: "bad", HOLDS: "good", DOES_NOT_HOLD: "bad" }; // the others look "open"

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const badge = (key, text) => make("span", { class: `badge ${LOOKS[key] || "open"}` }, text);
const verdictBadge = (name) =>
  make("span", { class: `badge ${LOOKS[name] || "open"}`, title: VERDICT_NAMES[name] || name }, verdictText(name));
const outcomeBadge = (name) => badge(name, DATA.outcomes[name]);
const verdictText = (name) => VERDICT_TEXTS[name] || name;
const radiusText = (eps) => DATA.radii[String(eps)] || String(eps);
const anchor = (name) => "s-" + Array.from(name, (letter) => (/[\w-]/.test(letter) ? letter : "_")).join("");
const unique = (values) => [...new Set(values)];
const whole = (number) => number.toLocaleString("en");

// Filters. A filter is a select; the session remembers its value when the page reloads.

function remembered(key, value) {
  try {
    if (value !== undefined) sessionStorage.setItem(key, value);
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

const asOptions = (values) => unique(values).map((value) => [String(value), String(value)]);

function choice(label, key, options, onchange, none = "all") {
  const first = make("option", { value: "" }, none);
  const select = make("select", { "aria-label": label, "data-filter": label }, first);
  for (const [value, text] of options) select.append(make("option", { value }, text));
  const before = remembered(key);
  if (before && options.some(([value]) => value === before)) select.value = before;
  select.addEventListener("change", () => {
    remembered(key, select.value);
    onchange();
  });
  return {
    element: make("label", {}, label, select),
    get value() { return select.value; },
    set value(value) {
      select.value = value;
      remembered(key, select.value);
    },
  };
}
