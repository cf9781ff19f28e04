//! What `-h` says below the options. Kept within 80 columns; a test holds it there.

use clap::Arg;

pub(crate) const TOP: &str = "\
Examples:
  ringfence run nightly-report -- ./report.sh      one at a time on this machine
  ringfence run -n backup -- ./backup.sh           skip it if one is running
  export RINGFENCE_NODES=redis://a,redis://b,redis://c
  ringfence init                                   once, for a new cluster
  ringfence run migrate -- ./migrate.sh            one at a time in the fleet
  ringfence elect scheduler -- ./scheduler         one in the fleet, always
  ringfence status migrate                         who holds it?
  ringfence doctor                                 what is wrong?

Without --nodes locks live in a file of this user's own, so root's cron and
another user's do not exclude each other. To share one on this machine:
  install -d -m 2770 -g GROUP /var/lib/ringfence   a group that all are in
  --nodes sqlite:/var/lib/ringfence/locks.db

Passwords belong into a file that only this user may read: --nodes-file holds
URLs, a line each; --password-file only the password. Not into --nodes: all users
see it in `ps`.

Exit codes:
  64 usage   69 no quorum   70 internal   75 held by another   79 lost
`ringfence COMMAND -h` says more about each command.";

pub(crate) const RUN: &str = "\
The command sees RINGFENCE_NAME, RINGFENCE_TOKEN, RINGFENCE_FENCE and, without
passwords, RINGFENCE_NODES (or RINGFENCE_NODES_FILE, if --nodes-file was given).
The fence is a number that only goes up: hand it to whatever the command writes
to, and refuse a number lower than the last one seen there.

With --permits it also sees RINGFENCE_SLOT, from 0 to N-1: no two that run at
once have the same. Fences then count for each slot by itself. Where some say
--permits 3 and others 4, no more than 4 run at once.

The lock is renewed while the command runs. When that fails, TERM goes to the
command and all its descendants at the lock's deadline less --kill-grace, and
KILL before the deadline.

Signals to ringfence are passed on: INT, QUIT, HUP, TSTP, CONT and WINCH to the
command's process group, as a terminal does, TERM, USR1 and USR2 to the command
alone. After INT, QUIT or TERM the lock is renewed until the command has ended;
if it has not after --stop-grace, it is killed, and a line on stderr says so. A
second such signal shortens the rest to --kill-grace. When the command has ended
after such a signal, or by any, its descendants get TERM and what is left of the
grace. Then the lock is freed.

The command has the terminal; Ctrl-C and Ctrl-Z work. If Ctrl-C or Ctrl-\\ ended
the command, ringfence dies of the same signal, so that a script around it stops
too. If the lock ends while ringfence is stopped, the command is killed.

A second ringfence process, the watchdog, starts the command. If one of the two
is stopped, stalls or is killed with SIGKILL, the command and its descendants
are killed before the lock's deadline, also after a double fork or a change of
user. What remains: if both are stopped or killed at once, descendants may
survive. A process that ringfence may not signal cannot be killed (sudo, unless
ringfence runs as root); it is named on stderr. A process that a service started
for the command is not found (systemd-run, at, docker). On systems other than
Linux only the command's process group is found.

Examples:
  ringfence run nightly-report -- ./report.sh
  ringfence run -n backup -- rsync -a /home /backup      skip it if one runs
  ringfence run -w 5m --ttl 30s deploy -- make deploy    wait 5 minutes at most
  ringfence run --permits 3 encode -- ./encode.sh        three at a time
  ringfence run job -- sh -c 'curl -d fence=$RINGFENCE_FENCE http://…/import'

Exit code: the command's own, or 128+n if signal n ended it; 75 another held the
lock (-E), 79 the lock was lost (--lost-exit-code; with --on-lost ignore the
command's own), 69 no quorum, 64 usage, 70 internal, 126 the command cannot be
run, 127 it was not found.";

pub(crate) const ELECT: &str = "\
The command runs while this process leads, and again when it leads again. It
sees RINGFENCE_NAME, RINGFENCE_TOKEN, RINGFENCE_FENCE (the term, a number that
only goes up) and RINGFENCE_NODES (or RINGFENCE_NODES_FILE), without passwords.

When the command exits by itself the lead is given up and ringfence exits with
its code. When the lead is lost (no majority answers, --max-hold), the command
is ended as with `run`, and ringfence stands again; it then waits for a majority
as long as it takes unless --no-quorum-after is given. INT, TERM and QUIT are
passed on and end both, within --stop-grace; other signals are only passed on.
`ringfence run -h` says more about signals, and about what ends the command if
ringfence itself is stopped or killed.

Examples:
  ringfence elect scheduler -- ./scheduler         one in the fleet, always
  ringfence status scheduler                       who leads, how many wait

Exit code: the command's own, or 128+n if signal n ended it; 75 not elected
within --wait (-E), 79 lost while it was being ended, 69 no quorum, 64 usage,
70 internal, 126 the command cannot be run, 127 it was not found.";

pub(crate) const ACQUIRE: &str = "\
Example:
  token=$(ringfence acquire --ttl 30s deploy) || exit
  ./deploy.sh
  ringfence release deploy --token \"$token\"    # 79: it was lost meanwhile

`ringfence run` renews the lock and stops the command when it is lost; prefer it
where you can.";

pub(crate) const DOCTOR: &str = "\
Each line has a verdict: ok, warning or PROBLEM, and below it what to do. -q
leaves out what is ok. With --json each finding has a word in \"check\" that does
not change. Nothing is written to any node: a new one stays new.

Examples:
  ringfence doctor                  all that can be known
  ringfence doctor -q               only what is wrong
  ringfence doctor orders:42        may our user take this lock?

Exit code: 1 if there is a problem (a node that cannot vote, or no majority),
0 if there is none, 64 usage.";

/// What `elect` says of options that it shares with `run`, where the words of `run` do not fit.
pub(crate) fn of_election(arg: Arg) -> Arg {
    let help = match arg.get_id().as_str() {
        "name" => "The election; it shares its name with the lock",
        "max_hold" => "Lead no longer than this at a time, then stand again",
        "lock_delay" => "After a lost lead nobody leads for this much longer",
        "leftovers" => {
            "What the command left running when it exits: leave, wait (lead until it is \
             gone) or term"
        }
        "conflict_exit_code" => "Exit with this if not elected within the wait",
        _ => return arg,
    };
    arg.help(help)
}
