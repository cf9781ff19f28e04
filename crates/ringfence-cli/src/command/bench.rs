//! `ringfence bench`: measures locks on the user's own nodes, for a few seconds.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringfence::Locks;
use ringfence::clock::Clock;
use serde_json::{Value, json};
use tokio::task::LocalSet;

use super::CommandContext;
use crate::args::{BenchArgs, DEFAULT_TTL};
use crate::duration;
use crate::exit::Exit;
use crate::report::{CliFailure, ask, many, wrapped};

/// How many tasks take locks at once, in each measurement.
const TASKS: [usize; 2] = [1, 64];
/// A lock and its release are two requests to each node.
const REQUESTS_PER_LOCK: u64 = 2;
/// How often the progress is drawn.
const TICK: Duration = Duration::from_millis(100);

/// What one measurement showed.
struct Measurement {
    tasks: usize,
    took: Duration,
    /// How long each `lock()` took, sorted.
    locks: Vec<Duration>,
}

pub(super) async fn bench(context: &CommandContext, args: BenchArgs) -> Result<Exit, CliFailure> {
    let nodes = context.locks.nodes().await.len() as u64;
    let each = args.duration / TASKS.len() as u32;
    let most = args.requests / (REQUESTS_PER_LOCK * nodes) / TASKS.len() as u64;
    if !args.yes {
        let question = format!(
            "This sends up to {} requests to {} in {}.\nOther users of these servers may \
             notice it. It only uses names that begin with\n`ringfence-bench:`. Begin? [y/N]",
            args.requests,
            many(nodes, "node"),
            duration::show(args.duration),
        );
        let unasked = "there is no terminal to ask at: use --yes to go on without a question";
        ask(&question, unasked, "nothing was measured").await?;
    }
    let bar = progress(context, args.duration);
    // Two runs at once must not wait for each other.
    let run = format!("ringfence-bench:{}", std::process::id());
    let mut measured = Vec::new();
    for tasks in TASKS {
        bar.set_message(many(tasks as u64, "task"));
        let name = |task| format!("{run}:{tasks}:{task}");
        let names = (0..tasks).map(name).collect();
        measured.push(measure(&context.locks, names, each, most.max(1), &bar).await?);
    }
    bar.finish_and_clear();
    let value = json!({
        "nodes": nodes,
        "measurements": measured.iter().map(Measurement::json).collect::<Vec<_>>(),
    });
    context.report.result(&text(&measured, nodes), &value)?;
    Ok(Exit::Success)
}

/// Takes and releases each of `names` again and again, each in a task of its own, for `span` or
/// until `most` locks were taken. Dropping the future releases what is held.
async fn measure(
    locks: &Locks,
    names: Vec<String>,
    span: Duration,
    most: u64,
    bar: &ProgressBar,
) -> Result<Measurement, CliFailure> {
    let clock = Clock::System;
    let (began, left) = (clock.now(), Rc::new(Cell::new(most)));
    let end = began + span;
    let set = LocalSet::new();
    let tasks: Vec<_> = names
        .iter()
        .map(|name| {
            let (lock, left) = (locks.mutex(name), Rc::clone(&left));
            set.spawn_local(async move {
                let mut taken = Vec::new();
                while Clock::System.now() < end && left.get() > 0 {
                    left.set(left.get() - 1);
                    let t0 = Clock::System.now();
                    let guard = lock.lock().await?;
                    taken.push(Clock::System.now().since(t0));
                    // A release that no majority confirmed shows in the next lock.
                    let _ = guard.release().await;
                }
                Ok::<_, CliFailure>(taken)
            })
        })
        .collect();
    let tick = async {
        loop {
            tokio::time::sleep(TICK).await;
            bar.inc(TICK.as_millis() as u64);
        }
    };
    let work = async {
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.map_err(io::Error::other)??);
        }
        Ok::<_, CliFailure>(all)
    };
    let mut durations = tokio::select! {
        done = set.run_until(work) => done?,
        () = tick => unreachable!("the progress has no end"),
    };
    durations.sort_unstable();
    Ok(Measurement {
        tasks: names.len(),
        took: clock.now().since(began),
        locks: durations,
    })
}

impl Measurement {
    /// Locks, with their releases, in a second.
    fn rate(&self) -> f64 {
        self.locks.len() as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    /// The time within which this share of the locks was taken.
    fn percentile(&self, percent: usize) -> Duration {
        let at = (self.locks.len() * percent / 100).min(self.locks.len().saturating_sub(1));
        self.locks.get(at).copied().unwrap_or_default()
    }

    fn json(&self) -> Value {
        let micros = |percent| self.percentile(percent).as_micros() as u64;
        json!({
            "tasks": self.tasks,
            "locks": self.locks.len(),
            "locks_per_second": self.rate().round(),
            "lock_p50_us": micros(50),
            "lock_p99_us": micros(99),
        })
    }
}

/// The bar on a terminal; hidden elsewhere.
fn progress(context: &CommandContext, span: Duration) -> ProgressBar {
    let report = context.report;
    let target = match io::stderr().is_terminal() && !report.json && !report.quiet {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(span.as_millis() as u64), target);
    let style = ProgressStyle::with_template("{msg:10} [{bar:40}] {percent:>3} %");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// The table, and what it means.
fn text(measured: &[Measurement], nodes: u64) -> String {
    let mut text = format!(
        "{:<8}{:>12}{:>14}{:>14}\n",
        "tasks", "locks/s", "lock p50", "lock p99"
    );
    for one in measured {
        let shown = |percent| millis(one.percentile(percent));
        text += &format!(
            "{:<8}{:>12.0}{:>14}{:>14}\n",
            one.tasks,
            one.rate(),
            shown(50),
            shown(99)
        );
    }
    let (one, all) = (&measured[0], &measured[measured.len() - 1]);
    let ttl = (one.percentile(99) * ROUNDS_PER_TTL).max(Duration::from_secs(1));
    let mut meaning = format!(
        "One task takes and releases {:.0} locks in a second, one after the other; {} tasks with a \
         name each take {:.0}. Half of the single locks took {} or less, one in 100 took longer \
         than {}. A lock with its release is two requests to each of {}. A renewal takes \
         about as long as a lock: choose a TTL of {} or more.",
        one.rate(),
        all.tasks,
        all.rate(),
        millis(one.percentile(50)),
        millis(one.percentile(99)),
        many(nodes, "node"),
        duration::show_ceil(ttl),
    );
    if ttl > DEFAULT_TTL {
        meaning += " That is slow: see `ringfence doctor`, and the load of the servers.";
    }
    meaning += " No lock of the measurement is held any more; its records expire by themselves.";
    format!("{text}\n{}", wrapped(&meaning, 80).join("\n"))
}

/// How many slow rounds fit into a good TTL: three renewals, each with room for ten times that.
const ROUNDS_PER_TTL: u32 = 30;

fn millis(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1000.0)
}
