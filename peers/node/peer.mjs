// The Node clients behind the line protocol of ../README.md.
//
// usage: node peer.mjs redlock|redlock-4 URL,URL,…

import { closeSync, openSync, unlinkSync } from "node:fs";
import { createInterface } from "node:readline";
import { setImmediate as immediately, setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import * as redlock5 from "redlock";
import Redlock4 from "redlock4";

const [library, urls] = process.argv.slice(2);
const clients = urls.split(",").map((url) => new Redis(url));

// Refusals are thrown; other failures are in the answers.
const managers = {
  redlock: (settings) => new redlock5.default(clients, settings),
  "redlock-4": (settings) => new Redlock4(clients, settings),
}[library];
const once = managers({ retryCount: 0 });
const patient = managers({ retryCount: -1 });
for (const manager of [once, patient]) manager.on("error", () => {});

async function acquire(name, ttl, wait) {
  const manager = wait ? patient : once;
  return library === "redlock" ? manager.acquire([name], ttl) : manager.lock(name, ttl);
}

async function release(held) {
  return library === "redlock" ? held.release() : held.unlock();
}

const isRefusal = (failure) => ["ExecutionError", "LockError"].includes(failure.name);

// Takes the lock repeatedly. The witness is a file that only one client can create.
async function contend(name, ttl, ms, witness) {
  const end = performance.now() + ms;
  let entered = 0;
  while (performance.now() < end) {
    let held;
    try {
      held = await acquire(name, ttl, false);
    } catch (failure) {
      if (!isRefusal(failure)) throw failure;
      await sleep(5);
      continue;
    }
    try {
      closeSync(openSync(witness, "wx"));
    } catch {
      return "broken another client was inside";
    }
    entered += 1;
    await sleep(2);
    unlinkSync(witness);
    await release(held);
  }
  return `entered ${entered}`;
}

// Holds the lock for exactly this long. Timers have steps of a millisecond, so a hold of one would
// take up to two: the end of it passes in turns of the event loop.
async function hold(us) {
  const end = performance.now() + us / 1000;
  if (us > 2000) await sleep(us / 1000 - 2);
  while (performance.now() < end) await immediately();
}

// Runs `work(task)` for all tasks at once. Returns how long it took, in microseconds.
async function together(tasks, work) {
  const begun = performance.now();
  await Promise.all(Array.from({ length: tasks }, (_, task) => work(task)));
  return (performance.now() - begun) * 1000;
}

// Locks and releases until the time is over. Times the wait if the lock is held, otherwise both.
async function againAndAgain(tasks, ms, nameOf, ttl, holdUs) {
  const counts = Array(tasks).fill(0);
  const times = [];
  const tookUs = await together(tasks, async (task) => {
    const end = performance.now() + ms;
    for (let begun; (begun = performance.now()) < end; ) {
      const held = await acquire(nameOf(task), ttl, true);
      if (holdUs) {
        times.push(performance.now() - begun);
        await hold(holdUs);
      }
      await release(held);
      if (!holdUs) times.push(performance.now() - begun);
      counts[task] += 1;
    }
  });
  return report(counts, tookUs, times);
}

// All tasks start at once, and each takes the lock once.
async function drain(tasks, name, ttl, holdUs) {
  const tookUs = await together(tasks, async () => {
    const held = await acquire(name, ttl, true);
    await hold(holdUs);
    await release(held);
  });
  return report(Array(tasks).fill(1), tookUs, []);
}

function report(counts, tookUs, times) {
  times.sort((a, b) => a - b);
  const quantile = (q) => (times.length ? times[Math.floor((times.length - 1) * q)] * 1000 : 0);
  return JSON.stringify({ counts, took_us: Math.round(tookUs), p50_us: quantile(0.5), p99_us: quantile(0.99) });
}

let held;
async function answer([command, ...words]) {
  switch (command) {
    case "try":
      try {
        held = await acquire(words[0], Number(words[1]), false);
        return "held";
      } catch (failure) {
        if (!isRefusal(failure)) throw failure;
        return "refused";
      }
    case "release":
      await release(held);
      return "released";
    case "contend":
      return contend(words[0], Number(words[1]), Number(words[2]), words[3]);
    case "cycles":
      return againAndAgain(Number(words[0]), Number(words[1]), (task) => `${words[2]}:${task}`, Number(words[3]), 0);
    case "share":
      return againAndAgain(Number(words[0]), Number(words[1]), () => words[2], Number(words[3]), Number(words[4]));
    case "drain":
      return drain(Number(words[0]), words[1], Number(words[2]), Number(words[3]));
    default:
      return `error unknown command: ${command}`;
  }
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  let reply;
  try {
    reply = await answer(line.split(" "));
  } catch (failure) {
    reply = `error ${failure}`.replaceAll("\n", " ");
  }
  console.log(reply);
}
process.exit(0);
