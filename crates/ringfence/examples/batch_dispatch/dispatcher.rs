//! One instance: fetches the pending tasks once, and puts them into the queue.
//!
//! It marks a task as enqueued *before* it sends the message. A message that comes first may reach
//! a consumer that finds the task still pending, and drops it.
//!
//! It prints what it has done and waits for a line before it goes on, so that the story can make
//! instances meet, or kill one at a certain moment.

use std::io::stdin;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use ringfence::Locks;

use crate::Outcome;
use crate::queue::Queue;
use crate::tasks::Tasks;

/// After this time the lock of an instance that was killed ends. In earnest 10 s or more: the story
/// waits for it once.
const TTL: Duration = Duration::from_secs(5);

/// What keeps a task from going out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing does.
    Unlocked,
    /// A lock around the whole batch.
    Locked,
    /// No lock: the conditional update of each task.
    Claiming,
    /// The message before the mark, under a lock.
    Reversed,
}

impl FromStr for Manner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Unlocked, Self::Locked, Self::Claiming, Self::Reversed];
        let mut named = all
            .into_iter()
            .filter(|manner| format!("{manner:?}") == text);
        named
            .next()
            .ok_or_else(|| format!("no such manner: {text}"))
    }
}

/// The instance as a process.
pub(crate) async fn run(manner: Manner, database: &Path, server: &str) -> Outcome {
    let mut instance = Instance {
        manner,
        tasks: Tasks::open(database)?,
        queue: Queue::connect(server).await?,
    };
    if matches!(manner, Manner::Unlocked | Manner::Claiming) {
        instance.dispatch().await?;
    } else {
        let locks = Locks::connect(server).await?;
        let lock = locks.mutex("dispatch").ttl(TTL);
        // The lock is lost if this process stalls. Then the batch is dropped at its next await,
        // and what it leaves behind is recovered.
        let guard = lock.lock().await?;
        guard.run(instance.dispatch()).await??;
        guard.release().await?;
        locks.close().await;
    }
    println!("done");
    Ok(())
}

struct Instance {
    manner: Manner,
    tasks: Tasks,
    queue: Queue,
}

impl Instance {
    async fn dispatch(&mut self) -> Outcome {
        let batch = self.tasks.pending()?;
        println!("fetched {}", batch.len());
        let mut halt = wait_for_line()?;
        for id in batch {
            self.enqueue(id, &mut halt).await?;
        }
        Ok(())
    }

    /// `halt` is `halt N` if the story wants to stop this instance between the two steps of task N.
    async fn enqueue(&mut self, id: i64, halt: &mut String) -> Outcome {
        let halts = *halt == format!("halt {id}");
        if self.manner == Manner::Reversed {
            self.queue.push(id).await?;
        } else if self.manner == Manner::Claiming {
            if !self.tasks.claim(id)? {
                return Ok(());
            }
        } else {
            self.tasks.mark_enqueued(id)?;
        }
        if halts {
            println!("halted");
            *halt = wait_for_line()?;
        }
        match self.manner {
            Manner::Reversed => self.tasks.mark_enqueued(id)?,
            _ => self.queue.push(id).await?,
        }
        Ok(())
    }
}

/// A line from the story. This blocks the thread, as any long work of an instance does; the lock
/// is renewed on another one.
fn wait_for_line() -> Outcome<String> {
    let mut line = String::new();
    if stdin().read_line(&mut line)? == 0 {
        return Err("the story has ended".into());
    }
    Ok(line.trim_end().to_owned())
}
