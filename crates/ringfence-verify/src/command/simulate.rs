//! `ringfence-verify simulate`: runs many schedules, or repeats one of them.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use ringfence::clock::Clock;
use ringfence_verify::invariants::{self, liveness};
use ringfence_verify::simulator::{self, Campaign, Clocks, Layout, Parts};

/// The arguments of `simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// The seed of the only schedule, or of the first one with --schedules or --seconds
    #[arg(long)]
    seed: Option<u64>,
    /// How many schedules to run
    #[arg(long, conflicts_with = "seconds")]
    schedules: Option<u64>,
    /// Run schedules for this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// How the clocks run
    #[arg(long, value_enum, default_value_t = ClocksArg::Usual)]
    clocks: ClocksArg,
    /// What the nodes are
    #[arg(long, value_enum, default_value_t = LayoutArg::Nodes)]
    layout: LayoutArg,
    /// Of the one schedule, only these steps: numbers separated by commas, or `none`
    #[arg(long, requires = "seed")]
    steps: Option<String>,
    /// Of the one schedule, only these faults: numbers separated by commas, or `none`
    #[arg(long, requires = "seed")]
    faults: Option<String>,
    /// Print every message of the one schedule
    #[arg(long, requires = "seed")]
    trace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClocksArg {
    /// Rates that differ by less than the default drift allows
    Usual,
    /// 5 s that last 4.5 s or 5.5 s, 10 s that last 9.5 s or 11.2 s, and a drift set for them
    Debate,
    /// The same clocks with the default drift, which is too small: a violation must be found
    DebateUnprepared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LayoutArg {
    /// Independent nodes
    Nodes,
    /// A single node with a failover behind it, whose address moves
    OneEndpoint,
    /// A single node behind Sentinels
    Sentinels,
}

impl From<LayoutArg> for Layout {
    fn from(arg: LayoutArg) -> Self {
        match arg {
            LayoutArg::Nodes => Self::Nodes,
            LayoutArg::OneEndpoint => Self::OneEndpoint,
            LayoutArg::Sentinels => Self::Sentinels,
        }
    }
}

impl From<ClocksArg> for Clocks {
    fn from(arg: ClocksArg) -> Self {
        match arg {
            ClocksArg::Usual => Self::Usual,
            ClocksArg::Debate => Self::Debate,
            ClocksArg::DebateUnprepared => Self::DebateUnprepared,
        }
    }
}

/// How many schedules run if neither --schedules nor --seconds is given.
const SCHEDULES: u64 = 10_000;

impl SimulateArgs {
    pub(crate) fn run(self) -> ExitCode {
        match (
            self.seed,
            self.schedules.is_some() || self.seconds.is_some(),
        ) {
            (Some(seed), false) => self.one(seed),
            (first, _) => self.many(first.unwrap_or(1)),
        }
    }

    fn one(&self, seed: u64) -> ExitCode {
        let plan = Layout::from(self.layout).plan(seed, self.clocks.into());
        let all = plan.all();
        let (steps, faults) = match (chosen(&self.steps), chosen(&self.faults)) {
            (Ok(steps), Ok(faults)) => (steps.unwrap_or(all.steps), faults.unwrap_or(all.faults)),
            (Err(word), _) | (_, Err(word)) => {
                eprintln!("not the number of a step or a fault: {word}");
                return ExitCode::from(64);
            }
        };
        let parts = Parts {
            steps: steps
                .into_iter()
                .filter(|at| *at < plan.steps.len())
                .collect(),
            faults: faults
                .into_iter()
                .filter(|at| *at < plan.faults.len())
                .collect(),
        };
        print!("seed {seed}\n{}", plan.describe(&parts));
        let run = simulator::run(&plan, &parts, self.trace);
        print!("{}", run.trace);
        print!("{}", run.history.to_json_lines());
        if let Some(open) = liveness::not_judged(&run.history) {
            println!("stopped early: the ends of {open} open calls were not checked");
        }
        match invariants::check(&run.history) {
            Ok(()) => {
                println!("no violation");
                ExitCode::SUCCESS
            }
            Err(violation) => {
                println!("VIOLATION: {violation}");
                ExitCode::FAILURE
            }
        }
    }

    fn many(&self, first: u64) -> ExitCode {
        let clock = Clock::System;
        let end = self.seconds.map(|s| clock.now() + Duration::from_secs(s));
        let schedules = match self.seconds {
            Some(_) => u64::MAX - first,
            None => self.schedules.unwrap_or(SCHEDULES),
        };
        let bar = match self.seconds {
            Some(seconds) => ProgressBar::new(seconds * 1_000)
                .with_style(style("{bar:40} {elapsed_precise} of {wide_msg}")),
            None => ProgressBar::new(schedules).with_style(style(
                "{bar:40} {pos}/{len} schedules, {per_sec}, {eta} left",
            )),
        };
        let (began, done) = (clock.now(), AtomicU64::new(0));
        let campaign = Campaign {
            first,
            schedules,
            clocks: self.clocks.into(),
            layout: self.layout.into(),
        };
        let report = campaign.run(|| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let now = clock.now();
            match (end, self.seconds) {
                (Some(end), Some(seconds)) => {
                    bar.set_position(now.since(began).as_millis() as u64);
                    bar.set_message(format!("{seconds} s, {done} schedules"));
                    now < end
                }
                _ => {
                    bar.inc(1);
                    true
                }
            }
        });
        bar.finish_and_clear();
        println!("{report}");
        println!("in {:.1} s", clock.now().since(began).as_secs_f64());
        match report.failure {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The numbers in `list`, or the first word that is not a number.
fn chosen(list: &Option<String>) -> Result<Option<Vec<usize>>, String> {
    let Some(list) = list else { return Ok(None) };
    if list == "none" {
        return Ok(Some(Vec::new()));
    }
    let numbers = list
        .split(',')
        .map(|word| word.trim().parse().map_err(|_| word.to_owned()));
    numbers.collect::<Result<Vec<usize>, String>>().map(Some)
}
