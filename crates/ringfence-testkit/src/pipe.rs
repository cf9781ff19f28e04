//! One direction of one connection: a reader that puts the fault of the moment on what arrives, a
//! queue, and a writer that delivers in order.

use std::future;
use std::pin::Pin;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Sleep, sleep};

use crate::proxy::{Fault, Line, Rules};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Requests,
    Replies,
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is to be reset.
    Reset,
    /// Bytes were lost, and the fault that lost them is over.
    Gap,
}

/// Carries bytes until the sender has hung up and all it sent has been delivered; then hangs up on
/// the receiver too.
pub(crate) async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    direction: Direction,
    line: &Line,
) -> Result<(), Broken> {
    let (queue, parcels) = unbounded_channel();
    let reading = read(from, queue, direction, line);
    let writing = async {
        write(to, parcels, direction, line).await;
        Ok(())
    };
    tokio::try_join!(reading, writing).map(|_| ())
}

/// Bytes under way.
struct Parcel<'a> {
    bytes: Vec<u8>,
    waits: Wait<'a>,
}

enum Wait<'a> {
    Not,
    /// The sleep was made when the bytes arrived, and counts from then.
    Sleep(Pin<Box<Sleep>>),
    Held {
        _count: Held<'a>,
    },
}

async fn read<'a>(
    mut from: ReadHalf<'_>,
    queue: UnboundedSender<Parcel<'a>>,
    direction: Direction,
    line: &'a Line,
) -> Result<(), Broken> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // A connection that was reset has ended, as far as this pipe goes.
        let size = from.read(&mut buffer).await.unwrap_or(0);
        let waits = match direction.meet_fault(line) {
            Fault::BlackHole => {
                swallow(from, direction, line).await;
                return Err(Broken::Gap);
            }
            _ if size == 0 => return Ok(()),
            Fault::Reset | Fault::ResetOnce => return Err(Broken::Reset),
            Fault::None => Wait::Not,
            Fault::Delay(delay) => Wait::Sleep(Box::pin(sleep(delay))),
            Fault::Hold => Wait::Held {
                _count: Held::new(line, size),
            },
        };
        let bytes = buffer[..size].to_vec();
        // The writer stays until this queue is closed.
        let _ = queue.send(Parcel { bytes, waits });
    }
}

/// Reads and forgets until the black hole is lifted.
async fn swallow(mut from: ReadHalf<'_>, direction: Direction, line: &Line) {
    let mut buffer = vec![0; 64 * 1024];
    let drained = async {
        while matches!(from.read(&mut buffer).await, Ok(1..)) {}
        future::pending::<()>().await;
    };
    tokio::select! {
        () = drained => {}
        () = direction.fault_ends(Fault::BlackHole, line) => {}
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut parcels: UnboundedReceiver<Parcel<'_>>,
    direction: Direction,
    line: &Line,
) {
    while let Some(parcel) = parcels.recv().await {
        match parcel.waits {
            Wait::Not => {}
            Wait::Sleep(sleep) => sleep.await,
            Wait::Held { _count } => direction.fault_ends(Fault::Hold, line).await,
        }
        // A receiver that has gone gets nothing; the sender finds out by itself.
        let _ = to.write_all(&parcel.bytes).await;
    }
    let _ = to.shutdown().await;
}

impl Direction {
    /// The fault that bytes meet which arrive now. One that strikes once is used up by it.
    fn meet_fault(self, line: &Line) -> Fault {
        let mut met = Fault::None;
        line.rules.send_if_modified(|rules| {
            let fault = match self {
                Self::Requests => &mut rules.requests,
                Self::Replies => &mut rules.replies,
            };
            met = *fault;
            if met == Fault::ResetOnce {
                *fault = Fault::None;
            }
            met == Fault::ResetOnce
        });
        met
    }

    async fn fault_ends(self, fault: Fault, line: &Line) {
        let mut rules = line.rules.subscribe();
        // This cannot fail: the line holds the sender.
        let _ = rules.wait_for(|rules| self.fault(rules) != fault).await;
    }

    fn fault(self, rules: &Rules) -> Fault {
        match self {
            Self::Requests => rules.requests,
            Self::Replies => rules.replies,
        }
    }
}

/// Counts bytes as held for as long as it lives.
struct Held<'a> {
    line: &'a Line,
    size: usize,
}

impl<'a> Held<'a> {
    fn new(line: &'a Line, size: usize) -> Self {
        line.held_bytes.fetch_add(size, Ordering::SeqCst);
        Self { line, size }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.line.held_bytes.fetch_sub(self.size, Ordering::SeqCst);
    }
}
