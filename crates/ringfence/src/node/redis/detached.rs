//! A connection whose tokio runtime has ended: releases are still written to it.
//!
//! A guard may be dropped after the task of its connection: the tokio runtime drops its tasks in
//! any order, and a guard may outlive the runtime. The socket is kept for such guards as long as
//! the client lives. Only releases are written: no reply is read, so no call may be granted
//! anything.

use std::io;

use crate::message::Request;

use super::command::{self, ScriptForm};
use super::terms::ScriptTerms;
use super::transport::resp::Packer;
use super::transport::stream::{Detached, Remainder};

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
    /// `None` if the connection cannot be used.
    pub(super) fn new(remainder: Remainder, terms: ScriptTerms) -> Option<Self> {
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
        command::write(
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
