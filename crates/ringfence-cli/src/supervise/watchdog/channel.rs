//! Messages between ringfence and its watchdog, over a socket.
//!
//! Neither process may wait for the other, because the other may be stopped. So a message that does
//! not fit into the socket is stored and sent later. A closed socket means that the other has died.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::super::ending::Ended;
use super::super::process::ProcessIdentity;

/// From ringfence to its watchdog.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Start the command.
    Start(Start),
    /// The lock was renewed. The new time to kill, in nanoseconds of the clock.
    KillAt(u64),
    /// Exit without killing anything.
    Leave,
}

/// A command to start.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The name of the lock, for messages.
    pub(crate) lock: String,
    /// When to kill all processes, unless a later time arrives; in nanoseconds of the clock.
    pub(crate) kill_at: u64,
    /// Whether the command takes the terminal.
    pub(crate) foreground: bool,
    /// Variables that are added to the environment.
    pub(crate) env: Vec<(String, String)>,
}

/// From the watchdog to ringfence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WatchdogEvent {
    /// The command runs.
    Started(ProcessIdentity),
    /// The command could not be started, with the system's error number.
    NotStarted(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command ended and was reaped.
    Ended(Ended),
    /// Another process below the watchdog ended and was reaped.
    OtherEnded,
    /// The time to kill came and no later time had arrived: all processes are killed.
    Overdue,
}

/// One end of the socket.
pub(super) struct Channel {
    stream: UnixStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Channel {
    /// Turns the socket into a channel. Call it inside a tokio runtime.
    pub(super) fn over(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: UnixStream::from_std(stream)?,
            inbox: Vec::new(),
            outbox: Vec::new(),
        })
    }

    /// Sends `message` now, or during a later call if the socket is full. Returns `false` if the
    /// message was dropped because earlier messages still wait.
    pub(super) fn send(&mut self, message: &impl Message) -> bool {
        let is_sent = self.outbox.is_empty() || !message.can_be_dropped();
        if is_sent {
            let body = serde_json::to_vec(message).unwrap_or_default();
            self.outbox.extend_from_slice(&body.len().to_le_bytes());
            self.outbox.extend_from_slice(&body);
        }
        // tokio does not know yet whether the socket is writable, so try it.
        let sent = write(&self.stream, &self.outbox);
        self.sent(sent);
        is_sent
    }

    /// The next message; `None` if the other process has died. Cancel safe.
    pub(super) async fn recv<M: Message>(&mut self) -> Option<M> {
        loop {
            if let Some(message) = self.take() {
                return message;
            }
            let mut interest = Interest::READABLE;
            if !self.outbox.is_empty() {
                interest = interest.add(Interest::WRITABLE);
            }
            let ready = self.stream.ready(interest).await.ok()?;
            if ready.is_writable() && !self.outbox.is_empty() {
                self.flush();
            }
            if ready.is_readable() {
                let mut bytes = [0; 4096];
                match self.stream.try_read(&mut bytes) {
                    Ok(0) => return None,
                    Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return None,
                }
            }
        }
    }

    /// The first message in the inbox, if it is complete; `Some(None)` if it is malformed, which is
    /// treated as the end of the channel.
    #[allow(clippy::option_option)]
    fn take<M: Message>(&mut self) -> Option<Option<M>> {
        let (length, rest) = self.inbox.split_first_chunk()?;
        let length = usize::from_le_bytes(*length);
        let message = serde_json::from_slice(rest.get(..length)?).ok();
        self.inbox.drain(..size_of::<usize>() + length);
        Some(message)
    }

    fn flush(&mut self) {
        let (stream, outbox) = (&self.stream, &self.outbox);
        let sent = stream.try_io(Interest::WRITABLE, || write(stream, outbox));
        self.sent(sent);
    }

    fn sent(&mut self, sent: io::Result<usize>) {
        match sent {
            Ok(count) => drop(self.outbox.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The other process has died; `recv` will report it.
            Err(_) => self.outbox.clear(),
        }
    }
}

fn write(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(stream, bytes, SendFlags::NOSIGNAL)?)
}

/// Sends a copy of `descriptor` through a new socket, before any message.
pub(in super::super) fn send_descriptor(
    stream: &StdStream,
    descriptor: impl AsFd,
) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [io::IoSlice::new(&[0])];
    sendmsg(stream, &byte, &mut control, SendFlags::empty())?;
    Ok(())
}

/// The command must not inherit what the watchdog receives.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Waits for a descriptor that the other end sent.
pub(in super::super) fn recv_descriptor(stream: &StdStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [io::IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut bytes, &mut control, CLOSE_ON_EXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A message that can be sent.
pub(super) trait Message: Serialize + DeserializeOwned {
    /// Whether it may be dropped, because a later message of its kind replaces it.
    fn can_be_dropped(&self) -> bool;
}

impl Message for Order {
    fn can_be_dropped(&self) -> bool {
        matches!(self, Self::KillAt(_))
    }
}

impl Message for WatchdogEvent {
    fn can_be_dropped(&self) -> bool {
        *self == Self::OtherEnded
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::process::CommandExt;

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = StdStream::pair().unwrap();
        (Channel::over(one).unwrap(), Channel::over(other).unwrap())
    }

    fn start() -> Start {
        Start {
            lock: "x".into(),
            kill_at: 17,
            foreground: true,
            // More than fits into the socket.
            env: vec![("KEY".into(), "a".repeat(1 << 20))],
        }
    }

    #[tokio::test]
    async fn a_message_larger_than_the_socket_arrives_whole() {
        let (mut here, mut there) = pair();
        here.send(&Order::Start(start()));
        here.send(&Order::Leave);
        let sending = here.recv::<WatchdogEvent>();
        let receiving = async {
            assert_eq!(there.recv().await, Some(Order::Start(start())));
            assert_eq!(there.recv().await, Some(Order::Leave));
        };
        tokio::select! {
            event = sending => panic!("nothing was sent: {event:?}"),
            () = receiving => {}
        }
    }

    #[tokio::test]
    async fn sending_to_a_stopped_process_neither_blocks_nor_fills_memory() {
        let (mut here, mut there) = pair();
        for _ in 0..100_000 {
            here.send(&WatchdogEvent::OtherEnded);
        }
        assert!(here.outbox.len() < 100, "{}", here.outbox.len());
        here.send(&WatchdogEvent::Ended(Ended::Code(3)));
        let receiving =
            async { while there.recv().await != Some(WatchdogEvent::Ended(Ended::Code(3))) {} };
        tokio::select! {
            order = here.recv::<Order>() => panic!("nothing was sent: {order:?}"),
            () = receiving => {}
        }
    }

    #[tokio::test]
    async fn every_event_arrives_unchanged_and_a_closed_socket_is_noticed() {
        let (mut here, mut there) = pair();
        let events = [
            WatchdogEvent::Started(ProcessIdentity::of(rustix::process::getpid()).unwrap()),
            WatchdogEvent::NotStarted(2),
            WatchdogEvent::Stopped(20),
            WatchdogEvent::Ended(Ended::Code(7)),
            WatchdogEvent::Ended(Ended::Signal(9)),
            WatchdogEvent::OtherEnded,
            WatchdogEvent::Overdue,
        ];
        for event in events {
            here.send(&event);
        }
        drop(here);
        for event in events {
            assert_eq!(there.recv().await, Some(event));
        }
        assert_eq!(there.recv::<WatchdogEvent>().await, None);
    }

    #[test]
    fn a_descriptor_arrives_before_the_messages() {
        let (here, there) = StdStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"text").unwrap();
        file.rewind().unwrap();
        send_descriptor(&here, &file).unwrap();
        (&here).write_all(b"after").unwrap();
        let received = recv_descriptor(&there).unwrap();
        let mut cat = std::process::Command::new("cat");
        let output = cat.arg0("cat").stdin(received).output().unwrap();
        assert_eq!(output.stdout, b"text");
        let mut after = [0; 5];
        (&there).read_exact(&mut after).unwrap();
        assert_eq!(&after, b"after");
        drop(here);
        assert!(recv_descriptor(&there).is_err());
    }
}
