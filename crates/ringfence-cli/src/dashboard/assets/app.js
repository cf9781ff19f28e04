// The page: connects its parts with the stream of events and the keyboard.

import { $, duration, shown } from "./dom.js";
import { allowBreak, closeDetails, isOpen, openDetails, startDetails } from "./details.js";
import { changeLocks, startLocks, tickLocks } from "./locks.js";
import { showNodes, tickNodes } from "./nodes.js";
import { clock, follow, request, token } from "./stream.js";
import { startTimeline } from "./timeline.js";

/** Bars and countdowns move this often. */
const TICK_MS = 100;

let cluster = null;

function onEvent(event) {
  cluster = event.cluster;
  clock.learn(cluster.now_ms, cluster.as_of_ms);
  const headline = $("headline");
  const text = shown(cluster.headline);
  if (headline.textContent !== text) headline.textContent = text;
  document.body.dataset.health = cluster.health;
  document.title = `${cluster.counts.voting}/${cluster.counts.nodes} ringfence`;
  if (cluster.nodes) showNodes(cluster.nodes);
  changeLocks(event);
  showAges();
  if (event.event === "all") learnAbout();
}

async function learnAbout() {
  try {
    const about = await (await request("/api/v1/about")).json();
    allowBreak(about.break_allowed);
  } catch {
    allowBreak(false);
  }
}

/** How old everything is, in words. */
function showAges() {
  const chip = $("fresh");
  const age = clock.age();
  const fresh = clock.isFresh();
  document.body.classList.toggle("stale", !fresh);
  const text = age === null ? "connecting" : fresh ? "live" : `as of ${duration(age)} ago`;
  if (chip.textContent !== text) chip.textContent = text;
  chip.dataset.fresh = fresh;
  if (cluster === null) return;
  const { list } = cluster;
  const line = $("list-age");
  const parts = [];
  if (list.began_ms !== null) parts.push(`list ${duration(clock.now() - list.began_ms)} old`);
  if (list.shortened) parts.push("shortened: there are too many locks");
  if (list.problem) parts.push(`not searched: ${shown(list.problem)}`);
  line.textContent = parts.join("; ");
  line.classList.toggle("bad", Boolean(list.problem));
}

/** Asks for the token, again if it was `wrong`. */
function askToken(wrong) {
  token.forget();
  const dialog = $("token-dialog");
  $("token-problem").textContent = wrong ? "This token was refused." : "";
  $("token").value = "";
  return new Promise((done) => {
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    $("token-form").addEventListener("submit", () => {
      token.set($("token").value.trim());
      done();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "?" && !typing) {
    $("help-dialog").showModal();
  } else if (event.key === "Escape") {
    if (isOpen()) closeDetails();
    else if (typing) {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
      $("locks").focus();
    }
  } else if (event.key === "ArrowDown" && (typing || document.activeElement === document.body)) {
    event.preventDefault();
    $("locks").focus();
    $("locks").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
  }
}

startLocks(openDetails);
startDetails(() => $("locks").focus());
startTimeline();
$("help-open").addEventListener("click", () => $("help-dialog").showModal());
document.addEventListener("keydown", onKey);
setInterval(() => {
  if (document.hidden) return;
  tickLocks();
  tickNodes();
  showAges();
}, TICK_MS);
follow(onEvent, askToken);
