//! Questions of our own over a connection: those of the handshake, of a look at the server, and
//! subscriptions.

use redis::{Cmd, Pipeline, RedisResult, Value};

use super::{Bytes, Connection, Wire};

impl Connection {
    /// Whether the server can push.
    pub(crate) fn hears(&self) -> bool {
        match &self.bytes {
            Bytes::Wire(wire) => wire.listeners.is_some(),
            Bytes::Library(library) => library.pushes.is_some(),
        }
    }

    /// Whether our user may ask `CONFIG GET`, as far as is known.
    pub(crate) fn may_ask_config(&self) -> bool {
        self.allowed.is_none_or(|allowed| allowed.config)
    }

    /// `CONFIG GET` was refused, and is not asked for again.
    pub(crate) fn refuse_config(&mut self) {
        if let Some(allowed) = &mut self.allowed {
            allowed.config = false;
        }
    }

    /// Has `batch` sent by whoever waits for answers.
    pub(crate) fn send(&mut self, batch: Pipeline) {
        match &mut self.bytes {
            Bytes::Wire(wire) => wire.send(batch.cmd_iter()),
            Bytes::Library(library) => library.send(batch),
        }
    }

    /// Asks everything in `questions` at once and waits for all the answers, errors among them.
    pub(crate) async fn ask(&mut self, questions: Pipeline) -> RedisResult<Vec<Value>> {
        let before = match &self.bytes {
            Bytes::Wire(wire) => wire.batches.len(),
            Bytes::Library(library) => library.answers.len(),
        };
        self.send(questions);
        // Whoever asked before and did not wait has no use for the answers.
        for _ in 0..before {
            self.answers().await?;
        }
        self.answers().await
    }
}

impl Wire {
    /// Has `commands` sent, as one batch, by whoever waits for answers.
    pub(crate) fn send<'a>(&mut self, commands: impl IntoIterator<Item = &'a Cmd>) {
        let mut count = 0;
        for command in commands {
            command.write_packed_command(&mut self.outgoing);
            count += 1;
        }
        self.batches.push_back(count);
    }
}
