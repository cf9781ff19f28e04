//! What metrics add to the processor time of a lock: the same work with and without, in turn.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_testkit::Fleet;
use rustix::time::{ClockId, clock_gettime};

use crate::sheet::{Aim, Cell, Sheet};

/// How many tasks take locks, each with a name of its own.
const TASKS: usize = 64;
/// Before it counts, each task takes as many locks.
const WARM_UP: usize = 50;

/// One way to build and run the work.
struct Contender {
    name: &'static str,
    program: PathBuf,
    exporter: bool,
    /// Processor time of the client per lock and release, in microseconds, round by round.
    costs: Vec<f64>,
}

pub(crate) fn measure(nodes: usize, rounds: usize, ms: u64, without: Option<&Path>) -> Vec<Sheet> {
    if cfg!(not(feature = "metrics")) {
        println!("\nmetrics: not measured, build with --features metrics");
        return Vec::new();
    }
    let fleet = Fleet::start(nodes);
    let urls = fleet.urls_without_quarantine();
    let this = env::current_exe().expect("this program");
    let contender = |name, program: &Path, exporter| Contender {
        name,
        program: program.to_owned(),
        exporter,
        costs: Vec::new(),
    };
    let mut contenders = vec![
        contender("with an exporter", &this, true),
        contender("without a recorder", &this, false),
    ];
    contenders.extend(without.map(|program| contender("without the feature", program, false)));
    for round in 0..=rounds {
        contenders.rotate_left(1);
        for contender in &mut contenders {
            let cost = contender.run(&urls, ms);
            // The first round loads scripts.
            if round > 0 {
                contender.costs.push(cost);
            }
        }
    }
    contenders.sort_by_key(|contender| (!contender.exporter, contender.name));
    vec![sheet(nodes, &contenders)]
}

fn sheet(nodes: usize, contenders: &[Contender]) -> Sheet {
    let title = format!("Metrics: {nodes} nodes, {TASKS} tasks, processor time of the client");
    let mut sheet = Sheet::new("metrics", title, &["µs per lock + release", "ratio"]);
    let metered = &contenders[0];
    for contender in contenders {
        // Rounds of the same number ran one after the other.
        let pairs = metered.costs.iter().zip(&contender.costs);
        let ratios: Vec<f64> = pairs.map(|(with, other)| with / other).collect();
        let ratio = Cell::of(ratios);
        sheet.row(
            contender.name,
            vec![Cell::of(contender.costs.iter().copied()), ratio],
        );
        if contender.name != metered.name {
            sheet.judge(
                format!("with an exporter, against {}", contender.name),
                ratio.map(|ratio| ratio.median),
                Aim::AtMost(1.02),
            );
        }
    }
    sheet
}

impl Contender {
    fn run(&self, urls: &str, ms: u64) -> f64 {
        let mut command = Command::new(&self.program);
        command.args(["spend", urls, &ms.to_string()]);
        if self.exporter {
            command.arg("--exporter");
        }
        let done = command.output().expect("the program runs");
        let cost = String::from_utf8_lossy(&done.stdout);
        cost.trim().parse().expect("it prints what a lock cost")
    }
}

/// The work: takes and releases locks for `ms`, and prints the processor time of each in
/// microseconds.
pub(crate) fn spend(urls: &str, ms: u64, exporter: bool) -> ExitCode {
    let upkeep = exporter.then(install);
    let cost = crate::runtime().block_on(async {
        let locks = Locks::connect(urls).await.expect("a client");
        take_locks(&locks, Some(WARM_UP), Duration::MAX).await;
        let before = processor_time();
        let taken = take_locks(&locks, None, Duration::from_millis(ms)).await;
        // What an exporter does later with what it was told counts too.
        if let Some(upkeep) = &upkeep {
            upkeep();
        }
        let spent = processor_time().saturating_sub(before);
        spent.as_secs_f64() * 1e6 / taken as f64
    });
    println!("{cost}");
    ExitCode::SUCCESS
}

async fn take_locks(locks: &Locks, count: Option<usize>, span: Duration) -> usize {
    let begun = Clock::System.now();
    let tasks = (0..TASKS).map(|task| {
        let lock = locks.mutex(format!("bench:{task}"));
        tokio::spawn(async move {
            let mut taken = 0;
            while count.is_none_or(|count| taken < count) && Clock::System.now().since(begun) < span
            {
                let guard = lock.lock().await.expect("a lock");
                guard.release().await.expect("a release");
                taken += 1;
            }
            taken
        })
    });
    let mut taken = 0;
    for task in tasks.collect::<Vec<_>>() {
        taken += task.await.expect("no panic");
    }
    taken
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Installs an exporter, and returns its upkeep.
#[cfg(feature = "metrics")]
fn install() -> Box<dyn Fn()> {
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
    let buckets = [0.001, 0.01, 0.1, 1.0, 10.0];
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &buckets);
    let handle = builder.expect("there are buckets").install_recorder();
    let handle = handle.expect("the only recorder");
    Box::new(move || handle.run_upkeep())
}

#[cfg(not(feature = "metrics"))]
fn install() -> Box<dyn Fn()> {
    panic!("this program was built without the feature `metrics`");
}
