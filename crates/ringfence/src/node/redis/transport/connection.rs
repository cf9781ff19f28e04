//! One connection to one server that is logged in, and questions asked over it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

use crate::node::redis::access::rights::Allowed;
use crate::node::redis::command::{Command, ScriptBy, ScriptTerms};

use super::library::{Library, Pushes};
use super::stream::Remainder;
use super::wire::Wire;

/// See the module.
pub(crate) struct Connection {
    bytes: Bytes,
    /// What our user may do here, once that was asked: whatever is refused is an entry in the server's
    /// ACL LOG.
    pub(crate) allowed: Option<Allowed>,
}

enum Bytes {
    /// The bytes are ours.
    Wire(Wire),
    /// The bytes are the client library's, because only it can make the connection.
    Library(Library),
}

impl Connection {
    pub(crate) fn library(connection: MultiplexedConnection, pushes: Option<Arc<Pushes>>) -> Self {
        Self::new(Bytes::Library(Library::new(connection, pushes)))
    }

    pub(crate) fn wire(wire: Wire) -> Self {
        Self::new(Bytes::Wire(wire))
    }

    fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            allowed: None,
        }
    }

    /// Whether the server can push.
    pub(crate) fn hears(&self) -> bool {
        match &self.bytes {
            Bytes::Wire(wire) => wire.hears(),
            Bytes::Library(library) => library.hears(),
        }
    }

    /// Whether our user may ask `CONFIG GET`, as far as is known.
    pub(crate) fn may_ask_config(&self) -> bool {
        self.allowed.is_none_or(|allowed| allowed.config)
    }

    /// Whether our user may only look, as far as is known.
    pub(crate) fn may_only_look(&self) -> bool {
        self.allowed.is_some_and(|allowed| !allowed.join)
    }

    /// `CONFIG GET` was refused, and is not asked for again.
    pub(crate) fn refuse_config(&mut self) {
        if let Some(allowed) = &mut self.allowed {
            allowed.config = false;
        }
    }

    /// Has `commands` sent by whoever waits for answers, as one batch.
    pub(crate) fn send_commands(
        &mut self,
        commands: &[Command],
        terms: &ScriptTerms,
        by: ScriptBy,
    ) {
        match &mut self.bytes {
            Bytes::Wire(wire) => {
                let calls = commands.iter().map(|command| command.calls().len()).sum();
                wire.send_each(commands, calls, |command, packer| {
                    command.write(terms, by, packer);
                });
            }
            Bytes::Library(library) => {
                let mut batch = Pipeline::with_capacity(commands.len());
                for command in commands {
                    let mut cmd = Cmd::new();
                    command.write(terms, by, &mut cmd);
                    batch.add_command(cmd);
                }
                library.send(batch);
            }
        }
    }

    /// Has `batch` sent by whoever waits for answers.
    pub(crate) fn send(&mut self, batch: Pipeline) {
        match &mut self.bytes {
            Bytes::Wire(wire) => wire.send(batch.cmd_iter()),
            Bytes::Library(library) => library.send(batch),
        }
    }

    /// The answers to the oldest batch, errors of the server among them. Without one it ends only if
    /// the connection does. Safe to cancel.
    ///
    /// # Errors
    /// If the connection is of no more use.
    pub(crate) async fn answers(&mut self) -> RedisResult<Vec<Value>> {
        match &mut self.bytes {
            Bytes::Wire(wire) => wire.answers().await,
            Bytes::Library(library) => library.answers().await,
        }
    }

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

    /// Asks everything in `questions` at once and waits for all the answers, errors among them.
    pub(crate) async fn ask(&mut self, questions: Pipeline) -> RedisResult<Vec<Value>> {
        let before = match &self.bytes {
            Bytes::Wire(wire) => wire.under_way(),
            Bytes::Library(library) => library.under_way(),
        };
        self.send(questions);
        // Whoever asked before and did not wait has no use for the answers.
        for _ in 0..before {
            self.answers().await?;
        }
        self.answers().await
    }
}
