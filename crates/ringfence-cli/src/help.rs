//! The text that `-h` prints below the options: examples, signals, exit codes.
//!
//! A test checks that no line is wider than 80 columns. The options themselves are in `args/`.

use clap::Arg;

pub(crate) const TOP: &str = "\
Examples:
  ringfence run nightly-report -- ./report.sh      one at a time on this machine
  ringfence run -n backup -- ./backup.sh           skip it if one is running
  export RINGFENCE_NODES=redis://a,redis://b,redis://c
  ringfence init                                   once, for a new cluster
  ringfence run migrate -- ./migrate.sh            one at a time in the fleet
  ringfence elect scheduler -- ./scheduler         exactly one in the fleet
  ringfence status migrate                         who holds the lock?
  ringfence ls                                     what is held?
  ringfence doctor                                 what is wrong?
  ringfence dashboard                              see it in the browser

Without --nodes, locks are in a file that belongs to the current user. So the
cron jobs of root and of another user do not exclude each other. To share one
file between the users of this machine:
  install -d -m 2770 -g GROUP /var/lib/ringfence   all users are in GROUP
  --nodes sqlite:/var/lib/ringfence/locks.db

Put passwords into a file that only this user may read. --nodes-file contains
URLs, one per line; --password-file contains only the password. Do not put a
password into --nodes: `ps` shows it to all users.

Exit codes:
  64 usage   69 no quorum   70 internal   75 another client holds it   79 lost
`ringfence COMMAND -h` explains each command.";

pub(crate) const BREAK: &str = "\
Examples:
  ringfence break nightly --reason 'host-7 is gone'
  ringfence break orders --yes --raise-mark redis://data --resource orders:42

Only the holder that is shown is broken, not one that comes later. Readers that
share the lock are all broken, unless --reader names one. A lock that
--hold-at-least keeps can be broken too. Nodes remember the break for 7 days.

A process that is paused does not know that its lock was broken, and may write
when it goes on. Only the resource itself can refuse it, by its fence.

Exit codes: 75 not broken: it changed hands, or you said no; 69 no quorum";

pub(crate) const SERVE: &str = "\
A client holds a lock for as long as its request is open:
  curl -N --unix-socket $XDG_RUNTIME_DIR/ringfence.sock http://localhost/v1/hold \\
    --json '{\"name\": \"nightly\", \"ttl\": \"10s\", \"wait\": \"5s\"}'
  {\"event\": \"held\", \"fence\": ..., \"remaining_ms\": ...}

The client releases the lock by closing the connection, also by being killed. A
client that is stopped keeps the lock; it has to look at its deadline before it
goes on. If the service ends a stream, or is killed, the lock ends with its
lease. GET /v1/openapi.json describes all requests.

SIGTERM: takes no new locks, waits --stop-grace for the holders, and ends.
SIGHUP: reads the config again. New requests use it.";

pub(crate) const RUN: &str = "\
The environment of the command has RINGFENCE_NAME, RINGFENCE_TOKEN,
RINGFENCE_FENCE and RINGFENCE_NODES without passwords (RINGFENCE_NODES_FILE if
--nodes-file was given). The fence is a number that only goes up. Pass it to the
resource that the command writes to, and let the resource refuse a number that
is lower than the last one it saw.

With --permits the command also gets RINGFENCE_SLOT, from 0 to N-1. Two commands
that run at the same time have different slots. Each slot has its own series of
fences. If some clients use --permits 3 and others 4, at most 4 run at once.

ringfence renews the lock while the command runs. If that fails, the command and
all its descendants get TERM --kill-grace before the lock's deadline, and KILL
before the deadline.

Signals to ringfence are forwarded: INT, QUIT, HUP, TSTP, CONT and WINCH to the
command's process group, as a terminal does; TERM, USR1 and USR2 to the command
only. After INT, QUIT or TERM ringfence renews the lock until the command has
ended. If it has not ended after --stop-grace, ringfence kills it and writes a
line to stderr. A second such signal shortens the remaining time to
--kill-grace. If the command ended after such a signal, or was killed by any
signal, its descendants get TERM and the rest of the grace. Then the lock is
released.

The command owns the terminal; Ctrl-C and Ctrl-Z work. If Ctrl-C or Ctrl-\\ ended
the command, ringfence dies of the same signal, so that the calling script stops
too. If the lock ends while ringfence is stopped, the command is killed.

A second ringfence process, the watchdog, starts the command. If ringfence is
stopped or stalls, or one of the two is killed with SIGKILL, the command and its
descendants are killed before the lock's deadline, also after a double fork or a
change of user. A stopped watchdog is continued.
Limits: If both are stopped or killed at once, descendants may survive. A
process that ringfence may not signal cannot be killed (sudo, unless ringfence
runs as root); stderr names it. A process that a service started for the command
is not found (systemd-run, at, docker). On systems other than Linux only the
command's process group is found.

Examples:
  ringfence run nightly-report -- ./report.sh
  ringfence run -n backup -- rsync -a /home /backup      skip it if one runs
  ringfence run -w 5m --ttl 30s deploy -- make deploy    wait 5 minutes at most
  ringfence run --permits 3 encode -- ./encode.sh        three at a time
  ringfence run job -- sh -c 'curl -d fence=$RINGFENCE_FENCE http://…/import'

Exit code: that of the command, or 128+n if signal n ended it; 75 another client
held the lock (-E), 79 the lock was lost (--lost-exit-code; with --on-lost
ignore that of the command), 69 no quorum, 64 usage, 70 internal, 126 the
command cannot be executed, 127 the command was not found.";

pub(crate) const ELECT: &str = "\
The command runs while this process is the leader. If the process loses the
election and wins it again, the command starts again. Its environment has
RINGFENCE_NAME, RINGFENCE_TOKEN, RINGFENCE_FENCE (the term, a number that only
goes up) and RINGFENCE_NODES (or RINGFENCE_NODES_FILE), without passwords.

When the command exits by itself, ringfence resigns and exits with its code.
When the leadership is lost (no majority answers, --max-hold), the command is
ended as with `run`, and ringfence campaigns again. It then waits for a majority
without limit, unless --no-quorum-after is given. INT, TERM and QUIT are
forwarded and end both processes, within --stop-grace; other signals are only
forwarded. `ringfence run -h` explains signals, and what ends the command if
ringfence itself is stopped or killed.

Examples:
  ringfence elect scheduler -- ./scheduler         exactly one in the fleet
  ringfence status scheduler                       who leads, how many wait

Exit code: that of the command, or 128+n if signal n ended it; 75 not elected
within --wait (-E), 79 lost while the command was being ended, 69 no quorum,
64 usage, 70 internal, 126 the command cannot be executed, 127 the command was
not found.";

pub(crate) const ACQUIRE: &str = "\
Example:
  token=$(ringfence acquire --ttl 30s deploy) || exit
  ./deploy.sh
  ringfence release deploy --token \"$token\"    # exits 79 if the lock was lost

The token tells `extend` and `release` what was taken, also with --shared and
--permits. Prefer `ringfence run`: it renews the lock, and stops the command if
the lock is lost.

Exit code: 0, 75 another client holds the lock, 69 no quorum, 64 usage.";

pub(crate) const STATUS: &str = "\
Examples:
  ringfence status                       the nodes, and whether each votes
  ringfence status nightly-report        who holds this lock, since when
  ringfence status --exit-code deploy    for scripts: is it free?

Since when a lock is held follows from its fence, by the clocks of the nodes.
How many parties a latch needs is known only to its clients.

Exit code: 0; with --exit-code 75 if the lock or all permits are held. 69 if too few
nodes vote, or to tell whether the lock is held. 64 usage.";

pub(crate) const LS: &str = "\
Examples:
  ringfence ls                           all locks that are held or queued for
  ringfence ls 'orders:*'                only names that begin with orders:
  ringfence ls --watch                   draw the list again and again
  ringfence ls --json | jq -r .name      one JSON object per line
  ringfence ls --broken                  who broke which lock, when and why

LEASE is the time left unless the holder renews the lock. VOTES is how many nodes
have this holder. Plain locks and those of other libraries have no record, so they
are not listed. The search takes at most 1 % of the time of a server, and reading
what it found comes on top: among few other keys it takes seconds, among a million
minutes.

Without a majority the list shows what the nodes have that answer, and says so.

Exit code: 0, 69 if no majority of the nodes votes, 64 usage.";

pub(crate) const WATCH: &str = "\
Example:
  ringfence watch nightly-report
     0 ms  held by web-1:4711 (fence 1763371234567890)
   12.3 s  web-1:4711 (fence 1763371234567890) is gone
   12.3 s  taken by web-2:815 (fence 1763371246890123)

\"the fence rose\": between two looks a client asked for the lock, and may have held
it. \"unknown\": too few nodes vote to tell who holds it. Ctrl-C ends it.

Exit code: 0 if its reader has gone, 128+n if signal n ended it, 69 if no node
answers at the beginning, 64 usage.";

pub(crate) const CONFIG: &str = "\
A config file has the nodes and the defaults of options:
  nodes = [\"redis://a\", \"redis://b\", \"redis://c\"]   # or nodes-file = \"FILE\"
  ttl = \"30s\"
  [[lock]]                   # for the names that fit the pattern
  name = \"backup-*\"          # * is any text, ? one character
  wait = \"5m\"

Keys: nodes or nodes-file, password-file; and for all names or under [[lock]]:
ttl, wait, no-quorum-after, max-hold, lock-delay, kill-grace, stop-grace, label.
Of several [[lock]] tables that fit, the first one with the key counts.

A flag goes before the environment, the environment before a file, and the
user's file before the system's. With --config or RINGFENCE_CONFIG, only that
file is read. A file with a password must not be readable by every user.

Files:
  $XDG_CONFIG_HOME/ringfence/config.toml   the user's (default: in ~/.config)
  /etc/ringfence/config.toml               the system's

Examples:
  ringfence config                  what is in force
  ringfence config backup-db        what is in force for this lock

Exit code: 0, or 64 if a file has a mistake; the error names the line.";

pub(crate) const BENCH: &str = "\
It only uses names that begin with `ringfence-bench:`, and releases every lock,
also after Ctrl-C. What the nodes remember of these names expires by itself.
Measure from the machine that will take the locks: the network is what counts.

Examples:
  ringfence bench                        ask, then measure for 6 s
  ringfence bench --yes --duration 30s   measure for longer, do not ask

Exit code: 0, 69 no quorum, 75 you said no, 64 usage.";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  source <(ringfence completions bash)           in ~/.bashrc
  source <(ringfence completions zsh)            in ~/.zshrc
  ringfence completions fish | source            in config.fish

The names of locks come from `ringfence ls`, with the nodes of the environment
or the config file; --nodes on the command line is not considered.";

pub(crate) const DOCTOR: &str = "\
Each line has a verdict: ok, note, warning or PROBLEM. Below it is what to do.
A note is something that this user may not see or do; nothing is wrong. -q
leaves out ok and note. With --json each finding has a name in \"check\" that
does not change between versions. The doctor writes nothing to any node, unless
--try tells it to take a lock of its own. Without --try, \"locks can be taken\" means
that the nodes report no reason against it.

Examples:
  ringfence doctor                  check everything
  ringfence doctor -q               show only what is wrong
  ringfence doctor orders:42        may our user take this lock?
  ringfence doctor --replicas       also compare the clocks of the replicas
  ringfence doctor --try            take a lock, and release it

Exit code: 1 if there is a problem (a node that cannot vote, or no majority),
0 if there is none, 64 usage.";

pub(crate) const DASHBOARD: &str = "\
The page shows every node, every lock with holders, leases, fences and queue, and
a time line of the last 15 minutes. /metrics is for Prometheus, /healthz for
probes, /api/v1/openapi.json describes the JSON. One process reads the nodes for
all viewers, writes nothing to them, and needs only the look-only ACL user.

Requests must name this host, which stops web pages of other sites. Behind a
proxy, name the proxy's host with --allowed-host. With --token-file the page asks
for the token, and every request for data needs `Authorization: Bearer TOKEN`.
There is no TLS: other machines should reach it through a proxy that has it.

Examples:
  ringfence dashboard                                   http://127.0.0.1:7471/
  openssl rand -hex 24 > token && chmod 600 token
  ringfence dashboard --token-file token --allow-break
  ringfence dashboard --listen 0.0.0.0:7471 --token-file token \\
      --allowed-host locks.example.com                  behind a proxy

It starts, and runs on, also if no node answers. Exit code: 64 usage";

/// Replaces the help of those options of `elect` that `run` has too and explains differently.
pub(crate) fn of_election(arg: Arg) -> Arg {
    let help = match arg.get_id().as_str() {
        "name" => "The name of the election, which is also the name of its lock",
        "max_hold" => "Lead no longer than this at a time, then campaign again",
        "lock_delay" => "After a lost leadership, no candidate leads for this much longer",
        "leftovers" => {
            "Processes that run on after the command exits: leave, wait (lead until they \
             end) or term"
        }
        "conflict_exit_code" => "Exit with this code if not elected within the wait",
        "command" => return arg.required(false).required_unless_present("http"),
        _ => return arg,
    };
    arg.help(help)
}
