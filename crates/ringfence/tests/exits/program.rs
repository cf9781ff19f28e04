//! A small program that ends while it holds locks, in the way given by its first argument. The
//! second argument is the nodes. The tests beside it start it.

use std::time::Duration;

use ringfence::{Guard, Locks};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Far longer than a test waits: a lock that is gone earlier was released.
const TTL: Duration = Duration::from_secs(25);
/// The number of locks that `many` holds: more than a server reads at once.
const MANY: usize = 300;

fn main() {
    let mut args = std::env::args().skip(1);
    let how = args.next().expect("how to end");
    let nodes = args.next().expect("the nodes");
    let (how, runtime) = match how.split_once('-') {
        Some(("current", how)) => (how.to_owned(), current_thread()),
        Some(("multi", how)) => (how.to_owned(), Runtime::new().expect("a runtime")),
        Some(("blocking", how)) => return end_blocking(how, &nodes),
        _ => panic!("unknown: {how}"),
    };
    match how.as_str() {
        // As with `#[tokio::main]`: the guard is dropped inside, then the tokio runtime.
        "return" => runtime.block_on(async {
            let _guard = held(&nodes).await;
        }),
        "panic" => runtime.block_on(async {
            let _guard = held(&nodes).await;
            panic!("a panic for the test");
        }),
        "exit" => runtime.block_on(async {
            drop(held(&nodes).await);
            std::process::exit(0);
        }),
        // The tokio runtime drops its tasks when it ends, in any order.
        "task" => runtime.block_on(async {
            let (held_sender, held_now) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let _guard = held(&nodes).await;
                held_sender.send(()).expect("main waits");
                std::future::pending::<()>().await;
            });
            held_now.await.expect("the lock is taken");
        }),
        "outlive" => {
            let guard = runtime.block_on(held(&nodes));
            drop(runtime);
            drop(guard);
        }
        "many" => runtime.block_on(async {
            let locks = connect(&nodes).await;
            // All at once, which takes a node much less time than one after the other.
            let mut taking = JoinSet::new();
            for number in 0..MANY {
                let lock = locks.mutex(format!("many-{number}"));
                taking.spawn(async move { lock.lock().await.expect("a free lock") });
            }
            let _guards: Vec<Guard> = taking.join_all().await;
        }),
        // The future of a waiting caller is dropped between two attempts.
        "cancel" => runtime.block_on(async {
            let locks = connect(&nodes).await;
            let lock = locks.mutex("held-by-the-test");
            let waits = Duration::from_millis(300);
            let waiting = tokio::time::timeout(waits, lock.lock()).await;
            assert!(waiting.is_err(), "{waiting:?}");
        }),
        "idle" => end_idle(&runtime, &nodes),
        how => panic!("unknown: {how}"),
    }
}

/// The thread that renews while a tokio runtime is blocked: it exists with the first client, sleeps
/// while nothing is held, and ends after the last client.
fn end_idle(runtime: &Runtime, nodes: &str) {
    const PATIENCE: Duration = Duration::from_secs(60);
    for _ in 0..2 {
        assert_eq!(renewers(), []);
        runtime.block_on(async {
            let locks = connect(nodes).await;
            // It is there before the first lock.
            let before = settled().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(renewers(), before, "nothing is held");
            for _ in 0..1_000 {
                let guard = locks.mutex("x").lock().await.expect("a free lock");
                guard.release().await.expect("it is held");
            }
            let after = renewers();
            assert_eq!(after.len(), 1, "no lock starts a thread");
            let woken = after[0] - before[0];
            assert!(woken <= 3, "{woken} times in a thousand locks");
            // The connections of the client end with their tasks.
            locks.close().await;
        });
        let begun = ringfence::clock::Clock::System.now();
        while !renewers().is_empty() {
            let waited = ringfence::clock::Clock::System.now().since(begun);
            assert!(waited < PATIENCE, "it does not end");
            // The keeper ends, too.
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        }
    }
}

/// The same as [`renewers`], once the thread has started and sleeps.
async fn settled() -> Vec<u64> {
    for _ in 0..100 {
        let before = renewers();
        tokio::time::sleep(Duration::from_millis(500)).await;
        if before.len() == 1 && renewers() == before {
            return before;
        }
    }
    panic!("there is none, or it does not sleep: {:?}", renewers())
}

/// How often each such thread of this process has gone to sleep.
fn renewers() -> Vec<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let sleeps = |folder: std::path::PathBuf| {
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let count = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse()
                .ok()
        };
        let count = status.lines().find_map(count)?;
        (comm.trim() == "ringfence-renew").then_some(count)
    };
    tasks.filter_map(|task| sleeps(task.ok()?.path())).collect()
}

fn end_blocking(how: &str, nodes: &str) {
    use ringfence::blocking::Locks;
    let locks = Locks::build(Locks::builder().nodes(nodes).ttl(TTL)).expect("a client");
    let guard = locks.mutex("x").lock().expect("a free lock");
    match how {
        "return" => {}
        "panic" => panic!("a panic for the test"),
        "exit" => {
            drop(guard);
            std::process::exit(0);
        }
        how => panic!("unknown: {how}"),
    }
}

fn current_thread() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

async fn connect(nodes: &str) -> Locks {
    let connected = Locks::builder().nodes(nodes).ttl(TTL).connect();
    connected.await.expect("a client")
}

async fn held(nodes: &str) -> Guard {
    let lock = connect(nodes).await.mutex("x");
    lock.lock().await.expect("a free lock")
}
