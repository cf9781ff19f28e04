// The panel of one lock, which is read directly while it is open, and the dialog that breaks it.

import { $, duration, el, fact, shown, who } from "./dom.js";
import { bar, marks, rowOf, tickLocks, unknown } from "./locks.js";
import { clock, request } from "./stream.js";

const READ_EVERY_MS = 1000;

let open = null;
let breakAllowed = false;
let onClose = () => {};

export function startDetails(closed) {
  onClose = closed;
  $("break-cancel").addEventListener("click", () => $("break-dialog").close());
  $("break-form").addEventListener("submit", submitBreak);
  for (const id of ["break-confirm", "break-reason"]) $(id).addEventListener("input", checkBreak);
}

export function allowBreak(allowed) {
  breakAllowed = allowed;
}

export const isOpen = () => open !== null;

/** Opens the lock with this key. */
export function openDetails(key) {
  const row = rowOf(key);
  if (!row) return;
  open = { key, name: row.name, part: row.part, seen: null };
  $("details").hidden = false;
  document.body.classList.add("with-details");
  draw({ row, nodes: [] });
  read(open);
}

export function closeDetails() {
  if (open === null) return;
  open = null;
  $("details").hidden = true;
  document.body.classList.remove("with-details");
  onClose();
}

/** Reads the open lock until another one is opened. */
async function read(mine) {
  while (open === mine) {
    try {
      const response = await request(`/api/v1/lock?name=${encodeURIComponent(mine.name)}`);
      const seen = await response.json();
      if (open !== mine) return;
      const row = seen.rows.find((one) => one.part === mine.part) ?? null;
      draw({ row, nodes: seen.nodes, durability: seen.durability, quorum: seen.quorum });
    } catch (error) {
      if (open === mine) showProblem(error.message);
    }
    await new Promise((done) => setTimeout(done, READ_EVERY_MS));
  }
}

function showProblem(text) {
  const line = $("details").querySelector(".problem");
  if (line) line.textContent = `not read: ${shown(text)}`;
}

function draw({ row, nodes, durability, quorum = true }) {
  const panel = $("details");
  const focused = panel.contains(document.activeElement) ? document.activeElement.id : null;
  const parts = [
    el("div", { class: "details-top" }, [
      el("h2", {}, [el("bdi", { text: shown(open.name) })]),
      el("button", { type: "button", id: "details-close", class: "quiet", "aria-label": "Close", text: "×", on: { click: closeDetails } }),
    ]),
    el("p", { class: "problem", role: "status" }),
    row === null ? el("p", { class: "big", text: quorum ? "free" : "unknown, no majority" }) : el("p", { class: "big", text: sentence(row) }),
  ];
  if (row !== null) {
    parts.push(...row.holders.slice(0, 64).map((holder) => holderCard(row, holder)));
    if (row.parties.length > 0) parts.push(list("Arrived", row.parties.map(shown)));
    if (row.waiting > 0) parts.push(queueList(row));
  }
  if (open.part === "lock" && nodes.length > 0) parts.push(votes(nodes, row));
  if (durability) parts.push(el("p", { class: "note", text: `Durability: ${durability}` }));
  panel.replaceChildren(...parts);
  if (focused) $(focused)?.focus();
  tickLocks();
}

function sentence(row) {
  if (row.state === "unknown") return unknown(row);
  if (row.kept) return "released, kept from others for a while";
  if (row.kind === "semaphore") return `semaphore: ${row.holder_count} of ${row.permits} permits taken`;
  if (row.kind === "latch") {
    const made = row.made_ms === null ? "" : `, made ${duration(clock.now() - row.made_ms)} ago`;
    return `latch: ${row.arrived} arrived${made}`;
  }
  if (row.split && row.state !== "held") return "no majority: the nodes disagree";
  if (row.state !== "held") return "free, clients wait for it";
  return { shared: `shared by ${row.holder_count}`, plain: "held without a record: a plain lock, or another library's" }[row.kind] ?? "held";
}

function holderCard(row, holder) {
  const facts = [
    ["slot", holder.slot],
    ["held for", holder.since_ms === null ? null : duration(clock.now() - holder.since_ms)],
    ["fence (the term of an election)", holder.fence],
    ["id", holder.id],
  ].filter(([, value]) => value !== null && value !== undefined);
  const breakable = breakAllowed && row.state === "held" && (row.kind === "semaphore" || row.holders.length === 1);
  const id = `break-${holder.slot ?? "lock"}`;
  return el("div", { class: "holder-card" }, [
    el("strong", {}, [el("bdi", { text: who(holder) })]),
    holder.until_ms === null ? el("p", { text: "without an expiry" }) : el("div", { class: "lease" }, bar({ ...holder, lease_ms: longest(holder) })),
    el("dl", {}, facts.map(([name, value]) => fact(name, value))),
    breakable ? el("button", { type: "button", id, class: "danger", text: "Break…", on: { click: () => askBreak(row, holder) } }) : null,
  ]);
}

/** How long the lease was when it began. The list has seen it for longer than these details. */
function longest(holder) {
  const known = rowOf(open.key)?.holders.find((one) => one.id === holder.id);
  return Math.max(holder.lease_ms, known?.lease_ms ?? 0);
}

function queueList(row) {
  const first = row.queue.map((waiter, place) =>
    `${place + 1}. ${shown(waiter.id)}, for ${duration(clock.now() - waiter.since_ms)}${waiter.shared ? ", to share" : ""}`);
  const more = row.waiting - row.queue.length;
  if (more > 0) first.push(row.queue.length > 0 ? `and ${more} more` : `${more} waiting`);
  return list("Queue", first);
}

function list(title, lines) {
  return el("div", {}, [el("h3", { text: title }), el("ul", { class: "plain" }, lines.map((text) => el("li", {}, [el("bdi", { text })])))]);
}

function votes(nodes, row) {
  return el("div", {}, [
    el("h3", { text: "Votes" }),
    row === null ? null : marks(row.votes),
    el("ul", { class: "plain votes-list" }, nodes.map((node) => el("li", {}, [
      el("span", { text: shown(node.node.replace(/^[a-z+]+:\/\//, "")) }),
      el("span", { text: shown(vote(node)) }),
    ]))),
  ]);
}

function vote(node) {
  if (!node.votes) return node.why ?? "does not vote";
  if (!node.held) return "free";
  return `held by ${node.label || node.id || "another client"}`;
}

let order = null;

function askBreak(row, holder) {
  order = { name: row.name, fence: holder.fence, slot: holder.slot };
  const slot = holder.slot === null ? "" : `slot ${holder.slot} of `;
  $("break-what").textContent = `${slot}${shown(row.name)} is held by ${who(holder)}.`;
  $("break-confirm").value = "";
  $("break-reason").value = "";
  $("break-problem").textContent = "";
  checkBreak();
  $("break-dialog").showModal();
}

function checkBreak() {
  const typed = $("break-confirm").value;
  // What cannot be typed is typed as it is shown.
  const fits = typed === order.name || typed === shown(order.name);
  $("break-submit").disabled = !fits || $("break-reason").value.trim() === "";
}

async function submitBreak(event) {
  event.preventDefault();
  const body = JSON.stringify({
    name: order.name,
    confirm: order.name,
    reason: $("break-reason").value.trim(),
    fence: order.fence,
    slot: order.slot,
  });
  $("break-submit").disabled = true;
  try {
    const headers = { "Content-Type": "application/json" };
    await request("/api/v1/break", { method: "POST", headers, body });
    $("break-dialog").close();
  } catch (error) {
    $("break-problem").textContent = shown(error.message);
    checkBreak();
  }
}
