//! The streams of connections, with a tokio runtime and without one, and the remainder of a
//! connection whose tokio runtime has ended.

use std::io::{self, Read, Write};
use std::net::TcpStream as StdTcpStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;

use crate::clock::Clock;
use crate::time::Timestamp;

use super::resp::Framer;

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The stream without its tokio runtime, in non-blocking mode; `None` if that is not possible.
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>>;
}

impl Stream for TcpStream {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        Some(Box::new(self.into_std().ok()?))
    }
}

#[cfg(unix)]
impl Stream for UnixStream {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        Some(Box::new(self.into_std().ok()?))
    }
}

impl Stream for TlsStream<TcpStream> {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        let (stream, session) = self.into_inner();
        let stream = stream.into_std().ok()?;
        Some(Box::new(rustls::StreamOwned::new(session, stream)))
    }
}

/// A stream without a tokio runtime.
pub(crate) trait Detached: Read + Write + Send {
    /// Lets reads and writes wait for at most this long, or not at all.
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()>;
}

impl Detached for StdTcpStream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(patience.is_none())?;
        self.set_read_timeout(patience)?;
        self.set_write_timeout(patience)
    }
}

#[cfg(unix)]
impl Detached for StdUnixStream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(patience.is_none())?;
        self.set_read_timeout(patience)?;
        self.set_write_timeout(patience)
    }
}

impl Detached for rustls::StreamOwned<rustls::ClientConnection, StdTcpStream> {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.sock.set_patience(patience)
    }
}

/// The remainder of a connection when its tokio runtime ends.
pub(crate) struct Remainder {
    pub(crate) stream: Box<dyn Detached>,
    /// Bytes that the stream has not accepted yet.
    pub(crate) unwritten: Vec<u8>,
    /// Bytes that have arrived and were not parsed.
    pub(crate) arrived: Vec<u8>,
    pub(crate) framer: Framer,
    /// How many replies have not arrived.
    pub(crate) missing: usize,
}

impl Remainder {
    /// Waits for the missing replies until `until`, and discards them. If the process ended before,
    /// the server's reply would meet a reset connection, and the server would drop the commands
    /// that it has not read yet.
    pub(crate) fn read_missing(&mut self, until: Timestamp) {
        let mut chunk = [0; 4 << 10];
        while self.missing > 0 {
            match self.framer.find(&self.arrived) {
                Ok(Some(length)) => {
                    // A push is not a reply.
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
