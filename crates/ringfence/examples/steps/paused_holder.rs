//! Step 9: a holder is stopped between its last check and its write. No lock can prevent that; the
//! resource can refuse the write.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence::Locks;
use ringfence::resource::redis::{FENCED, FencedKey};
use ringfence_testkit::{Fleet, Process};

use crate::simple_client::{Client, PATIENCE};
use crate::{Outcome, show};

/// The name of the child's step.
pub(crate) const PROCESS: &str = "hold";

/// Long enough that A certainly still holds the lock when it is stopped, on a busy machine too.
const TTL: Duration = Duration::from_secs(4);

pub(crate) async fn run() -> Outcome {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    // The data is on a server too; any store does.
    let mut store = Client::connect(&fleet[0].url()).await?;

    let mut late = Holder::start(&urls)?;
    println!(
        "A  holds the lock on three servers, has checked that, and is stopped before it writes"
    );
    late.process.pause();
    let locks = Locks::connect(&urls).await?;
    let guard = locks.mutex("account").wait(PATIENCE).lock().await?;
    show(
        guard.fence() > late.fence,
        "B  gets the lock after A's TTL, with a higher fence, and writes 150",
    )?;

    store.set("balance", "150").await?;
    late.process.resume();
    late.writes("unfenced")?;
    let balance = store.get("balance").await?;
    show(
        balance.as_deref() == Some("90"),
        "FAILS   A continues where it was stopped and writes 90: B's write is lost",
    )?;

    let call = FencedKey::new("balance").write(guard.fence(), ["SET", "150"]);
    let script = redis::Script::new(FENCED);
    let mut invocation = script.key(call.keys());
    let () = invocation
        .arg(call.args())
        .invoke_async(store.connection())
        .await?;
    let refusal = late.writes("fenced")?;
    let balance = store.get("balance").await?;
    show(
        refusal.contains("is below the mark") && balance.as_deref() == Some("150"),
        "REPAIR  the store remembers the highest fence and refuses A's, which is lower",
    )?;
    guard.release().await?;
    locks.close().await;
    Ok(())
}

/// A, as a process of its own, so that it can really be stopped.
struct Holder {
    process: Process,
    input: std::io::PipeWriter,
    output: BufReader<std::process::ChildStdout>,
    fence: u64,
}

impl Holder {
    /// Starts the process, and waits until it holds the lock.
    fn start(urls: &str) -> Result<Self, Box<dyn Error>> {
        let (theirs, input) = std::io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([PROCESS, urls])
            .stdin(theirs)
            .stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let output = process.take_stdout().ok_or("no pipe")?;
        let mut holder = Self {
            process,
            input,
            output: BufReader::new(output),
            fence: 0,
        };
        holder.fence = holder.line()?.parse()?;
        Ok(holder)
    }

    /// Lets A write in this way; its answer.
    fn writes(&mut self, how: &str) -> Result<String, Box<dyn Error>> {
        writeln!(self.input, "{how}")?;
        self.line()
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// The process of A: it takes the lock, checks it, and writes when it is told to, as if no time had
/// passed since the check.
pub(crate) async fn hold(urls: &str) -> Outcome {
    let locks = Locks::connect(urls).await?;
    let store = urls.split(['?', ',']).next().unwrap_or(urls);
    let mut store = Client::connect(store).await?;
    let guard = locks.mutex("account").ttl(TTL).lock().await?;
    guard.check()?;
    println!("{}", guard.fence());

    let script = redis::Script::new(FENCED);
    for how in std::io::stdin().lines() {
        if how? == "unfenced" {
            store.set("balance", "90").await?;
            println!("written");
            continue;
        }
        let call = FencedKey::new("balance").write(guard.fence(), ["SET", "90"]);
        let mut invocation = script.key(call.keys());
        let invocation = invocation.arg(call.args());
        let written: redis::RedisResult<()> = invocation.invoke_async(store.connection()).await;
        println!(
            "{}",
            written
                .err()
                .map_or_else(String::new, |error| error.to_string())
        );
    }
    Ok(())
}
