//! One direction of one connection: a reader that applies the current fault to the arriving bytes,
//! a queue, and a writer that delivers in order.

use std::future;
use std::pin::Pin;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Sleep, sleep};

use crate::proxy::{Fault, ProxyState, Rules};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Requests,
    Replies,
}

/// Why a connection cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is to be reset.
    Reset,
    /// Bytes were lost, and the fault that lost them has ended.
    Gap,
}

/// Carries bytes until the sender has closed its side and everything was delivered; then closes the
/// receiver's side too.
pub(crate) async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    direction: Direction,
    state: &ProxyState,
) -> Result<(), Broken> {
    let (queue, parcels) = unbounded_channel();
    let reading = read(from, queue, direction, state);
    let writing = async {
        write(to, parcels, direction, state).await;
        Ok(())
    };
    tokio::try_join!(reading, writing).map(|_| ())
}

/// Bytes on their way.
struct Parcel<'a> {
    bytes: Vec<u8>,
    waits: Wait<'a>,
}

enum Wait<'a> {
    Not,
    /// The sleep was created when the bytes arrived, and counts from then.
    Sleep(Pin<Box<Sleep>>),
    Held {
        _count: Held<'a>,
    },
}

async fn read<'a>(
    mut from: ReadHalf<'_>,
    queue: UnboundedSender<Parcel<'a>>,
    direction: Direction,
    state: &'a ProxyState,
) -> Result<(), Broken> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // A connection that was reset has ended for this pipe.
        let size = from.read(&mut buffer).await.unwrap_or(0);
        let waits = match direction.meet_fault(state) {
            Fault::BlackHole => {
                swallow(from, direction, state).await;
                return Err(Broken::Gap);
            }
            _ if size == 0 => return Ok(()),
            Fault::Reset | Fault::ResetOnce => return Err(Broken::Reset),
            Fault::None => Wait::Not,
            Fault::Delay(delay) => Wait::Sleep(Box::pin(sleep(delay))),
            Fault::Hold => Wait::Held {
                _count: Held::new(state, size),
            },
        };
        let bytes = buffer[..size].to_vec();
        // The writer lives until this queue is closed.
        let _ = queue.send(Parcel { bytes, waits });
    }
}

/// Reads and discards until the black hole ends.
async fn swallow(mut from: ReadHalf<'_>, direction: Direction, state: &ProxyState) {
    let mut buffer = vec![0; 64 * 1024];
    let drained = async {
        while matches!(from.read(&mut buffer).await, Ok(1..)) {}
        future::pending::<()>().await;
    };
    tokio::select! {
        () = drained => {}
        () = direction.fault_ends(Fault::BlackHole, state) => {}
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut parcels: UnboundedReceiver<Parcel<'_>>,
    direction: Direction,
    state: &ProxyState,
) {
    while let Some(parcel) = parcels.recv().await {
        match parcel.waits {
            Wait::Not => {}
            Wait::Sleep(sleep) => sleep.await,
            Wait::Held { _count } => direction.fault_ends(Fault::Hold, state).await,
        }
        // If the receiver is gone, the bytes are dropped; the sender notices that by itself.
        let _ = to.write_all(&parcel.bytes).await;
    }
    let _ = to.shutdown().await;
}

impl Direction {
    /// The fault for bytes that arrive now. A fault that acts once is removed by this.
    fn meet_fault(self, state: &ProxyState) -> Fault {
        let mut met = Fault::None;
        state.rules.send_if_modified(|rules| {
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

    async fn fault_ends(self, fault: Fault, state: &ProxyState) {
        let mut rules = state.rules.subscribe();
        // This cannot fail: the proxy state holds the sender.
        let _ = rules.wait_for(|rules| self.fault(rules) != fault).await;
    }

    fn fault(self, rules: &Rules) -> Fault {
        match self {
            Self::Requests => rules.requests,
            Self::Replies => rules.replies,
        }
    }
}

/// Counts bytes as held while this value lives.
struct Held<'a> {
    state: &'a ProxyState,
    size: usize,
}

impl<'a> Held<'a> {
    fn new(state: &'a ProxyState, size: usize) -> Self {
        state.held_bytes.fetch_add(size, Ordering::SeqCst);
        Self { state, size }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.state.held_bytes.fetch_sub(self.size, Ordering::SeqCst);
    }
}
