"""The Python clients behind the line protocol of ../README.md.

usage: peer.py redlock-py|pottery|aioredlock|redis-py|python-redis-lock URL,URL,…
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from urllib.parse import urlparse

# The libraries log refusals; only the answers matter here.
logging.disable(logging.CRITICAL)


class RedlockPy:
    """redlock-py: the reference implementation, one node after the other."""

    def __init__(self, urls):
        import redlock

        self.once = redlock.Redlock(urls, retry_count=1, retry_delay=0.001)
        self.patient = redlock.Redlock(urls, retry_count=1_000_000)

    def acquire(self, name, ttl_ms, wait):
        held = (self.patient if wait else self.once).lock(name, ttl_ms)
        return held or None

    def release(self, held):
        self.once.unlock(held)


class Pottery:
    """pottery: its key is `redlock:NAME`."""

    def __init__(self, urls):
        import pottery
        import redis

        self.pottery = pottery
        self.masters = {redis.Redis.from_url(url) for url in urls}

    def acquire(self, name, ttl_ms, wait):
        lock = self.pottery.Redlock(
            key=name.removeprefix("redlock:"),
            masters=self.masters,
            auto_release_time=ttl_ms / 1000,
        )
        taken = lock.acquire() if wait else lock.acquire(blocking=False)
        return lock if taken else None

    def release(self, held):
        held.release()


class RedisPy:
    """redis-py's own Lock, on one node."""

    def __init__(self, urls):
        import redis

        self.redis = redis.Redis.from_url(urls[0])

    def acquire(self, name, ttl_ms, wait):
        lock = self.redis.lock(name, timeout=ttl_ms / 1000, thread_local=False)
        return lock if lock.acquire(blocking=wait) else None

    def release(self, held):
        held.release()


class PythonRedisLock:
    """python-redis-lock, on one node: its key is `lock:NAME`, its expiry whole seconds."""

    def __init__(self, urls):
        import redis
        import redis_lock

        self.redis_lock = redis_lock
        self.redis = redis.StrictRedis.from_url(urls[0])

    def acquire(self, name, ttl_ms, wait):
        expire = max(1, ttl_ms // 1000)
        lock = self.redis_lock.Lock(self.redis, name.removeprefix("lock:"), expire=expire)
        return lock if lock.acquire(blocking=wait) else None

    def release(self, held):
        held.release()


class Aioredlock:
    """aioredlock on a loop of its own; it renews what it holds."""

    def __init__(self, urls):
        import aioredlock

        self.aioredlock = aioredlock
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        nodes = [{"host": u.hostname, "port": u.port} for u in map(urlparse, urls)]
        self.once = self.run(self.manager(nodes, 1))
        self.patient = self.run(self.manager(nodes, 1_000_000))

    async def manager(self, nodes, retry_count):
        return self.aioredlock.Aioredlock(nodes, retry_count=retry_count)

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def acquire(self, name, ttl_ms, wait):
        manager = self.patient if wait else self.once
        try:
            return manager, self.run(manager.lock(name, lock_timeout=ttl_ms / 1000))
        except self.aioredlock.LockAcquiringError:
            return None

    def release(self, held):
        manager, lock = held
        self.run(manager.unlock(lock))


LIBRARIES = {
    "redlock-py": RedlockPy,
    "pottery": Pottery,
    "aioredlock": Aioredlock,
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
}


def contend(library, name, ttl_ms, ms, witness):
    """Takes the lock repeatedly. The witness is a file that only one client can create."""
    end, entered = time.monotonic() + ms / 1000, 0
    while time.monotonic() < end:
        held = library.acquire(name, ttl_ms, wait=False)
        if held is None:
            time.sleep(0.005)
            continue
        try:
            os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return "broken another client was inside"
        entered += 1
        time.sleep(0.002)
        os.unlink(witness)
        library.release(held)
    return f"entered {entered}"


def together(tasks, work):
    """Runs `work(task)` in `tasks` threads that start at once. Returns the time in microseconds."""
    gate = threading.Barrier(tasks + 1)
    failures = []

    def run(task):
        gate.wait()
        try:
            work(task)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    gate.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return (time.perf_counter() - begun) * 1e6


def again_and_again(library, tasks, ms, name_of, ttl_ms, hold_us):
    """Locks and releases until the time is over. Times the wait, or both if nothing is held."""
    counts, times = [0] * tasks, [[] for _ in range(tasks)]

    def work(task):
        end = time.perf_counter() + ms / 1000
        while (begun := time.perf_counter()) < end:
            held = library.acquire(name_of(task), ttl_ms, wait=True)
            if hold_us:
                times[task].append(time.perf_counter() - begun)
                time.sleep(hold_us / 1e6)
            library.release(held)
            if not hold_us:
                times[task].append(time.perf_counter() - begun)
            counts[task] += 1

    took_us = together(tasks, work)
    return report(counts, took_us, sum(times, []))


def drain(library, tasks, name, ttl_ms, hold_us):
    """All tasks start at once, and each takes the lock once."""

    def work(_task):
        held = library.acquire(name, ttl_ms, wait=True)
        time.sleep(hold_us / 1e6)
        library.release(held)

    return report([1] * tasks, together(tasks, work), [])


def report(counts, took_us, times):
    times.sort()

    def quantile(q):
        return round(times[int((len(times) - 1) * q)] * 1e6, 1) if times else 0

    return json.dumps(
        {"counts": counts, "took_us": round(took_us), "p50_us": quantile(0.5), "p99_us": quantile(0.99)}
    )


def answer(library, held, words):
    match words:
        case ["try", name, ttl_ms]:
            held[:] = [lock for lock in [library.acquire(name, int(ttl_ms), wait=False)] if lock]
            return "held" if held else "refused"
        case ["release"]:
            library.release(held.pop())
            return "released"
        case ["contend", name, ttl_ms, ms, witness]:
            return contend(library, name, int(ttl_ms), int(ms), witness)
        case ["cycles", tasks, ms, prefix, ttl_ms]:
            def name_of(task):
                return f"{prefix}:{task}"
            return again_and_again(library, int(tasks), int(ms), name_of, int(ttl_ms), 0)
        case ["share", tasks, ms, name, ttl_ms, hold_us]:
            return again_and_again(library, int(tasks), int(ms), lambda _: name, int(ttl_ms), int(hold_us))
        case ["drain", tasks, name, ttl_ms, hold_us]:
            return drain(library, int(tasks), name, int(ttl_ms), int(hold_us))
    return f"error unknown command: {' '.join(words)}"


def main():
    library = LIBRARIES[sys.argv[1]](sys.argv[2].split(","))
    held = []
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            reply = answer(library, held, line.split())
        except Exception as failure:
            reply = f"error {failure!r}".replace("\n", " ")
        print(reply, flush=True)
    # Threads of the libraries must not keep the program alive.
    os._exit(0)


main()
