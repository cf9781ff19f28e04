// The time line as a picture. What was not seen is hatched.

import { $, el, shown, svg } from "./dom.js";
import { clock, request } from "./stream.js";

/** The shortest window that shows all that was seen. */
const WINDOWS_MIN = [1, 2, 5, 10, 15];
const READ_EVERY_MS = 2000;
const LANE = 24;
const NODE_LANE = 14;
const AXIS = 22;
const COLOURS = 8;
/** Lanes of locks, unless there is a search. */
const LANES_MAX = 14;

let seen = null;

export function startTimeline() {
  new ResizeObserver(() => draw()).observe($("timeline"));
  (async () => {
    for (;;) {
      if (!document.hidden) await read();
      await new Promise((done) => setTimeout(done, READ_EVERY_MS));
    }
  })();
}

async function read() {
  const search = $("search").value.trim();
  try {
    const response = await request(`/api/v1/timeline?limit=${LANES_MAX}&search=${encodeURIComponent(search)}`);
    seen = await response.json();
    draw();
  } catch {
    // The stream of events tells that the connection is lost.
  }
}

function draw() {
  if (seen === null) return;
  const box = $("timeline");
  const style = getComputedStyle(box);
  const width = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  if (width < 50) return;
  const left = Math.min(190, Math.max(84, width * 0.2));
  const end = seen.now_ms;
  const minutes = WINDOWS_MIN.find((minutes) => minutes * 60_000 >= end) ?? WINDOWS_MIN.at(-1);
  const span = minutes * 60_000;
  $("time-title").textContent = minutes === 1 ? "Last minute" : `Last ${minutes} minutes`;
  const x = (ms) => left + ((Math.max(ms, end - span) - (end - span)) / span) * (width - left);
  const lanes = [
    ...seen.nodes.map((node) => ({ title: node.node.replace(/^[a-z+]+:\/\//, ""), height: NODE_LANE, spans: node.spans, node: true })),
    ...seen.tracks.map((track) => ({ title: track.slot === null ? track.name : `${track.name} #${track.slot}`, height: LANE, spans: track.spans, node: false })),
  ];
  let y = 4;
  const parts = [pattern()];
  for (const lane of lanes) {
    parts.push(...drawLane(lane, y, { x, left, width }));
    y += lane.height + 3;
    if (lane.node && lane === lanes[seen.nodes.length - 1]) y += 8;
  }
  parts.push(...axis(x, y, end, span, left));
  const label = `Time line of ${seen.nodes.length} nodes and ${seen.tracks.length} locks`;
  box.replaceChildren(svg("svg", { width, height: y + AXIS, role: "img", "aria-label": label, class: "time" }, parts));
  const more = seen.track_count - seen.tracks.length;
  $("timeline-note").textContent = more > 0
    ? `The ${seen.tracks.length} locks with the latest changes; ${more} more fit the search field.`
    : "";
}

function pattern() {
  const hatch = svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, [
    svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }),
  ]);
  return svg("defs", {}, [hatch]);
}

function drawLane(lane, y, { x, left, width }) {
  const parts = [
    svg("text", { x: 0, y: y + lane.height / 2 + 4, class: "lane-title", text: cut(shown(lane.title), Math.floor(left / 7.2)) }),
    // Nothing was seen where nothing is drawn over this.
    svg("rect", { x: left, y, width: width - left, height: lane.height, class: "unseen", fill: "url(#hatch)" }),
  ];
  let before = null;
  for (const span of lane.spans) {
    const from = x(span.from_ms);
    const wide = Math.max(1.5, x(span.to_ms) - from);
    const kind = lane.node ? `node ${span.state}` : span.holder === null ? "free" : `hold c${colour(span.holder)}`;
    const rect = svg("rect", { x: from, y, width: wide, height: lane.height, rx: 2, class: `span ${kind}` });
    rect.append(svg("title", { text: describe(lane, span) }));
    parts.push(rect);
    if (!lane.node && span.holder !== null) {
      if (wide > 46) parts.push(svg("text", { x: from + 5, y: y + lane.height / 2 + 4, class: "span-text", text: cut(shown(span.holder), Math.floor((wide - 8) / 6.6)) }));
      if (before !== null && before.holder !== null) parts.push(svg("path", { d: `M${from - 3},${y - 1}h6l-3,5z`, class: "handover" }));
    }
    before = span;
  }
  return parts;
}

function describe(lane, span) {
  const what = lane.node ? span.state : span.holder === null ? "free" : `held by ${shown(span.holder)}${span.fence === null ? "" : `, fence ${span.fence}`}`;
  return `${shown(lane.title)}: ${what}, seen from ${time(span.from_ms)} to ${time(span.to_ms)}`;
}

function axis(x, y, end, span, left) {
  const parts = [];
  const wall = Date.now() - clock.now();
  const step = span / 5;
  const narrow = x(end) - left < 420;
  const first = Math.ceil((wall + end - span) / step) * step;
  for (let at = first; at <= wall + end; at += step * (narrow ? 2 : 1)) {
    const place = x(at - wall);
    parts.push(svg("line", { x1: place, y1: 0, x2: place, y2: y, class: "tick" }));
    if (place < left + 24 || place > x(end) - 26) continue;
    parts.push(svg("text", { x: place, y: y + 14, class: "tick-text", "text-anchor": "middle", text: time(at - wall, span < 300_000) }));
  }
  return parts;
}

function time(ms, seconds = true) {
  const at = new Date(Date.now() - clock.now() + ms);
  return at.toLocaleTimeString([], { hourCycle: "h23", hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) });
}

const cut = (text, most) => ([...text].length <= most ? text : `${[...text].slice(0, Math.max(1, most - 1)).join("")}…`);

/** The same holder has the same colour everywhere. */
function colour(text) {
  let hash = 7;
  for (const c of text) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return hash % COLOURS;
}
