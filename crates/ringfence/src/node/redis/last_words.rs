//! A connection whose runtime has ended: releases are still written to it.
//!
//! A guard may be dropped after the task of its connection: the runtime drops its tasks in any
//! order, and a guard may outlive the runtime. The socket is kept for these, as long as the client
//! lives. Only releases are written: what nobody reads the reply to must not grant anything.

use std::io::{self, Read, Write};
use std::net::TcpStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::clock::Clock;
use crate::message::Request;
use crate::time::Timestamp;

use super::command::{self, By, Terms};
use super::frame::Framer;
use super::packer::Packer;

/// A stream without a runtime.
pub(super) trait Detached: Read + Write + Send {
    /// Has reads and writes wait for at most this long, or not at all.
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()>;
}

impl Detached for TcpStream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(patience.is_none())?;
        self.set_read_timeout(patience)?;
        self.set_write_timeout(patience)
    }
}

#[cfg(unix)]
impl Detached for UnixStream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(patience.is_none())?;
        self.set_read_timeout(patience)?;
        self.set_write_timeout(patience)
    }
}

impl Detached for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.sock.set_patience(patience)
    }
}

/// What is left of a connection when its runtime ends.
pub(super) struct Remainder {
    pub(super) stream: Box<dyn Detached>,
    /// Bytes that the stream has not taken yet.
    pub(super) unwritten: Vec<u8>,
    /// Bytes that have arrived and were not read.
    pub(super) arrived: Vec<u8>,
    pub(super) framer: Framer,
    /// How many replies have not arrived.
    pub(super) missing: usize,
}

impl Remainder {
    /// Waits for the missing replies until `until`, and throws them away. If the process ended
    /// before, the server would find the connection reset when it replies, and drop the commands
    /// that it has not read yet.
    pub(super) fn read_missing(&mut self, until: Timestamp) {
        let mut chunk = [0; 4 << 10];
        while self.missing > 0 {
            match self.framer.find(&self.arrived) {
                Ok(Some(length)) => {
                    // What is pushed is nobody's reply.
                    let pushed = self.arrived.first() == Some(&b'>');
                    self.missing -= usize::from(!pushed);
                    self.arrived.drain(..length);
                    continue;
                }
                Ok(None) => {}
                Err(_) => break,
            }
            let left = until.since(Clock::System.now());
            if left.is_zero() || self.stream.set_patience(Some(left)).is_err() {
                break;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => self.arrived.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
}

/// See the module.
pub(super) struct LastWords {
    /// It does not block.
    stream: Box<dyn Detached>,
    /// Bytes that the stream has not taken yet. They go first: a command must not begin in the
    /// middle of another.
    unwritten: Vec<u8>,
    terms: Terms,
}

impl LastWords {
    /// `None` if the connection is of no use.
    pub(super) fn new(remainder: Remainder, terms: Terms) -> Option<Self> {
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
        command::write(request, &self.terms, By::Hash, &mut Packer::new(out));
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
