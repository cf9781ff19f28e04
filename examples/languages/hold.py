"""Holds a lock of `ringfence serve`. Needs only Python's standard library."""
import contextlib
import http.client
import json
import socket
import sys


@contextlib.contextmanager
def hold(path, order):
    """The events of a lock. Leaving the `with` closes the connection, which releases the lock."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("POST", "/v1/hold", json.dumps(order))
    with contextlib.closing(connection), connection.getresponse() as answer:
        if answer.status != 200:
            sys.exit(answer.read().decode())
        yield (json.loads(line) for line in answer)


path, name, counter, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

if rounds == 0:  # Hold the lock until it is lost.
    why = "the service has gone"
    with contextlib.suppress(OSError, http.client.HTTPException):
        with hold(path, {"name": name, "ttl": "2s"}) as events:
            for event in events:
                if event["event"] == "held":
                    print("held", event["fence"], flush=True)
                elif event["event"] == "lost":
                    why = event["why"]
    print("lost:", why)
    sys.exit(79)

for _ in range(rounds):
    with hold(path, {"name": name, "ttl": "10s"}) as events:
        held = next(event for event in events if event["event"] == "held")
        with open(counter) as file:
            count, fence = map(int, file.read().split())
        if held["fence"] <= fence:
            sys.exit(f"the fence {held['fence']} is not above {fence}")
        with open(counter, "w") as file:
            file.write(f"{count + 1} {held['fence']}")
