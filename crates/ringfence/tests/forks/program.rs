//! A small program that forks while it holds and awaits locks. The child does what the first
//! argument says; the parent then checks that its locks, renewals and waits are as before. The
//! second argument is the nodes. The tests beside it start it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::Duration;

use ringfence::{Guard, Locks, Owner, blocking};
use ringfence_testkit::{fork, wait_until, wait_until_async};
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Short, so that a lock that is not renewed ends while the parent watches.
const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);

fn main() {
    let mut args = std::env::args().skip(1);
    let how = args.next().expect("what the child does");
    let nodes = args.next().expect("the nodes");
    match how.split_once('-') {
        Some(("current", how)) => {
            let mut runtime = Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(run(how, &nodes));
        }
        Some(("multi", how)) => Runtime::new()
            .expect("a runtime")
            .block_on(run(how, &nodes)),
        Some(("blocking", how)) => run_blocking(how, &nodes),
        _ => panic!("unknown: {how}"),
    }
}

/// What the parent has when it forks.
struct Inherited {
    locks: Locks,
    guard: Guard,
    owner: Owner,
    owned: Guard,
    /// Holds `busy`, for which a task of the first client waits.
    other: Guard,
    waiting: JoinHandle<Guard>,
    /// Waits for the loss of a lock, with a timer of its own.
    watching: JoinHandle<()>,
}

async fn run(how: &str, nodes: &str) {
    let connect = async || {
        let connected = Locks::builder().nodes(nodes).ttl(TTL).connect();
        connected.await.expect("a client")
    };
    let (locks, others) = (connect().await, connect().await);
    let owner = Owner::new();
    let watched = locks.mutex("watched").lock().await.expect("a free lock");
    let busy = locks.mutex("busy");
    let inherited = Inherited {
        guard: locks.mutex("x").lock().await.expect("a free lock"),
        owned: locks
            .mutex("owned")
            .owner(&owner)
            .lock()
            .await
            .expect("a free lock"),
        other: others.mutex("busy").lock().await.expect("a free lock"),
        waiting: tokio::spawn(async move { busy.lock().await.expect("the lock") }),
        watching: tokio::spawn(async move {
            let why = watched.lost().await;
            panic!("{why}");
        }),
        locks,
        owner,
    };
    let awaited = async || {
        let seen = others.inspect("busy").await.expect("an answer");
        seen.waiting > 0
    };
    wait_until_async("the waiter to be in the queue", LONG, awaited).await;
    let sockets = wake_sockets(nodes);
    match fork() {
        None => act_in_child(how, inherited),
        Some(child) => {
            // Not while it runs: a child must not use the tokio runtime, and this one does not.
            wait_for(child);
            assert_eq!(wake_sockets(nodes), sockets, "the child removed some");
            check_in_parent(inherited, &others).await;
        }
    }
}

/// How many sockets for wakes are beside a lock file.
fn wake_sockets(nodes: &str) -> usize {
    let file = nodes.strip_prefix("sqlite:").map(std::path::Path::new);
    let Some(folder) = file.and_then(std::path::Path::parent) else {
        return 0;
    };
    let files = std::fs::read_dir(folder).expect("the folder").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("-wake-")).count()
}

fn act_in_child(how: &str, inherited: Inherited) {
    match how {
        // Everything is dropped, and then the tokio runtime.
        "return" => drop(inherited),
        "panic" => panic!("a panic for the test"),
        "exit" => {
            drop(inherited);
            std::process::exit(0);
        }
        "calls" => {
            call_everything(&inherited);
            assert!(at_once(inherited.guard.release()).is_err());
            assert!(at_once(inherited.owned.downgrade()).is_err());
            drop(inherited.locks);
            std::process::exit(0);
        }
        how => panic!("unknown: {how}"),
    }
}

/// No call of a client that was inherited does anything, and each says why.
fn call_everything(inherited: &Inherited) {
    let Inherited { locks, guard, .. } = inherited;
    says_why(at_once(locks.mutex("free").lock()));
    says_why(at_once(locks.mutex("x").try_lock()));
    says_why(at_once(locks.plain_mutex("free").lock()));
    says_why(at_once(locks.rw_lock("free").read()));
    says_why(at_once(locks.semaphore("free", 2).acquire()));
    says_why(at_once(locks.election("free").campaign()));
    says_why(at_once(locks.mutex("owned").owner(&inherited.owner).lock()));
    says_why(at_once(
        locks.mutex("free").hold(async |_| unreachable!("not held")),
    ));
    says_why(at_once(locks.election("free").leader()));
    says_why(locks.election("free").observe());
    says_why(at_once(locks.latch("free", 1).arrive()));
    says_why(at_once(locks.latch("free", 1).opened()));
    says_why(at_once(locks.inspect("x")));
    says_why(at_once(locks.inspect_all("x")));
    says_why(at_once(locks.list().collect()));
    says_why(at_once(locks.list_breaks()));
    says_why(at_once(locks.break_lock("x").run()));
    says_why(guard.check());
    says_why(at_once(guard.extend(TTL)));
    says_why(at_once(guard.run(std::future::pending::<()>())));
    let receipt = guard.receipt();
    says_why(at_once(locks.mutex("x").extend_receipt(&receipt, TTL)));
    says_why(at_once(locks.mutex("x").release_receipt(&receipt)));
    assert!(at_once(guard.lost()).to_string().contains("fork"));
    assert!(guard.remaining().is_zero());
    at_once(locks.close());
    assert!(locks.is_closed());
    let nodes = at_once(locks.nodes());
    assert!(nodes.iter().all(|node| node.facts.is_err()), "{nodes:?}");
    let _ = format!(
        "{guard:?} {locks:?} {:?} {:?}",
        guard.votes(),
        guard.durability()
    );
}

#[track_caller]
fn says_why<T>(result: Result<T, impl std::fmt::Display>) {
    match result {
        Ok(_) => panic!("the call worked"),
        Err(error) => assert!(error.to_string().contains("fork"), "{error}"),
    }
}

/// The result of a call that must not wait: in a child nothing would end the wait.
#[track_caller]
fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the call waits"),
    }
}

fn wait_for(child: u32) {
    let child = Pid::from_raw(child.cast_signed());
    let mut ended = None;
    wait_until("the child to end", LONG, || {
        ended = waitpid(child, WaitOptions::NOHANG).expect("a child");
        ended.is_some()
    });
    let (_, status) = ended.expect("it has ended");
    let code = status.exit_status();
    assert!(code == Some(0) || code == Some(101), "{status:?}");
    println!("{}", code.unwrap_or_default());
}

/// The locks are held and renewed, and wakes arrive.
async fn check_in_parent(inherited: Inherited, others: &Locks) {
    let Inherited {
        locks,
        guard,
        owned,
        other,
        waiting,
        watching,
        owner: _,
    } = inherited;
    let forked = guard.exact_deadline();
    let renewed = async || {
        guard.check().expect("the lock is held");
        owned.check().expect("the lock is held");
        guard.exact_deadline() > forked + 2 * TTL
    };
    wait_until_async("renewals after the fork", LONG, renewed).await;
    let seen = others.inspect("x").await.expect("an answer");
    assert_eq!((seen.is_held(), seen.fence), (true, Some(guard.fence())));
    assert!(!watching.is_finished());
    other.release().await.expect("it was held");
    let woken = tokio::time::timeout(LONG, waiting).await;
    let woken = woken.expect("a wake or a poll").expect("no panic");
    woken.release().await.expect("it was held");
    owned.release().await.expect("it was held");
    let fence = guard.fence();
    guard.release().await.expect("it was held");
    let again = locks.mutex("x").lock().await.expect("a free lock");
    assert!(again.fence() > fence);
}

fn run_blocking(how: &str, nodes: &str) {
    use blocking::Locks;
    let connect = || Locks::build(Locks::builder().nodes(nodes).ttl(TTL));
    let locks = connect().expect("a client");
    let guard = locks.mutex("x").lock().expect("a free lock");
    if let Some(child) = fork() {
        wait_for(child);
        let forked = guard.exact_deadline();
        wait_until("renewals after the fork", LONG, || {
            guard.check().expect("the lock is held");
            sleep(Duration::from_millis(10));
            guard.exact_deadline() > forked + 2 * TTL
        });
        assert!(locks.mutex("x").try_lock().is_err());
        return guard.release().expect("it was held");
    }
    match how {
        "return" => {}
        "panic" => panic!("a panic for the test"),
        "exit" => {
            drop((guard, locks));
            std::process::exit(0);
        }
        "calls" => {
            says_why(locks.mutex("free").lock());
            says_why(locks.mutex("free").hold(|_| unreachable!("not held")));
            says_why(locks.inspect("x"));
            says_why(guard.check());
            says_why(guard.extend(TTL));
            locks.close();
            assert!(guard.lost().to_string().contains("fork"));
            says_why(guard.release());
            // A client of its own works, except for a file that the parent has open.
            match connect() {
                Ok(own) => own
                    .mutex("own")
                    .lock()
                    .expect("free")
                    .release()
                    .expect("held"),
                Err(error) if nodes.starts_with("sqlite:") => says_why::<()>(Err(error)),
                Err(error) => panic!("{error}"),
            }
            std::process::exit(0);
        }
        how => panic!("unknown: {how}"),
    }
}
