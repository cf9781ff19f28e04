//! Several instances of a service fetch pending tasks from a database and put them into a queue.
//! Without a lock every instance puts every task there; with one, each task goes out once, also if
//! an instance is killed in the middle of a batch.
//!
//! ```text
//! cargo run -p ringfence --features sqlite --example batch_dispatch
//! ```
//!
//! The database is a SQLite file, the queue is a list on a Redis server, and the instances are
//! processes. The program starts all of them itself; `redis-server` must be installed.

mod consumer;
mod dispatcher;
mod instances;
mod queue;
mod story;
mod tasks;

use std::error::Error;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

// Several threads: an instance renews its lock while it waits for a line from the story.
#[tokio::main(flavor = "multi_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => story::tell().await,
        [role, how, database, server] if role == instances::ROLE => {
            dispatcher::run(how.parse()?, database.as_ref(), server).await
        }
        _ => Err("this program takes no arguments".into()),
    }
}
