//! A connection whose runtime has ended: releases are still written to it.
//!
//! A guard may be dropped after the task of its connection: the runtime drops its tasks in any
//! order, and a guard may outlive the runtime. The socket is kept for these, as long as the client
//! lives. Only releases are written: what nobody reads the reply to must not grant anything.

use std::io;

use crate::message::Request;

use super::command::{self, ScriptBy, ScriptTerms};
use super::transport::resp::Packer;
use super::transport::stream::{Detached, Remainder};

/// See the module.
pub(super) struct LastWords {
    /// It does not block.
    stream: Box<dyn Detached>,
    /// Bytes that the stream has not taken yet. They go first: a command must not begin in the
    /// middle of another.
    unwritten: Vec<u8>,
    terms: ScriptTerms,
}

impl LastWords {
    /// `None` if the connection is of no use.
    pub(super) fn new(remainder: Remainder, terms: ScriptTerms) -> Option<Self> {
        remainder.stream.set_patience(None).ok()?;
        Some(Self {
            stream: remainder.stream,
            unwritten: remainder.unwritten,
            terms,
        })
    }

    /// Writes `request` if it is a release. Whether at least a part of it may reach the server.
    pub(super) fn say(&mut self, request: &Request) -> bool {
        if !request.op.is_release() {
            return false;
        }
        let out = &mut self.unwritten;
        command::write(request, &self.terms, ScriptBy::Hash, &mut Packer::new(out));
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
                // The rest goes with the next release, if there is one.
                Err(_) => break,
            }
        }
        self.unwritten.drain(..written);
        // As far as it goes: TLS may keep some of it.
        let _ = self.stream.flush();
    }
}
