//! What the program shows, one situation after the other. A situation that does not happen as it
//! is told ends the program with an error.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_testkit::{Flavor, Server, wait_until};

use crate::Outcome;
use crate::consumer::{Consumed, consume};
use crate::dispatcher::Manner;
use crate::instances::Instances;
use crate::queue::Queue;
use crate::tasks::{Status, Tasks};

const INSTANCES: usize = 3;
const TASKS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(20);
/// In earnest many minutes. Here nothing else is under way when tasks are recovered.
const STUCK_AFTER: Duration = Duration::from_millis(20);

pub(crate) async fn tell() -> Outcome {
    let mut stage = Stage::set().await?;
    stage.without_a_lock().await?;
    stage.with_the_lock().await?;
    stage.with_a_conditional_update().await?;
    stage.killed_in_the_middle().await?;
    stage.in_the_wrong_order().await?;
    stage.a_consumer_dies().await
}

struct Stage {
    tasks: Tasks,
    queue: Queue,
    database: PathBuf,
    server: Server,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn set() -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let database = folder.path().join("tasks.db");
        let server = Server::start(Flavor::Redis);
        Ok(Self {
            tasks: Tasks::open(&database)?,
            queue: Queue::connect(&server.url()).await?,
            database,
            server,
            _folder: folder,
        })
    }

    fn instances(&self, count: usize, manner: Manner) -> Outcome<Instances> {
        Instances::start(count, manner, &self.database, &self.server.url())
    }

    async fn without_a_lock(&mut self) -> Outcome {
        let messages = self
            .all_fetch_before_the_first_writes(Manner::Unlocked)
            .await?;
        let Consumed { ran, dropped } = consume(&mut self.queue, &mut self.tasks).await?;
        show(
            messages == INSTANCES * TASKS && ran == TASKS,
            &format!(
                "no lock:            {messages} messages for {TASKS} tasks; \
                 the consumers' conditional update dropped {dropped}, {ran} ran"
            ),
        )
    }

    async fn with_a_conditional_update(&mut self) -> Outcome {
        let messages = self
            .all_fetch_before_the_first_writes(Manner::Claiming)
            .await?;
        expect_ran(&consume(&mut self.queue, &mut self.tasks).await?, TASKS, 0)?;
        show(
            messages == TASKS,
            &format!(
                "conditional update: {messages} messages for {TASKS} tasks, \
                 without a lock: the database decides"
            ),
        )
    }

    /// All instances have asked the database before the first of them writes to it.
    async fn all_fetch_before_the_first_writes(&mut self, manner: Manner) -> Outcome<usize> {
        self.tasks.create(TASKS as i64)?;
        let mut instances = self.instances(INSTANCES, manner)?;
        for _ in 0..INSTANCES {
            expect_same(instances.line()?.1, format!("fetched {TASKS}"))?;
        }
        (0..INSTANCES).try_for_each(|instance| instances.tell(instance, "go"))?;
        instances.finish(INSTANCES)?;
        Ok(self.queue.len().await?)
    }

    async fn with_the_lock(&mut self) -> Outcome {
        self.tasks.create(TASKS as i64)?;
        self.instances(INSTANCES, Manner::Locked)?
            .finish(INSTANCES)?;
        let messages = self.queue.len().await?;
        expect_ran(&consume(&mut self.queue, &mut self.tasks).await?, TASKS, 0)?;
        show(
            messages == TASKS,
            &format!("lock:               {messages} messages for {TASKS} tasks"),
        )
    }

    async fn killed_in_the_middle(&mut self) -> Outcome {
        self.tasks.create(TASKS as i64)?;
        let mut instances = self.instances(INSTANCES, Manner::Locked)?;
        let (first, line) = instances.line()?;
        expect(&line, &format!("fetched {TASKS}"))?;
        instances.tell(first, "halt 4")?;
        expect(&instances.line()?.1, "halted")?;
        instances.kill(first);
        println!(
            "killed:             an instance dies after it marked task 4, and before it sent it"
        );
        // The lock of the dead instance ends with its TTL; another one does the rest.
        instances.finish(INSTANCES - 1)?;
        let messages = self.queue.len().await?;
        show(
            messages == TASKS - 1 && self.tasks.with(Status::Enqueued)?.contains(&4),
            &format!(
                "                    the others send the rest: {messages} messages; task 4 is stuck"
            ),
        )?;
        expect_ran(
            &consume(&mut self.queue, &mut self.tasks).await?,
            TASKS - 1,
            0,
        )?;
        self.recover_and_run(1).await?;
        show(
            self.tasks.succeeded()? == TASKS as i64,
            "                    recovery brings task 4 back: all tasks ran, each once",
        )
    }

    async fn in_the_wrong_order(&mut self) -> Outcome {
        self.tasks.create(1)?;
        let mut instances = self.instances(1, Manner::Reversed)?;
        expect(&instances.line()?.1, "fetched 1")?;
        instances.tell(0, "halt 1")?;
        expect(&instances.line()?.1, "halted")?;
        // The message is in the queue, the mark is not in the table.
        let consumed = consume(&mut self.queue, &mut self.tasks).await?;
        expect_ran(&consumed, 0, 1)?;
        instances.tell(0, "go")?;
        instances.finish(1)?;
        let stuck = self.tasks.with(Status::Enqueued)? == [1] && self.queue.len().await? == 0;
        show(
            stuck,
            "wrong order:        message first, mark second: a quick consumer drops the message, the task is stuck",
        )?;
        self.recover_and_run(1).await?;
        show(
            self.tasks.succeeded()? == 1,
            "                    recovery brings it back",
        )
    }

    async fn a_consumer_dies(&mut self) -> Outcome {
        self.tasks.create(1)?;
        self.instances(1, Manner::Locked)?.finish(1)?;
        self.queue.pop().await?;
        let first = self.tasks.begin(1)?.ok_or("not enqueued")?;
        expect_same(self.tasks.with(Status::Processing)?, vec![1])?;
        // The consumer is gone for now. Its task is tried again by another one.
        self.recover(1)?;
        expect_same(self.tasks.with(Status::Failed)?, vec![1])?;
        self.instances(1, Manner::Locked)?.finish(1)?;
        self.queue.pop().await?;
        let second = self.tasks.begin(1)?.ok_or("not enqueued")?;
        let late = self.tasks.succeed(1, first)?;
        show(
            !late && second == first + 1,
            "lost consumer:      its task is tried again as run 2; the late result of run 1 is refused",
        )?;
        self.tasks.fail(1, second)?;
        show(
            self.tasks.with(Status::GivenUp)? == [1] && self.tasks.pending()?.is_empty(),
            "                    run 2 fails too: the task is given up, and no longer dispatched",
        )
    }

    /// Recovers `count` stuck tasks, dispatches them and runs them.
    async fn recover_and_run(&mut self, count: usize) -> Outcome {
        self.recover(count)?;
        expect_same(self.tasks.with(Status::Pending)?.len(), count)?;
        self.instances(1, Manner::Locked)?.finish(1)?;
        expect_ran(&consume(&mut self.queue, &mut self.tasks).await?, count, 0)
    }

    fn recover(&self, count: usize) -> Outcome {
        let mut recovered = 0;
        wait_until("the tasks to be recovered", PATIENCE, || {
            recovered += self.tasks.recover(STUCK_AFTER).unwrap_or(0);
            recovered >= count
        });
        expect_same(recovered, count)
    }
}

fn expect_ran(consumed: &Consumed, ran: usize, dropped: usize) -> Outcome {
    expect_same(consumed, &Consumed { ran, dropped })
}

fn expect(line: &str, expected: &str) -> Outcome {
    expect_same(line, expected)
}

fn expect_same<T: PartialEq + std::fmt::Debug>(seen: T, expected: T) -> Outcome {
    if seen == expected {
        return Ok(());
    }
    Err(format!("expected {expected:?}, saw {seen:?}").into())
}

/// Prints what the story shows, if it is true.
fn show(is_true: bool, what: &str) -> Outcome {
    if !is_true {
        return Err(format!("this did not happen: {what}").into());
    }
    println!("{what}");
    Ok(())
}
