// The card of a group with Sentinels, in a real browser, through a planned failover.

import { axe, check, logIn, open, partner, play, say, shot, until } from "./page.mjs";

const session = await open();
const { page } = session;
const service = () => page.locator(".card .service").textContent();
const steps = {
  async "the card shows the master, the replicas and what the Sentinels say"() {
    await logIn(page);
    const master = await partner("master");
    await until("a vote", async () => (await page.textContent("#headline")).startsWith("The node votes"));
    await until("the master", async () => (await service()).includes(`3 of 3 Sentinels: ${master} is the master`));
    const lines = page.locator(".card .service li");
    await until("three Sentinels and two replicas", async () => (await lines.count()) === 5);
    await until("the lag", async () => (await service()).match(/lag \d+ s/g)?.length === 2);
    check((await service()).match(/agrees/g).length === 3, await service());
    check((await page.locator(".card").count()) === 1, "one card");
    await axe(page, "Sentinels");
    await shot(page, "dashboard-sentinels");
  },

  async "a failover is shown, with its quarantine"() {
    const master = await partner("fail-over");
    await until("the new master", async () => (await service()).includes(`Sentinels: ${master} is the master`));
    await until("the countdown", async () => /votes in \d/.test(await page.locator(".countdown").textContent()));
    say(`the card: ${await page.locator(".card").innerText()}`);
  },
};
await play(session, steps);
