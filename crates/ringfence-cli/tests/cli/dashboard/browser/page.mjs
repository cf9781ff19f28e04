// What every step needs: the browser, the page, and a partner (the Rust test) that acts on the
// cluster. The partner reads one command per line from our stdout and answers with one line.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const BASE = process.env.DASHBOARD;
const TOKEN = process.env.DASHBOARD_TOKEN;
/** Only a failing test waits this long. */
const PATIENCE = 40_000;

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks the partner to do something, and waits until it is done. */
export async function partner(...words) {
  process.stdout.write(`do ${JSON.stringify(words)}\n`);
  const { value, done } = await answers.next();
  if (done) throw new Error("the partner is gone");
  return value;
}

export function say(text) {
  process.stdout.write(`${text}\n`);
}

export function check(condition, what) {
  if (!condition) throw new Error(`not so: ${what}`);
}

/** Waits until `f` returns something true, and returns it. */
export async function until(what, f) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const value = await f();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((done) => setTimeout(done, 30));
  }
}

export async function open() {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, deviceScaleFactor: 1, bypassCSP: false });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const problems = [];
  page.on("pageerror", (error) => problems.push(`error in the page: ${error}`));
  page.on("console", (line) => {
    // The browser itself reports a refused token, a dashboard that is gone, and nodes that did not
    // answer in time on a busy machine.
    if (line.type() === "error" && !/401|503|ERR_CONNECTION|ERR_INCOMPLETE|ERR_NETWORK|ERR_EMPTY/.test(line.text())) problems.push(`console: ${line.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`${BASE}/`)) problems.push(`a request to elsewhere: ${request.url()}`);
    if (request.url().includes(TOKEN)) problems.push("the token is in an address");
  });
  return { browser, context, page, problems };
}

/** Fails if axe finds an accessibility problem. */
export async function axe(page, where) {
  // The policy of the page forbids scripts from elsewhere. A debugger may evaluate them.
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document));
  const lines = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("\n  ")}`);
  check(lines.length === 0, `axe finds nothing (${where}):\n${lines.join("\n")}`);
  say(`axe: ${found.passes.length} rules passed, ${where}`);
}

/** The row of a lock, as text per cell; `null` if it is not there. */
export function row(page, name) {
  return page.evaluate((name) => {
    const lines = [...document.querySelectorAll(".line")];
    const line = lines.find((one) => one.querySelector(".name .text").textContent === name);
    if (!line) return null;
    const text = (cell) => line.querySelector(`.${cell}`).textContent;
    return {
      holder: text("holder"),
      kind: line.querySelector(".kind")?.textContent ?? "",
      left: parseFloat(line.querySelector(".lease-left")?.textContent ?? "NaN"),
      bar: line.querySelector(".lease-bar i")?.style.transform ?? "",
      fence: text("fence"),
      queue: text("queue"),
      marks: [...line.querySelectorAll(".mark")].map((mark) => mark.dataset.mark).join(" "),
    };
  }, name);
}

export async function openLock(page, name) {
  await page.locator(".line", { has: page.locator(".name", { hasText: name }) }).first().click();
  await page.waitForSelector("#details:not([hidden])");
}

export async function shot(page, name) {
  if (!process.env.SHOTS) return;
  await page.screenshot({ path: `${process.env.SHOTS}/${name}.png` });
}

/** Opens the page, gives a wrong token and then the right one. */
export async function logIn(page) {
  await page.goto(`${BASE}/`);
  await page.waitForSelector("#token-dialog[open]");
  await page.fill("#token", "not the token at all");
  await page.keyboard.press("Enter");
  await until("a refusal", async () => (await page.textContent("#token-problem")).includes("refused"));
  await page.fill("#token", TOKEN);
  await page.keyboard.press("Enter");
}

/** Takes the steps one after the other. The first that fails ends the test. */
export async function play({ browser, page, problems }, steps) {
  try {
    for (const [name, step] of Object.entries(steps)) {
      await step().catch(async (error) => {
        if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/failed.png` });
        const text = await page.evaluate(() => document.body.innerText).catch(() => "");
        throw new Error(`${name}: ${error.message}\n--- the page:\n${text.slice(0, 4000)}`);
      });
      check(problems.length === 0, `${name}: ${problems.join("\n")}`);
      say(`ok: ${name}`);
    }
  } catch (error) {
    say(`FAILED ${error.message}`);
    process.exitCode = 1;
  } finally {
    await browser.close();
    process.stdin.destroy();
  }
}
