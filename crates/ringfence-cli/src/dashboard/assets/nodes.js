// The cards of the nodes.

import { $, bytes, duration, el, micros, shown } from "./dom.js";
import { clock } from "./stream.js";

const WORDS = { votes: "votes", quarantined: "quarantine", mute: "does not vote", down: "down" };
let cards = [];

/** Shows these nodes. */
export function showNodes(nodes) {
  const list = $("nodes");
  if (cards.length !== nodes.length) {
    cards = nodes.map(() => el("li", { class: "card" }));
    list.replaceChildren(...cards);
  }
  nodes.forEach((node, index) => fillCard(cards[index], node));
  tickNodes();
}

function fillCard(card, node) {
  card.dataset.state = node.state;
  const facts = [
    ["round trip", node.round_trip_us === null ? null : micros(node.round_trip_us)],
    ["clock", node.clock_offset_us === null ? null : offset(node)],
    ["tier", node.tier],
    ["memory", memory(node)],
    ["version", node.version],
  ];
  const lines = facts.filter(([, value]) => value !== null && value !== undefined);
  const wait = node.quarantine_until_ms;
  card.replaceChildren(...[
    el("div", { class: "card-top" }, [
      el("strong", { class: "node-name", text: shortName(node.node), title: shown(node.node) }),
      el("span", { class: "state", text: WORDS[node.state] ?? node.state }),
    ]),
    wait === null ? null : el("p", { class: "countdown", "data-until": wait }),
    node.says && node.state !== "quarantined" ? el("p", { class: "says", text: shown(node.says) }) : null,
    lines.length === 0 ? null : el("dl", {}, lines.flatMap(([name, value]) => [
      el("dt", { text: name }),
      el("dd", { text: shown(value) }),
    ])),
    node.service === null ? null : service(node.service),
  ].filter((part) => part !== null));
}

/** The scheme says nothing here. */
function shortName(name) {
  return shown(name.replace(/^[a-z+]+:\/\//, ""));
}

function offset(node) {
  const us = node.clock_offset_us;
  const jumps = node.clock_jumps === 0 ? "" : `, jumped ${node.clock_jumps}×`;
  return `${us > 0 ? "+" : ""}${micros(us)}${jumps}`;
}

function memory(node) {
  if (node.memory_bytes === null) return null;
  const limit = node.memory_max_bytes ? ` of ${bytes(node.memory_max_bytes)}` : "";
  return bytes(node.memory_bytes) + limit;
}

function service(seen) {
  const agreeing = seen.sentinels.filter((one) => one.agrees).length;
  const line = (name, text, ok = true) =>
    el("li", { class: ok ? "" : "bad" }, [el("span", { text: shown(name) }), el("span", { text: shown(text) })]);
  return el("div", { class: "service" }, [
    el("p", { text: `${agreeing} of ${seen.sentinel_count} Sentinels: ${shown(seen.master)} is the master` }),
    el("ul", {}, [
      ...seen.sentinels.map((one) => line(one.sentinel, one.agrees ? "agrees" : one.says, one.agrees)),
      ...seen.replicas.map((one) =>
        line(`replica ${one.replica}`, one.lag_s === null ? "lag unknown" : `lag ${one.lag_s} s`, one.lag_s !== null && one.lag_s <= 2)),
    ]),
  ]);
}

/** Counts the quarantines down. */
export function tickNodes() {
  for (const line of document.querySelectorAll(".countdown")) {
    const left = Number(line.dataset.until) - clock.now();
    line.textContent = left > 0 ? `votes in ${duration(left)}` : "may vote now";
  }
}
