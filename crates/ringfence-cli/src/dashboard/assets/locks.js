// The list of locks. Only the rows that can be seen exist, so that thousands scroll smoothly.

import { $, duration, el, shown, who } from "./dom.js";
import { clock } from "./stream.js";

const COLUMNS = [
  ["name", "Lock"],
  ["holder", "Holder"],
  ["lease", "Lease"],
  ["fence", "Fence / term"],
  ["votes", "Votes"],
  ["queue", "Queue"],
];
const KINDS = { exclusive: "", lock: "", shared: "shared", plain: "plain", semaphore: "semaphore", latch: "latch" };
/** Rows above and below the visible part. */
const SPARE = 6;
const MARKS = { held: "holder", free: "free", other: "another holder", reported: "has a holder, no majority is known", mute: "does not vote", down: "down" };

const rows = new Map();
/** Rows on the page by their index in `order`. */
const shownRows = new Map();
let order = [];
let sort = { by: "name", down: false };
let chosen = null;
let onOpen = () => {};
let hasList = false;
/** Why the list is not complete. */
let problem = null;

export const keyOf = (row) => `${row.part} ${row.name}`;
const rowHeight = () => (matchMedia("(max-width: 720px)").matches ? 84 : 44);

export function startLocks(open) {
  onOpen = open;
  const head = $("locks-head");
  head.append(...COLUMNS.map(([id, title]) =>
    el("div", { role: "columnheader", class: `cell ${id}`, "aria-sort": "none", "data-id": id }, [
      el("button", { type: "button", tabindex: "-1", text: title, on: { click: () => sortBy(id) } }),
    ])));
  markSort();
  $("locks").addEventListener("scroll", () => paint(), { passive: true });
  $("search").addEventListener("input", () => arrange());
  $("locks").addEventListener("keydown", onKey);
  new ResizeObserver(() => paint(true)).observe($("locks"));
  $("locks-body").addEventListener("click", (event) => {
    const row = event.target.closest("[data-key]");
    if (row) choose(row.dataset.key, true);
  });
}

function sortBy(id) {
  sort = { by: id, down: sort.by === id ? !sort.down : false };
  markSort();
  arrange();
}

function markSort() {
  for (const cell of $("locks-head").children) {
    const is = cell.dataset.id === sort.by;
    cell.setAttribute("aria-sort", is ? (sort.down ? "descending" : "ascending") : "none");
  }
}

/** Takes in an event. */
export function changeLocks(event) {
  if (event.event === "all") rows.clear();
  for (const row of event.gone) rows.delete(keyOf(row));
  for (const row of event.changed) rows.set(keyOf(row), row);
  hasList = event.cluster.list.ended_ms !== null;
  problem = event.cluster.list.problem;
  if (event.event === "all" || event.gone.length > 0 || event.changed.length > 0) arrange();
  else if (rows.size === 0) showEmpty();
}

export const rowOf = (key) => rows.get(key);

const SORTS = {
  name: (row) => row.name,
  holder: (row) => (row.holders[0] ? who(row.holders[0]) : "\uffff"),
  lease: (row) => lease(row)?.until_ms ?? Infinity,
  fence: (row) => row.holders[0]?.fence ?? Infinity,
  votes: (row) => row.votes.filter((mark) => mark === "held").length - (row.split ? 100 : 0),
  queue: (row) => -row.waiting,
};

function arrange() {
  const search = $("search").value.trim().toLowerCase();
  const fits = (row) =>
    search === "" ||
    row.name.toLowerCase().includes(search) ||
    row.holders.some((holder) => (holder.label ?? "").toLowerCase().includes(search) || holder.id === search);
  const key = SORTS[sort.by];
  const found = [...rows.values()].filter(fits).map((row) => [key(row), row]);
  found.sort(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : x.name < y.name ? -1 : x.name > y.name ? 1 : 0));
  if (sort.down) found.reverse();
  order = found.map(([, row]) => keyOf(row));
  $("locks").setAttribute("aria-rowcount", order.length + 1);
  showEmpty();
  paint(true);
}

function showEmpty() {
  const empty = $("locks-empty");
  empty.hidden = order.length > 0;
  $("locks").hidden = order.length === 0;
  if (!empty.hidden) {
    empty.textContent = problem !== null
      ? `Not known: ${shown(problem)}.`
      : !hasList
      ? "Searching the nodes."
      : rows.size > 0
        ? "No lock fits the search."
        : "No lock is held, and no client waits.";
  }
}

/** Draws the rows that can be seen: those that came into view, and with `all` those that changed. */
function paint(all = false) {
  const grid = $("locks");
  const body = $("locks-body");
  const height = rowHeight();
  body.style.height = `${order.length * height}px`;
  const first = Math.max(0, Math.floor(grid.scrollTop / height) - SPARE);
  const last = Math.min(order.length, Math.ceil((grid.scrollTop + grid.clientHeight) / height) + SPARE);
  for (const [index, element] of shownRows) {
    if (index < first || index >= last) {
      element.remove();
      shownRows.delete(index);
    }
  }
  for (let index = first; index < last; index += 1) {
    let element = shownRows.get(index);
    if (element && !all) continue;
    const row = rows.get(order[index]);
    if (!element) {
      element = el("div", { role: "row", class: "line" });
      shownRows.set(index, element);
      body.append(element);
    }
    element.style.top = `${index * height}px`;
    if (element.row !== row) fillRow(element, row, index);
  }
  const current = order.indexOf(chosen);
  if (current >= first && current < last) grid.setAttribute("aria-activedescendant", `row-${current}`);
  else grid.removeAttribute("aria-activedescendant");
  tickLocks();
}

function fillRow(element, row, index) {
  const key = keyOf(row);
  element.row = row;
  element.id = `row-${index}`;
  element.dataset.key = key;
  element.setAttribute("aria-rowindex", index + 2);
  element.setAttribute("aria-selected", key === chosen);
  element.classList.toggle("split", row.split || row.state === "unknown");
  const cell = (id, children) => el("div", { role: "gridcell", class: `cell ${id}` }, children);
  const kind = row.kept ? "kept" : KINDS[row.kind];
  element.replaceChildren(
    cell("name", [
      el("bdi", { class: "text", text: shown(row.name), title: shown(row.name) }),
      kind ? el("span", { class: "kind", text: kind }) : null,
    ]),
    cell("holder", [el("bdi", { class: "text", text: holders(row) })]),
    cell("lease", leaseBar(row)),
    cell("fence", [el("span", { class: "text number", text: row.part === "lock" && row.state === "held" && row.holders.length === 1 ? (row.holders[0].fence ?? "none") : "" })]),
    cell("votes", [marks(row.votes)]),
    cell("queue", [el("span", { class: "text", text: queue(row) })]),
  );
}

function holders(row) {
  if (row.kind === "latch") {
    const first = row.parties.slice(0, 3).map(shown).join(", ");
    return first + (row.arrived > 3 ? ` and ${row.arrived - 3} more` : "");
  }
  if (row.state === "unknown") return unknown(row);
  if (row.split && row.holders.length === 0) return "the nodes disagree";
  if (row.holders.length === 0) return row.state === "held" ? "another client" : "free";
  const others = row.holder_count - 1;
  return who(row.holders[0]) + (others > 0 ? ` and ${others} more` : "");
}

/** What is known of a lock of which it is unknown whether it is held. */
export function unknown(row) {
  const reported = row.votes.filter((mark) => mark === "reported").length;
  const said = row.holders.map(who).join(", ");
  if (said === "") return "unknown, no majority";
  if (reported === 0) return `unknown, no majority: a node says ${said}`;
  return `unknown, no majority: ${reported} of ${row.votes.length} nodes ${reported === 1 ? "says" : "say"} ${said}`;
}

function queue(row) {
  const parts = [];
  if (row.permits !== null) parts.push(`${row.holder_count} of ${row.permits} permits`);
  if (row.arrived !== null) parts.push(`${row.arrived} arrived`);
  if (row.waiting > 0) parts.push(`${row.waiting} waiting`);
  return parts.join(", ");
}

/** The marks of the nodes, for a row or for details. */
export function marks(votes) {
  const said = votes.map((mark) => MARKS[mark] ?? mark).join(", ");
  return el("span", { class: "marks", role: "img", "aria-label": `votes: ${said || "none"}`, title: said },
    votes.map((mark) => el("i", { class: "mark", "data-mark": mark })));
}

/** The lease that a row shows: the one that ends last. */
function lease(row) {
  const ends = row.holders.filter((holder) => holder.until_ms !== null);
  return ends.reduce((most, holder) => (most === null || holder.until_ms > most.until_ms ? holder : most), null);
}

function leaseBar(row) {
  const holder = row.state === "unknown" ? null : lease(row);
  if (holder === null) return [el("span", { class: "text", text: row.state === "held" && row.holders.length > 0 ? "no expiry" : "" })];
  return bar(holder);
}

/** A bar that `tickLocks` moves. */
export function bar(holder) {
  return [
    el("span", { class: "lease-bar", "data-until": holder.until_ms, "data-lease": holder.lease_ms }, [el("i")]),
    el("span", { class: "lease-left number", "data-until": holder.until_ms }),
  ];
}

/** Moves the bars of the leases. */
export function tickLocks() {
  const now = clock.now();
  for (const line of document.querySelectorAll(".lease-bar")) {
    const share = Math.min(1, Math.max(0, (line.dataset.until - now) / Math.max(1, line.dataset.lease)));
    line.firstChild.style.transform = `scaleX(${share.toFixed(4)})`;
    line.classList.toggle("low", share < 0.34);
  }
  for (const text of document.querySelectorAll(".lease-left")) {
    const left = text.dataset.until - now;
    text.textContent = left > 0 ? duration(left) : "not seen";
    text.title = left > 0 ? "" : "the lease that was last seen has ended; it may have been renewed since";
  }
}

/** Chooses a row, and opens it if `open`. */
export function choose(key, open = false) {
  chosen = key;
  const index = order.indexOf(key);
  if (index >= 0) bringIntoView(index);
  for (const element of shownRows.values()) {
    element.setAttribute("aria-selected", element.dataset.key === key);
  }
  paint();
  if (open && key !== null) onOpen(key);
}

function bringIntoView(index) {
  const grid = $("locks");
  const height = rowHeight();
  const head = $("locks-head").offsetHeight;
  const top = index * height;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + height + head > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + height + head - grid.clientHeight;
}

function onKey(event) {
  const current = order.indexOf(chosen);
  const page = Math.floor($("locks").clientHeight / rowHeight()) - 1;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -order.length, End: order.length };
  if (event.key in steps && order.length > 0) {
    event.preventDefault();
    const next = current < 0 ? 0 : Math.min(order.length - 1, Math.max(0, current + steps[event.key]));
    choose(order[next]);
  } else if (event.key === "Enter" && chosen !== null) {
    event.preventDefault();
    onOpen(chosen);
  }
}
