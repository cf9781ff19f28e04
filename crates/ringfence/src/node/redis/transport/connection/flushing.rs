//! Writing at once, and taking a connection out of its tokio runtime, for a thread that may be the
//! last to run.

use std::future::poll_fn;
use std::task::Poll;

use crate::node::redis::transport::stream::Remainder;

use super::{Bytes, Connection, Wire};

impl Connection {
    /// Writes what the stream accepts now, without waiting. Does nothing on a connection of the
    /// crate `redis`, which writes in its own task.
    pub(crate) async fn write_now(&mut self) {
        if let Bytes::Wire(wire) = &mut self.bytes {
            wire.write_now().await;
        }
    }

    /// Whether our own code reads and writes the bytes.
    pub(crate) fn is_wire(&self) -> bool {
        matches!(self.bytes, Bytes::Wire(_))
    }

    /// The connection without its tokio runtime.
    pub(crate) fn detach(self) -> Option<Remainder> {
        match self.bytes {
            Bytes::Wire(wire) => wire.detach(),
            Bytes::Library(_) => None,
        }
    }
}

impl Wire {
    /// Writes what the stream accepts now, without waiting.
    pub(crate) async fn write_now(&mut self) {
        let write = poll_fn(|cx| {
            self.poll_write(cx);
            Poll::Ready(())
        });
        // A single attempt: it must not fail because other work has used up the task's budget.
        tokio::task::unconstrained(write).await;
    }

    /// The connection without its tokio runtime.
    pub(crate) fn detach(mut self) -> Option<Remainder> {
        if self.broken.is_some() {
            return None;
        }
        self.outgoing.drain(..self.written);
        Some(Remainder {
            stream: self.stream.detach()?,
            unwritten: self.outgoing,
            arrived: self.incoming[self.read..self.arrived].to_vec(),
            framer: self.framer,
            missing: self.batches.iter().sum::<usize>() - self.answers.len(),
        })
    }
}
