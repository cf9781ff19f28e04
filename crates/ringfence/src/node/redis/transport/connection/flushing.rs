//! What a thread that may be the last to run does with a connection: it writes at once, and takes the
//! connection out of the runtime.

use std::future::poll_fn;
use std::task::Poll;

use crate::node::redis::transport::stream::Remainder;

use super::{Bytes, Connection, Wire};

impl Connection {
    /// Writes what can be written now, and waits for nothing. A connection that the client library
    /// keeps is written by the library's own task: there this does nothing.
    pub(crate) async fn write_now(&mut self) {
        if let Bytes::Wire(wire) = &mut self.bytes {
            wire.write_now().await;
        }
    }

    /// Whether the bytes are ours.
    pub(crate) fn is_wire(&self) -> bool {
        matches!(self.bytes, Bytes::Wire(_))
    }

    /// The connection without the runtime.
    pub(crate) fn detach(self) -> Option<Remainder> {
        match self.bytes {
            Bytes::Wire(wire) => wire.detach(),
            Bytes::Library(_) => None,
        }
    }
}

impl Wire {
    /// Writes what can be written now, and waits for nothing.
    pub(crate) async fn write_now(&mut self) {
        let write = poll_fn(|cx| {
            self.poll_write(cx);
            Poll::Ready(())
        });
        // It is one attempt: it must not fail because other work has used up the task's turn.
        tokio::task::unconstrained(write).await;
    }

    /// The connection without the runtime.
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
