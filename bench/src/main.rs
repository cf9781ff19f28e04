//! What ringfence costs, measured on real servers of this machine. Figures are ratios within one
//! run: rounds of the things that are compared take turns, so that a noisy machine disturbs both.
//!
//! ```text
//! cargo run --release -p ringfence-bench -- --nodes 5
//! ```

mod hand_over;
mod hung_node;
mod idle;
mod times;
mod worker;

use clap::Parser;

/// What ringfence costs, measured on real servers of this machine.
#[derive(Debug, Parser)]
struct Args {
    /// How many servers.
    #[arg(long, default_value_t = 5)]
    nodes: usize,
    /// How many rounds of each kind, taking turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How many times a lock is taken and given back in one round.
    #[arg(long, default_value_t = 500)]
    locks: usize,
    /// What to measure; everything unless given.
    #[arg(long, value_enum)]
    only: Option<Figure>,
    /// Given to the processes that this one starts.
    #[arg(long, hide = true, num_args = 3, value_names = ["NODES", "NAME", "CALLERS"])]
    worker: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Figure {
    /// Lock and release with one node that has stopped answering.
    HungNode,
    /// From one release to the next grant, with many who wait.
    HandOver,
    /// What those who wait cost while nothing changes.
    Idle,
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        if let Some([nodes, name, callers]) = args.worker.as_deref() {
            return worker::work(nodes, name, callers.parse().expect("a number")).await;
        }
        let wanted = |figure| args.only.is_none_or(|only| only == figure);
        if wanted(Figure::HungNode) {
            hung_node::measure(&args).await;
        }
        if wanted(Figure::HandOver) {
            for waiters in [32, 256] {
                hand_over::measure(&args, waiters).await;
            }
        }
        if wanted(Figure::Idle) {
            idle::measure(&args).await;
        }
    });
}
