#!/usr/bin/env bash
# Holds a lock of `ringfence serve` with curl and jq.
set -u
path=$1 name=$2 counter=$3 rounds=$4

# Writes the events of a lock. The lock is released when curl ends.
hold() {
    exec curl --silent --no-buffer --unix-socket "$path" http://localhost/v1/hold --data "$1"
}

if ((rounds == 0)); then
    why="the service has gone"
    while read -r event; do
        case $(jq -r .event <<<"$event") in
            held) echo "held $(jq .fence <<<"$event")" ;;
            lost) why=$(jq -r .why <<<"$event") ;;
        esac
    done < <(hold "$(jq -cn --arg name "$name" '{name: $name, ttl: "2s"}')")
    echo "lost: $why"
    exit 79
fi

for ((round = 0; round < rounds; round++)); do
    coproc HOLD { hold "$(jq -cn --arg name "$name" '{name: $name, ttl: "10s"}')"; }
    curl=$HOLD_PID
    while read -r event <&"${HOLD[0]}"; do
        [[ $(jq -r .event <<<"$event") == held ]] || continue
        mine=$(jq .fence <<<"$event")
        read -r count fence <"$counter" || true
        ((mine > fence)) || { echo "the fence $mine is not above $fence"; exit 1; }
        echo "$((count + 1)) $mine" >"$counter"
        break
    done
    kill "$curl"
    wait "$curl" 2>/dev/null || true
done
