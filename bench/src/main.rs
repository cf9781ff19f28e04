//! What ringfence costs, measured side by side with other lock clients on real servers of this
//! machine. Figures are ratios within one run: the contenders run in turn, round by round, so that
//! a noisy machine affects all of them.
//!
//! ```text
//! cargo run --release --manifest-path bench/Cargo.toml -- --nodes 5
//! ```

mod arena;
mod cost;
mod distance;
mod figures;
mod plot;
mod sheet;
mod times;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use ringfence_peers::Library;
use serde_json::json;

use figures::{
    builds, drain, embedded, file_queue, growth, hand_over, hung_node, idle, latency, metrics,
    network, quorums, renewal, sentinel, storm, throughput, turns,
};
use sheet::Sheet;

/// All clients, in the order of the tables. Clients that support one node take part only on one
/// node.
pub(crate) const ALL: [Library; 14] = [
    Library::Ringfence,
    Library::RingfencePlain,
    Library::Rslock,
    Library::Redsync,
    Library::Redislock,
    Library::Redlock,
    Library::RedlockPy,
    Library::Pottery,
    Library::RedisPy,
    Library::PythonRedisLock,
    Library::RedissonLock,
    Library::RedissonFairLock,
    Library::RedissonFencedLock,
    Library::RedissonRedLock,
];

/// What ringfence costs, side by side with other lock clients on servers of this machine
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    /// How many servers, where the figure does not say otherwise
    #[arg(long, default_value_t = 5)]
    nodes: usize,
    /// How many rounds of each contender, in turn
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long a round lasts, in milliseconds
    #[arg(long, default_value_t = 1000)]
    ms: u64,
    /// What to measure; everything by default. May be repeated
    #[arg(long, value_enum)]
    only: Vec<Figure>,
    /// For the figure `metrics`: this program, built without the feature `metrics`
    #[arg(long, value_name = "PROGRAM")]
    without: Option<PathBuf>,
    /// For the figure `embedded`: the program `ringfence`; the one beside this program by default
    #[arg(long, value_name = "PROGRAM")]
    tool: Option<PathBuf>,
    /// The folder for the JSON and the pictures
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What else this program does: mostly for itself, when it starts itself again.
#[derive(Debug, Subcommand)]
enum Role {
    /// Compare this build of ringfence with another one, in turn
    Against {
        /// The program `ringfence-bench` of the other build
        program: PathBuf,
        /// How many rounds of each build
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// How long a round lasts, in milliseconds
        #[arg(long, default_value_t = 300)]
        ms: u64,
    },
    /// Many tasks that want one name and give up soon, on 1 and 3 nodes
    Storm {
        /// How long each run lasts
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// The tasks of a storm
    #[command(hide = true)]
    StormClient {
        #[arg(value_enum)]
        how: storm::GivesUp,
        seconds: u64,
        urls: String,
    },
    /// A client behind the line protocol of `peers/README.md`
    #[command(hide = true)]
    Serve { library: String, urls: String },
    /// Callers that take one lock repeatedly
    #[command(hide = true)]
    Work {
        urls: String,
        name: String,
        callers: usize,
    },
    /// Callers that take locks for a while, and their processor time
    #[command(hide = true)]
    Spend {
        urls: String,
        ms: u64,
        /// Install an exporter first
        #[arg(long)]
        exporter: bool,
    },
    /// Many locks that are held and renewed
    #[command(hide = true)]
    Hold { count: usize, urls: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Many tasks, each with its own name, compared with all clients and with the limit
    Throughput,
    /// One task, on 1, 3 and 5 nodes
    Latency,
    /// One task on a master under Sentinel, compared with the same master by its own address
    Sentinel,
    /// Servers at a distance of 0.5 ms, with 1 % of the segments 20 ms late
    Network,
    /// Five nodes, one of them 50 ms away
    SlowNode,
    /// One node that does not answer
    HungNode,
    /// Sixteen tasks that take one name repeatedly, on 1 node and on all
    HandOver,
    /// The same in four processes
    HandOverProcesses,
    /// Sixty-four tasks that start at once, on 1 and 5 nodes
    Drain,
    /// From one release to the next grant, with many waiters in several processes
    Turns,
    /// What waiters cost while nothing changes
    Idle,
    /// Ten thousand and a hundred thousand guards that renew themselves
    Renewal,
    /// How the cost of a lock grows with nodes, tasks, waiters and names
    Growth,
    /// Names spread over several quorums
    Quorums,
    /// Up to 5,000 waiters on one name of an embedded file
    FileQueue,
    /// The embedded file, and the whole command compared with flock(1)
    Embedded,
    /// What metrics add to the processor time of a lock (needs the feature `metrics`)
    Metrics,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.role {
        Some(Role::Serve { library, urls }) => {
            return ringfence_peers::serve::main([library.clone(), urls.clone()].into_iter());
        }
        Some(Role::Work {
            urls,
            name,
            callers,
        }) => runtime().block_on(worker::work(urls, name, *callers)),
        Some(Role::Against {
            program,
            rounds,
            ms,
        }) => print!("{}", builds::measure(program, *rounds, *ms).text()),
        Some(Role::Storm { seconds }) => {
            let sheets = storm::measure(*seconds);
            sheets.iter().for_each(|sheet| print!("{}", sheet.text()));
        }
        Some(Role::StormClient { how, seconds, urls }) => {
            runtime().block_on(storm::client(*how, *seconds, urls));
        }
        Some(Role::Spend { urls, ms, exporter }) => {
            return metrics::spend(urls, *ms, *exporter);
        }
        Some(Role::Hold { count, urls }) => runtime().block_on(renewal::hold(*count, urls)),
        None => return compare(&args),
    }
    ExitCode::SUCCESS
}

/// Measures all chosen figures, and prints each as soon as it is done.
fn compare(args: &Args) -> ExitCode {
    let mut sheets = Vec::new();
    for &figure in Figure::value_variants() {
        if args.only.is_empty() || args.only.contains(&figure) {
            for sheet in measure(figure, args) {
                print!("{}", sheet.text());
                sheets.push(sheet);
            }
        }
    }
    if let Err(failure) = save(&args.out, &sheets) {
        eprintln!("ringfence-bench: {}: {failure}", args.out.display());
        return ExitCode::FAILURE;
    }
    println!("\nJSON and pictures: {}", args.out.display());
    ExitCode::SUCCESS
}

fn measure(figure: Figure, args: &Args) -> Vec<Sheet> {
    let Args {
        nodes, rounds, ms, ..
    } = *args;
    match figure {
        Figure::Throughput => throughput::measure(nodes, rounds, ms).into(),
        Figure::Latency => [1, 3, 5]
            .map(|nodes| latency::measure(nodes, rounds, ms))
            .into_iter()
            .flatten()
            .collect(),
        Figure::Sentinel => vec![runtime().block_on(sentinel::measure(rounds, ms))],
        Figure::Network => [(3, 1), (3, 64), (5, 1), (5, 64)]
            .map(|(nodes, tasks)| network::measure(nodes, tasks, rounds, ms))
            .into(),
        Figure::SlowNode => vec![network::slow_node(rounds, ms)],
        Figure::HungNode => vec![hung_node::measure(nodes, rounds, ms)],
        Figure::HandOver => [1, nodes]
            .map(|nodes| hand_over::measure(nodes, 1, rounds, ms))
            .into(),
        Figure::HandOverProcesses => [1, nodes]
            .map(|nodes| hand_over::measure(nodes, worker::PROCESSES, rounds, ms))
            .into(),
        Figure::Drain => [1, 5].map(|nodes| drain::measure(nodes, rounds)).into(),
        Figure::Turns => vec![runtime().block_on(turns::measure(nodes, rounds))],
        Figure::Idle => vec![runtime().block_on(idle::measure(nodes))],
        Figure::Renewal => vec![renewal::measure(nodes)],
        Figure::Growth => growth::measure(rounds, ms)
            .into_iter()
            .chain([growth::memory()])
            .collect(),
        Figure::Quorums => vec![quorums::measure(rounds, ms)],
        Figure::Metrics => metrics::measure(nodes, rounds, ms, args.without.as_deref()),
        Figure::FileQueue => vec![runtime().block_on(file_queue::measure(rounds, ms))],
        Figure::Embedded => vec![
            embedded::locks(rounds, ms),
            embedded::commands(rounds, args.tool.as_deref()),
        ],
    }
}

fn save(folder: &Path, sheets: &[Sheet]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let all: Vec<_> = sheets.iter().map(Sheet::json).collect();
    fs::write(folder.join("results.json"), format!("{:#}\n", json!(all)))?;
    for sheet in sheets {
        fs::write(
            folder.join(sheet.key).with_extension("svg"),
            plot::svg(sheet),
        )?;
    }
    Ok(())
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime")
}
