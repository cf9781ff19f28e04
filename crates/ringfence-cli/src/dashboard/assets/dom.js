// Small helpers: elements, numbers and times for people. All text goes through textContent.

/** A new element. `attributes` may have `class`, `text`, `on` (handlers) and attributes. */
export function el(tag, attributes = {}, children = []) {
  return fill(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** A new SVG element. */
export function svg(tag, attributes = {}, children = []) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, f] of Object.entries(value)) element.addEventListener(event, f);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export const $ = (id) => document.getElementById(id);

// Control characters, and those that change the direction or the order of text.
const CONFUSING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A name or label so that what is shown is what it is. */
export function shown(text) {
  return text.replace(CONFUSING, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** A holder for people. */
export function who(holder) {
  return shown(holder.label || holder.id || "another client");
}

/** A time span for people. */
export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} days`;
}

/** A size for people. */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** A round trip or a clock offset for people. */
export function micros(us) {
  const size = Math.abs(us);
  if (size < 1000) return `${us} µs`;
  if (size < 100_000) return `${(us / 1000).toFixed(1)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}
