// The dashboard in a real browser, against a real cluster of five nodes.

import { axe, check, logIn, open, openLock, partner, play, row, say, shot, until } from "./page.mjs";

const HOSTILE = `<img src=x onerror="window.hacked=1">`;
const HOSTILE_LABEL = `"><script>window.hacked=1</script>\u202Egnp`;

const { browser, page, problems } = await open();
const steps = {
  async "the page asks for the token"() {
    await logIn(page);
    await until("the headline", async () => (await page.textContent("#headline")).startsWith("All 5 nodes vote."));
    check((await page.locator(".card[data-state=votes]").count()) === 5, "five cards");
    check(await page.evaluate(() => document.cookie === ""), "no cookie");
  },

  async "a lock appears among many other keys, and its bar moves"() {
    await partner("fill", "99000");
    const before = Date.now();
    await partner("hold", "orders:42", "checkout@web-3");
    const seen = await until("the lock", () => row(page, "orders:42"));
    say(`a lock appeared after ${Date.now() - before} ms, its acquisition included`);
    check(seen.holder === "checkout@web-3", seen.holder);
    check(/^\d{16}$/.test(seen.fence), seen.fence);
    // A grant does not wait for all nodes: any three of them may have it by now.
    const marks = seen.marks.split(" ");
    check(marks.length === 5 && marks.filter((mark) => mark === "held").length >= 3, seen.marks);
    await until("the bar to move", async () => (await row(page, "orders:42"))?.bar !== seen.bar);
    await until("the lease to be renewed", async () => {
      const first = (await row(page, "orders:42"))?.left;
      await new Promise((done) => setTimeout(done, 150));
      return (await row(page, "orders:42"))?.left > first;
    });
    await partner("clear");
  },

  async "it is handed over to the waiter"() {
    await partner("queue", "orders:42", "checkout@web-7");
    await until("a waiter", async () => (await row(page, "orders:42"))?.queue === "1 waiting");
    await openLock(page, "orders:42");
    await until("the place in the queue", async () => /1\. [0-9a-f.]+, for \d/.test(await page.textContent("#details")));
    await partner("release", "orders:42");
    await until("the new holder", async () => (await row(page, "orders:42"))?.holder === "checkout@web-7");
    await until("the new holder in the details", async () => (await page.textContent("#details")).includes("checkout@web-7"));
    await until("the mark of a hand-over", () => page.locator(".handover").count());
    await page.keyboard.press("Escape");
    check(await page.isHidden("#details"), "Escape closes the details");
  },

  async "every kind is shown"() {
    await partner("hold", "nightly-report", "cron@batch-1");
    await partner("hold", "payments:settle", "settle@pay-2");
    await partner("share", "catalog", "reader@web-1");
    await partner("share", "catalog", "reader@web-2");
    await partner("permit", "encode", "encoder@gpu-1");
    await partner("permit", "encode", "encoder@gpu-2");
    await partner("lead", "scheduler", "scheduler@node-1");
    await partner("arrive", "deploy-barrier", "web-1");
    await partner("arrive", "deploy-barrier", "web-2");
    await until("readers", async () => (await row(page, "catalog"))?.holder.endsWith(" and 1 more"));
    await until("permits", async () => (await row(page, "encode"))?.queue === "2 of 3 permits");
    await until("arrivals", async () => (await row(page, "deploy-barrier"))?.queue === "2 arrived");
    check((await row(page, "deploy-barrier")).holder === "web-1, web-2", "the parties");
    await until("the term", async () => /^\d{16}$/.test((await row(page, "scheduler"))?.fence ?? ""));
    await openLock(page, "encode");
    await until("slots", async () => /slot0.*slot1/s.test(await page.textContent("#details")));
    await page.keyboard.press("Escape");
  },

  async "hostile names and labels stay text"() {
    await partner("hold", HOSTILE, HOSTILE_LABEL);
    const shown = `"><script>window.hacked=1</script>\\u{202e}gnp`;
    await until("the hostile lock", async () => (await row(page, HOSTILE))?.holder === shown);
    await openLock(page, HOSTILE);
    await until("its details", async () => (await page.textContent("#details h2")) === HOSTILE);
    check((await page.locator("main img, #details img, main script, #details script").count()) === 0, "no element was made of it");
    check(await page.evaluate(() => window.hacked === undefined), "nothing of it ran");
    await page.keyboard.press("Escape");
    await partner("release", HOSTILE);
  },

  async "a node dies and turns red"() {
    await partner("kill", "4");
    const card = page.locator(".card").nth(4);
    await until("the red card", async () => (await card.getAttribute("data-state")) === "down");
    const [red, green] = await card.evaluate((one) => getComputedStyle(one).borderTopColor.match(/\d+/g).map(Number));
    check(red > 2 * green, `red: ${red}, ${green}`);
    await until("the headline", async () => (await page.textContent("#headline")).startsWith("4 of 5 nodes vote, which is enough:"));
    await until("the vote of the dead node", async () => (await row(page, "orders:42"))?.marks.endsWith(" down"));
    await until("the time line", () => page.locator(".span.down").count());
  },

  async "a quarantine counts down"() {
    await partner("restart", "4");
    const left = async () => parseFloat(((await page.locator(".countdown").textContent({ timeout: 30_000 })) ?? "").replace(/\D*/, ""));
    const first = await left();
    check(first > 1 && first <= 36, `${first} s`);
    await until("a lower number", async () => (await left()) < first - 1);
    await until("the time line", () => page.locator(".span.quarantined").count());
    await page.setViewportSize({ width: 1280, height: 1080 });
    await page.locator("h1").click();
    await page.evaluate(() => scrollTo(0, 0));
    await shot(page, "dashboard");
    await page.setViewportSize({ width: 1360, height: 900 });
    await page.emulateMedia({ colorScheme: "dark" });
    await openLock(page, "orders:42");
    await until("votes", () => page.locator(".votes-list li").count());
    await page.evaluate(() => scrollTo(0, 0));
    await shot(page, "dashboard-dark");
    await page.keyboard.press("Escape");
    await page.emulateMedia({ colorScheme: "light" });
  },

  async "a break asks, and works"() {
    await openLock(page, "payments:settle");
    await axe(page, "details");
    await page.click("#break-lock");
    const submit = page.locator("#break-submit");
    check(await submit.isDisabled(), "a break needs a name and a reason");
    await page.fill("#break-reason", "pay-2 is gone");
    await page.fill("#break-confirm", "payments:settl");
    check(await submit.isDisabled(), "a wrong name is not enough");
    await page.fill("#break-confirm", "payments:settle");
    check(await submit.isEnabled(), "the name and a reason are enough");
    await axe(page, "the dialog of a break");
    await submit.click();
    await until("the lock to be free", async () => (await row(page, "payments:settle")) === null);
    check((await partner("lost", "payments:settle")).includes("pay-2 is gone"), "the holder learns the reason");
    await page.keyboard.press("Escape");
  },

  async "the keyboard is enough"() {
    await page.locator("body").click({ position: { x: 5, y: 5 } });
    await page.keyboard.press("/");
    await page.keyboard.type("night");
    await until("one row", async () => (await page.locator(".line").count()) === 1);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await until("the details", async () => (await page.textContent("#details h2")) === "nightly-report");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.waitForSelector("#help-dialog[open]");
    await axe(page, "help");
    await page.keyboard.press("Escape");
    await page.fill("#search", "");
    await until("all rows", async () => (await page.locator(".line").count()) > 4);
    await page.click("[data-id=queue] button");
    check((await page.getAttribute("[data-id=queue]", "aria-sort")) === "ascending", "sorted by queue");
    await page.click("[data-id=name] button");
  },

  async "a phone has no sideways scroll, and dark mode is dark"() {
    await axe(page, "light");
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width: 360, height: 780 });
      const wide = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      await until("the page to fit", async () => (await wide()) <= 0);
      await axe(page, `phone, ${scheme}`);
    }
    const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
    check(back.every((part) => part < 60), `dark: ${back}`);
    await shot(page, "dashboard-phone");
    await page.setViewportSize({ width: 1360, height: 900 });
    await axe(page, "dark");
    await page.emulateMedia({ colorScheme: "light" });
  },

  async "two thousand locks scroll"() {
    await partner("many", "2000");
    await until("all locks", async () => Number(await page.getAttribute("#locks", "aria-rowcount")) > 2000);
    // The processor time of the page's main thread, for the reader: it depends on the machine.
    const debug = await page.context().newCDPSession(page);
    await debug.send("Performance.enable", { timeDomain: "threadTicks" });
    const busy = async () => {
      const { metrics } = await debug.send("Performance.getMetrics");
      return 1000 * metrics.find((one) => one.name === "TaskDuration").value;
    };
    const before = await busy();
    const seen = await page.evaluate(async () => {
      const grid = document.getElementById("locks");
      const took = [];
      let rows = 0, last = performance.now();
      // A notch of a wheel in every frame, then the end.
      for (let step = 1; step <= 100; step += 1) {
        grid.scrollTop = step < 100 ? 120 * step : grid.scrollHeight;
        await new Promise(requestAnimationFrame);
        took.push(performance.now() - last);
        last = performance.now();
        rows = Math.max(rows, document.querySelectorAll(".line").length);
      }
      const grids = grid.getBoundingClientRect();
      const lines = [...document.querySelectorAll(".line")].filter((one) => one.getBoundingClientRect().top < grids.bottom);
      took.sort((one, other) => one - other);
      return { median: took[50], longest: took[99], rows, end: lines.map((one) => one.dataset.key) };
    });
    const each = ((await busy()) - before) / 100;
    say(`2,000 locks: a frame took ${seen.median.toFixed(0)} ms, the longest of 100 ${seen.longest.toFixed(0)} ms, with ${each.toFixed(1)} ms of processor time each; at most ${seen.rows} rows existed`);
    check(seen.rows < 60, `${seen.rows} rows`);
    check(seen.end.length > 5, "rows at the end");
    await page.fill("#search", "lock 1234");
    await until("one of them", async () => (await page.locator(".line").count()) === 1);
    await page.fill("#search", "");
  },

  async "it says so when it has lost touch"() {
    await partner("end-dashboard");
    await until("the age", async () => /^as of \d.* ago$/.test(await page.textContent("#fresh")));
    check(await page.evaluate(() => document.body.classList.contains("stale")), "the page looks stale");
  },
};

await play({ browser, page, problems }, steps);
