//! A connection whose tokio runtime has ended: releases are still written to it.
//!
//! A guard may be dropped after the task of its connection: the tokio runtime drops its tasks in
//! any order, and a guard may outlive the runtime. The socket is kept for such guards as long as
//! the client lives. Only releases are written: no reply is read, so no call may be granted
//! anything.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::message::Request;
use crate::node::{CallError, Trouble};
use crate::time::Timestamp;

use super::codec::{self, ScriptForm, ScriptTerms};
use super::node::{Work, WorkQueue};
use super::session::Session;
use super::wire::resp::Packer;
use super::wire::stream::{Detached, Remainder};

/// See the module.
pub(super) struct DetachedConnection {
    /// In non-blocking mode.
    stream: Box<dyn Detached>,
    /// Bytes that the stream has not accepted yet. They go first: a command must not begin in the
    /// middle of another.
    unwritten: Vec<u8>,
    terms: ScriptTerms,
}

impl DetachedConnection {
    /// The tokio runtime ends: keeps the connection of `session` in `slot` for later releases, waits
    /// for missing replies until `until`, and answers the rest of `queue` with `trouble`.
    pub(super) fn leave(
        slot: &Mutex<Option<Self>>,
        session: Session,
        mut queue: WorkQueue,
        until: Timestamp,
        trouble: Trouble,
    ) {
        let Ok(membership) = session.membership else {
            return;
        };
        let Some(mut remainder) = session.connection.detach() else {
            return;
        };
        remainder.read_missing(until);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let mut detached = Self::new(remainder, membership.terms);
        // Under the lock, so that a call that can no longer be queued is sent after the queued
        // ones.
        queue.close();
        let mut left = Vec::new();
        while let Some(work) = queue.try_next() {
            if let (Some(detached), Work::Call(call)) = (&mut detached, &work) {
                detached.send(&call.request);
            }
            left.push(work);
        }
        *slot = detached;
        drop(slot);
        // After unlocking: an answer may cause the next call.
        let failure = CallError::Unknown(trouble);
        left.into_iter().for_each(|work| work.fail(failure.clone()));
    }

    /// `None` if the connection cannot be used.
    fn new(remainder: Remainder, terms: ScriptTerms) -> Option<Self> {
        remainder.stream.set_patience(None).ok()?;
        Some(Self {
            stream: remainder.stream,
            unwritten: remainder.unwritten,
            terms,
        })
    }

    /// Writes `request` if it is a release. Returns whether a part of it may reach the server.
    pub(super) fn send(&mut self, request: &Request) -> bool {
        if !request.op.is_release() {
            return false;
        }
        let out = &mut self.unwritten;
        codec::write(
            request,
            &self.terms,
            ScriptForm::Hash,
            &mut Packer::new(out),
        );
        self.write();
        true
    }

    fn write(&mut self) {
        let mut written = 0;
        while written < self.unwritten.len() {
            match self.stream.write(&self.unwritten[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The rest is written with the next release, if any.
                Err(_) => break,
            }
        }
        self.unwritten.drain(..written);
        // Best effort: TLS may still buffer some of it.
        let _ = self.stream.flush();
    }
}
