#!/usr/bin/env python3
"""Runs the examples of all languages against one `ringfence serve` on three real servers.

usage: check.py RINGFENCE [ROUNDS]

Shows that the languages exclude each other (every hand-over is counted, and the fence rises), that
each of them hears of a loss, that a killed client frees its lock at once, that a stopped client
keeps it, and that all clients notice when the service is killed.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
# How long a condition may take on a busy machine.
PATIENCE = 60.0


def main():
    ringfence = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 125
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        started = []
        try:
            check(ringfence, rounds, folder, started)
        finally:
            for process in started:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                process.wait()


def check(ringfence, rounds, folder, started):
    languages = commands(folder)
    nodes = ",".join(f"redis://127.0.0.1:{server(folder, started)}" for _ in range(3))
    environment = dict(os.environ, RINGFENCE_NODES=nodes)
    run = lambda *args: subprocess.run(
        [ringfence, *args], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    made = run("init")
    assert made.returncode == 0, made.stderr
    path = str(folder / "s.sock")

    def start(command, **more):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
        started.append(process)
        return process

    service = start([ringfence, "serve", "--socket", path], env=environment)
    assert "serving locks" in service.stdout.readline()

    # All languages together.
    counter = folder / "counter"
    counter.write_text("0 0")
    clients = {
        name: start([*command, path, "shared", str(counter), str(rounds)])
        for name, command in languages.items()
    }
    for name, client in clients.items():
        said, _ = client.communicate(timeout=PATIENCE * 10)
        assert client.returncode == 0, f"{name}: {client.returncode}: {said}"
    count = int(counter.read_text().split()[0])
    wanted = rounds * len(languages)
    assert count == wanted, f"{wanted} locks were held, but {count} were counted"
    print(f"{count} hand-overs between {len(languages)} languages, fences rising")

    for name, command in languages.items():
        hold = [*command, path, f"of-{name}", "-", "0"]
        # A loss is told.
        client = start(hold)
        assert client.stdout.readline().startswith("held "), name
        broken = run("break", f"of-{name}", "--yes", "--reason", "the test")
        assert broken.returncode == 0, broken.stderr
        said, _ = client.communicate(timeout=PATIENCE)
        assert client.returncode == 79 and said.startswith("lost: "), f"{name}: {said}"
        # A stopped client keeps its lock for longer than its TTL. Killed, it frees it.
        client = start(hold, start_new_session=True)
        assert client.stdout.readline().startswith("held "), name
        os.killpg(client.pid, signal.SIGSTOP)
        before = fence(run, name)
        time.sleep(3)  # Longer than the TTL: this is what is tested.
        assert fence(run, name) == before, f"{name}: a stopped client lost its lock"
        began = time.monotonic()
        os.killpg(client.pid, signal.SIGKILL)
        freed = until_free(path, name, began)
        print(f"{name}: loss told; kept while stopped; free {freed * 1000:.0f} ms after kill -9")

    # A service that is killed.
    clients = {
        name: start([*command, path, f"of-{name}", "-", "0"]) for name, command in languages.items()
    }
    for name, client in clients.items():
        assert client.stdout.readline().startswith("held "), name
    service.kill()
    for name, client in clients.items():
        said, _ = client.communicate(timeout=PATIENCE)
        assert client.returncode == 79 and "lost: " in said, f"{name}: {said}"
    print("kill -9 of the service: every client noticed")


def commands(folder):
    """How each example is started. A language that is missing is named; in CI it is an error."""
    build = lambda *args: subprocess.run(args, check=True, cwd=folder, timeout=600)
    languages, missing = {}, []
    for name, tool, command in [
        ("curl", "jq", ["bash", str(HERE / "hold.sh")]),
        ("python", "python3", [sys.executable, str(HERE / "hold.py")]),
        ("node", "node", ["node", str(HERE / "hold.js")]),
        ("ruby", "ruby", ["ruby", str(HERE / "hold.rb")]),
        ("perl", "perl", ["perl", str(HERE / "hold.pl")]),
        ("php", "php", ["php", str(HERE / "hold.php")]),
        ("go", "go", [str(folder / "hold-go")]),
        ("java", "javac", ["java", "-cp", str(folder), "Hold"]),
    ]:
        if shutil.which(tool) is None:
            missing.append(tool)
            continue
        if name == "go":
            build("go", "build", "-o", str(folder / "hold-go"), str(HERE / "hold.go"))
        if name == "java":
            build("javac", "-d", str(folder), str(HERE / "Hold.java"))
        languages[name] = command
    if missing and os.environ.get("CI"):
        sys.exit(f"CI needs these for the examples in other languages: {' '.join(missing)}")
    if missing:
        print(f"NOT TESTED, because these are missing: {' '.join(missing)}")
    return languages


def server(folder, started):
    """Starts a Redis server on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    started.append(process)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return port
        except OSError:
            assert process.poll() is None, "the port was taken"
            time.sleep(0.02)
    raise AssertionError("redis-server does not answer")


def fence(run, name):
    seen = run("status", f"of-{name}", "--json")
    return json.loads(seen.stdout)["fence"]


def until_free(path, name, began):
    """Waits for the lock as another client, and returns how long it took since `began`."""
    body = json.dumps({"name": f"of-{name}", "wait": "30s"}).encode()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(path)
        head = f"POST /v1/hold HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        lines = client.makefile()
        while '"event":"held"' not in (line := lines.readline()):
            assert line, "the service ended the stream"
        return time.monotonic() - began


if __name__ == "__main__":
    main()
