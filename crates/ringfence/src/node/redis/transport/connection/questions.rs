//! Commands of the link itself over a connection: those of the handshake, checks of the server, and
//! subscriptions.

use redis::{Cmd, Pipeline, RedisResult, Value};

use super::{Bytes, Connection, Wire};

impl Connection {
    /// Whether the server can push.
    pub(crate) fn has_pushes(&self) -> bool {
        match &self.bytes {
            Bytes::Wire(wire) => wire.listeners.is_some(),
            Bytes::Library(library) => library.pushes.is_some(),
        }
    }

    /// Whether our user may run `CONFIG GET`, as far as is known.
    pub(crate) fn may_ask_config(&self) -> bool {
        self.allowed.is_none_or(|allowed| allowed.config)
    }

    /// Notes that `CONFIG GET` was refused, so that it is not sent again.
    pub(crate) fn refuse_config(&mut self) {
        if let Some(allowed) = &mut self.allowed {
            allowed.config = false;
        }
    }

    /// Queues `batch`. [`Connection::answers`] sends it.
    pub(crate) fn send(&mut self, batch: Pipeline) {
        match &mut self.bytes {
            Bytes::Wire(wire) => wire.send(batch.cmd_iter()),
            Bytes::Library(library) => library.send(batch),
        }
    }

    /// Sends all `questions` at once and waits for all answers, including errors.
    pub(crate) async fn ask(&mut self, questions: Pipeline) -> RedisResult<Vec<Value>> {
        let before = match &self.bytes {
            Bytes::Wire(wire) => wire.batches.len(),
            Bytes::Library(library) => library.answers.len(),
        };
        self.send(questions);
        // Discard the answers to earlier batches, whose callers did not wait.
        for _ in 0..before {
            self.answers().await?;
        }
        self.answers().await
    }
}

impl Wire {
    /// Queues `commands` as one batch. [`Wire::answers`] sends it.
    pub(crate) fn send<'a>(&mut self, commands: impl IntoIterator<Item = &'a Cmd>) {
        let mut count = 0;
        for command in commands {
            command.write_packed_command(&mut self.outgoing);
            count += 1;
        }
        self.batches.push_back(count);
    }
}
