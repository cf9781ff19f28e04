//! Bytes to and from one server. This file has one connection after the login: it sends commands in
//! batches, and receives the answers in the same order. Other modules interpret the replies.
//!
//! The crate `redis` does this for connections that only it can make. There a command passes
//! through three queues, its reply through a general parser, and each wakes the task. Here two
//! buffers are enough.

pub(crate) mod connection_set;
pub(crate) mod dial;
pub(crate) mod library;
pub(crate) mod resp;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod wake_listeners;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::{
    Cmd, ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisResult, RedisWrite, Value,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::protocol::MasterAddress;

use self::library::Library;
use self::resp::{BATCH_MAX_MEMORY, Excess, Framer, Packer, memory};
use self::stream::{Remainder, Stream};
use self::wake_listeners::WakeListeners;

/// How much is read at once. A buffer that had to grow beyond it is freed afterwards.
const CHUNK: usize = 16 << 10;
/// How much buffer is kept for commands: the size of a large batch.
const BATCH_BYTES: usize = 64 << 10;

/// How many bytes of one connection are handled before other connections and timers run: about a
/// millisecond of work. An ordinary batch of replies is less than a quarter of it.
const TURN_BYTES: usize = 64 << 10;
/// The least that one read counts for a turn. A TLS server may send its bytes one by one.
const READ_COST: usize = 1 << 10;
/// What one push counts for a turn, beside its bytes: the crate `redis` parses it, and it may wake
/// a task.
const PUSH_COST: usize = 256;

/// A command that writes itself word by word.
pub(crate) trait Words {
    fn write(&self, out: &mut impl RedisWrite);

    /// How many calls it carries out.
    fn calls(&self) -> usize;
}

/// What our user may do over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// May run `CONFIG GET`.
    pub(crate) config: bool,
    /// May run a script that writes the birth record. Without this right a user may only look.
    pub(crate) join: bool,
    /// May send a script that reads. Without this right a user needs scripts that others loaded.
    pub(crate) send_scripts: bool,
}

/// See the module.
pub(crate) struct Connection {
    bytes: Bytes,
    /// The rights of our user, once they were asked for. Every refused command is an entry in the
    /// server's ACL LOG.
    pub(crate) allowed: Option<Allowed>,
    /// The master that it leads to, if Sentinels named it.
    pub(crate) master: Option<MasterAddress>,
}

/// What reads and writes the bytes.
pub(crate) enum Bytes {
    /// Our own code.
    Wire(Wire),
    /// The crate `redis`, because only it can make the connection.
    Library(Library),
}

impl Connection {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            allowed: None,
            master: None,
        }
    }

    /// Whether our user may only read, as far as is known.
    pub(crate) fn may_only_look(&self) -> bool {
        self.allowed.is_some_and(|allowed| !allowed.join)
    }

    /// Queues `commands` as one batch. [`Connection::answers`] sends it.
    pub(crate) fn send_commands<W: Words>(&mut self, commands: impl Iterator<Item = W>) {
        match &mut self.bytes {
            Bytes::Wire(wire) => wire.send_commands(commands),
            Bytes::Library(library) => {
                let mut batch = Pipeline::new();
                for command in commands {
                    let mut cmd = Cmd::new();
                    command.write(&mut cmd);
                    batch.add_command(cmd);
                }
                library.send(batch);
            }
        }
    }

    /// The answers to the oldest batch, including errors of the server. Without a batch it ends
    /// only if the connection ends. Safe to cancel.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) async fn answers(&mut self) -> RedisResult<Vec<Value>> {
        match &mut self.bytes {
            Bytes::Wire(wire) => wire.answers().await,
            Bytes::Library(library) => library.answers().await,
        }
    }

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

/// A connection that our own code reads and writes.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    /// Commands, of which the first `written` bytes were written to the stream.
    outgoing: Vec<u8>,
    written: usize,
    /// Whether the stream has flushed them; TLS may buffer some.
    flushed: bool,
    /// The bytes that have arrived and were not parsed are in `read..arrived`; the rest is free.
    incoming: Vec<u8>,
    read: usize,
    arrived: usize,
    framer: Framer,
    /// The number of answers of each batch that does not have all its answers yet.
    batches: VecDeque<usize>,
    /// The answers to the first batch so far, and about how much memory they take.
    answers: Vec<Value>,
    memory: usize,
    /// How much was handled since other tasks last ran.
    spent: usize,
    /// Receives pushes.
    listeners: Option<Arc<WakeListeners>>,
    /// How many calls were sent since the last push.
    calls: u32,
    /// Why nothing more can be sent. Answers that arrived before still count.
    broken: Option<io::Error>,
}

impl Wire {
    pub(crate) fn new(
        stream: impl Stream + 'static,
        listeners: Option<Arc<WakeListeners>>,
    ) -> Self {
        Self {
            stream: Box::new(stream),
            outgoing: Vec::new(),
            written: 0,
            flushed: true,
            incoming: vec![0; CHUNK],
            read: 0,
            arrived: 0,
            framer: Framer::default(),
            batches: VecDeque::new(),
            answers: Vec::new(),
            memory: 0,
            spent: 0,
            listeners,
            calls: 0,
            broken: None,
        }
    }

    /// Queues `commands` as one batch. [`Wire::answers`] sends it.
    pub(crate) fn send_commands<W: Words>(&mut self, commands: impl Iterator<Item = W>) {
        let mut count = 0;
        for command in commands {
            let calls = u32::try_from(command.calls()).unwrap_or(u32::MAX);
            self.calls = self.calls.saturating_add(calls);
            command.write(&mut Packer::new(&mut self.outgoing));
            count += 1;
        }
        self.batches.push_back(count);
    }

    /// Queues `commands` as one batch. [`Wire::answers`] sends it.
    pub(crate) fn send<'a>(&mut self, commands: impl IntoIterator<Item = &'a Cmd>) {
        let mut count = 0;
        for command in commands {
            command.write_packed_command(&mut self.outgoing);
            count += 1;
        }
        self.batches.push_back(count);
    }

    /// The answers to the oldest batch, including errors of the server. Sends commands and receives
    /// pushes meanwhile. Without a batch it ends only if the connection ends. Safe to cancel.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) async fn answers(&mut self) -> RedisResult<Vec<Value>> {
        poll_fn(|cx| self.poll_answers(cx)).await
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<Vec<Value>>> {
        self.poll_write(cx);
        loop {
            if let Some(answers) = self.take_answers()? {
                return Poll::Ready(Ok(answers));
            }
            if self.is_turn_over() {
                self.spent = 0;
                return let_others_run(cx);
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    // The error of the write is more precise.
                    return Poll::Ready(Err(self.broken.take().unwrap_or(error).into()));
                }
                Poll::Pending => {
                    self.spent = 0;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether other tasks are to run now.
    fn is_turn_over(&self) -> bool {
        self.spent >= TURN_BYTES
    }

    /// Writes what the stream accepts now. Keeps an error for later: the last answers may have
    /// arrived.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        while self.written < self.outgoing.len() && self.broken.is_none() {
            let rest = &self.outgoing[self.written..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => self.broken = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => self.broken = Some(error),
            }
        }
        if self.written > 0 {
            self.outgoing.clear();
            self.outgoing.shrink_to(BATCH_BYTES);
            self.written = 0;
            self.flushed = false;
        }
        if !self.flushed && self.broken.is_none() {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(error)) => self.broken = Some(error),
            }
        }
    }

    /// Reads the bytes that have arrived, but no more than one turn handles.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.make_room();
        let end = self.incoming.len().min(self.arrived + TURN_BYTES);
        let mut room = ReadBuf::new(&mut self.incoming[self.arrived..end]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.arrived += count;
        self.spent += count.max(READ_COST);
        Poll::Ready(Ok(()))
    }

    /// The buffer stays below four times [`resp::REPLY_MAX_BYTES`]: the framer refuses
    /// longer replies.
    fn make_room(&mut self) {
        if self.read == self.arrived {
            (self.read, self.arrived) = (0, 0);
            if self.incoming.len() > CHUNK {
                self.incoming = vec![0; CHUNK];
            }
        }
        if self.arrived < self.incoming.len() {
            return;
        }
        self.incoming.copy_within(self.read.., 0);
        self.arrived -= self.read;
        self.read = 0;
        if self.arrived > self.incoming.len() / 2 {
            self.incoming.resize(2 * self.incoming.len(), 0);
        }
    }

    /// The answers to the oldest batch, if all have arrived and can be read within this turn.
    fn take_answers(&mut self) -> RedisResult<Option<Vec<Value>>> {
        loop {
            if let Some(wanted) = self.batches.front()
                && self.answers.len() == *wanted
            {
                self.batches.pop_front();
                self.memory = 0;
                return Ok(Some(std::mem::take(&mut self.answers)));
            }
            if self.is_turn_over() {
                return Ok(None);
            }
            let bytes = &self.incoming[self.read..self.arrived];
            let Some(length) = self.framer.find(bytes)? else {
                return Ok(None);
            };
            let value = resp::read_value(&bytes[..length])?;
            self.read += length;
            self.take(value, length)?;
        }
    }

    /// Takes a reply of `length` bytes.
    fn take(&mut self, value: Value, length: usize) -> RedisResult<()> {
        let value = match value {
            // The answer to a subscription.
            Value::Push {
                kind: PushKind::Subscribe,
                ..
            } => Value::Okay,
            Value::Push { kind, data } => {
                self.spent += PUSH_COST;
                // Without RESP3 a server must not push.
                let listeners = self.listeners.as_ref().ok_or_else(unasked)?;
                let calls = std::mem::take(&mut self.calls);
                return Ok(listeners.receive(&PushInfo { kind, data }, length, calls)?);
            }
            value => value,
        };
        if self.batches.is_empty() {
            return Err(unasked());
        }
        self.memory += memory(length, self.framer.values);
        if self.memory > BATCH_MAX_MEMORY {
            return Err(Excess::Batch.into());
        }
        self.answers.push(value);
        Ok(())
    }

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

/// Ends this turn and requests another, after the tokio runtime has polled its sockets and timers.
/// Waking the task at once is not enough: a runtime with one thread polls them only every 61 polls
/// while some task is always ready.
fn let_others_run<T>(cx: &mut Context<'_>) -> Poll<T> {
    let yielded = std::pin::pin!(tokio::task::yield_now());
    // Pending at its first poll, and wakes the task.
    let _ = yielded.poll(cx);
    Poll::Pending
}

fn unasked() -> RedisError {
    (ErrorKind::Parse, "a reply without a request").into()
}

#[cfg(test)]
mod tests;
