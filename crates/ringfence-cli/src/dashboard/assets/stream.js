// The connection to the dashboard: requests with the token, the stream of events, and the clock.

/** The token stays in this tab, and is never part of an address. */
const TOKEN = "ringfence-token";
/** The server writes at least every 2 s. */
const SILENT_MS = 6000;
const RETRY_MS = [500, 1000, 2000, 4000];

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** A request for data. Throws an `Error` whose `status` is the HTTP status. */
export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
  if (response.ok) return response;
  let why = `HTTP ${response.status}`;
  try {
    why = (await response.json()).error || why;
  } catch {
    // Not from us: a proxy, perhaps.
  }
  const error = new Error(why);
  error.status = response.status;
  throw error;
}

/** The moments of the server, in milliseconds since it began. */
export const clock = {
  offset: null,
  /** When the last event arrived, on our own clock. */
  heard: null,
  /** The server's time at which a node last answered. */
  asOf: null,
  learn(nowMs, asOfMs) {
    const offset = performance.now() - nowMs;
    // The smallest delay is the most exact. A machine that slept begins anew.
    if (this.offset === null || offset < this.offset || offset > this.offset + 2000) this.offset = offset;
    this.heard = performance.now();
    this.asOf = asOfMs;
  },
  /** How old the newest thing that is shown is; `null` before the first event. */
  age() {
    if (this.heard === null || this.asOf === null) return null;
    return Math.max(performance.now() - this.offset - this.asOf, 0);
  },
  isFresh() {
    const age = this.age();
    return age !== null && age < 5000 && performance.now() - this.heard < 5000;
  },
  /** The server's present moment; stands still while nothing is heard. */
  now() {
    if (this.offset === null) return 0;
    const now = performance.now() - this.offset;
    return this.isFresh() || this.asOf === null ? now : Math.min(now, this.asOf + 5000);
  },
};

/** Reads events for ever. `onEvent` gets each, `onRefused` is awaited when the token is refused. */
export async function follow(onEvent, onRefused) {
  for (let failures = 0; ; ) {
    try {
      await readEvents((event) => {
        failures = 0;
        onEvent(event);
      });
    } catch (error) {
      if (error.status === 401) {
        await onRefused(token.get() !== null);
        continue;
      }
    }
    const pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    failures += 1;
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function readEvents(onEvent) {
  const abort = new AbortController();
  let silence = setTimeout(() => abort.abort(), SILENT_MS);
  try {
    const response = await request("/api/v1/events", { signal: abort.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENT_MS);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) onEvent(JSON.parse(line));
    }
  } finally {
    clearTimeout(silence);
    abort.abort();
  }
}
