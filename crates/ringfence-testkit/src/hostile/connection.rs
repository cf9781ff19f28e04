//! The connections of a hostile server. Commands go to the real server unchanged. Each reply is
//! paired with its command, so that the current attack can replace it.

use std::collections::VecDeque;
use std::future;
use std::io;
use std::net::TcpListener as StdListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::attack::{Assault, CHUNK, Flood};
use super::{Attack, Order, Shared, State};
use crate::resp;

/// Serves every connection until the state stops it.
pub(super) async fn accept_all(listener: StdListener, shared: &Arc<Shared>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut state = shared.state.subscribe();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = state.wait_for(|state| state.stopped) => return Ok(()),
            client = listener.accept() => {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(client?.0, Arc::clone(shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let _open = Open::new(&shared);
    let Ok(mut server) = TcpStream::connect(shared.server).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let asked = Asked::default();
    let replies = Replies {
        to: to_client,
        asked: &asked,
        shared: &shared,
        state: shared.state.subscribe(),
        flood: None,
        answered: false,
    };
    // If either side closes, both ends are closed.
    tokio::select! {
        _ = relay_commands(from_client, to_server, &asked) => {}
        _ = replies.relay(from_server) => {}
    }
}

/// The commands that the server has not answered yet.
#[derive(Default)]
struct Asked(Mutex<Questions>);

#[derive(Default)]
struct Questions {
    /// The first word of each command.
    commands: VecDeque<String>,
    /// The last channel that the client subscribed to.
    channel: Option<String>,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, command: &[u8]) {
        let mut words = resp::words(command).into_iter();
        let command = words.next().unwrap_or_default().to_uppercase();
        let mut questions = self.lock();
        if command == "SUBSCRIBE" {
            questions.channel = words.next();
        }
        questions.commands.push_back(command);
    }

    fn channel(&self) -> String {
        let channel = self.lock().channel.clone();
        channel.unwrap_or_else(|| "news".to_owned())
    }
}

/// Ends when the client closes the connection.
async fn relay_commands(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    asked: &Asked,
) -> io::Result<()> {
    let mut arrived = Vec::new();
    while from.read_buf(&mut arrived).await? > 0 {
        while let Some(end) = resp::value_end(&arrived) {
            // Before it is sent, because its reply looks it up here.
            asked.note(&arrived[..end]);
            to.write_all(&arrived[..end]).await?;
            arrived.drain(..end);
        }
    }
    Ok(())
}

/// The direction to one client.
struct Replies<'a> {
    to: WriteHalf<'a>,
    asked: &'a Asked,
    shared: &'a Shared,
    state: watch::Receiver<State>,
    flood: Option<Flood>,
    /// Whether the client has received a reply: nothing is pushed before the first one.
    answered: bool,
}

impl Replies<'_> {
    /// Ends when the server closes the connection, or when an attack leaves nothing that the client
    /// can read.
    async fn relay(mut self, mut from: ReadHalf<'_>) -> io::Result<()> {
        let mut arrived = Vec::new();
        loop {
            let channel = self.asked.channel();
            tokio::select! {
                read = from.read_buf(&mut arrived) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    while let Some(end) = resp::value_end(&arrived) {
                        let value: Vec<u8> = arrived.drain(..end).collect();
                        self.pass_on(&value).await?;
                    }
                }
                _ = self.state.changed() => {
                    self.state.mark_changed();
                    self.order();
                }
                (count, pushes) = next_pushes(self.flood.as_mut(), &channel) => {
                    self.send(&pushes).await?;
                    self.shared.pushes.fetch_add(count, Ordering::SeqCst);
                }
            }
        }
    }

    /// Sends the server's `value`, or an attack instead.
    async fn pass_on(&mut self, value: &[u8]) -> io::Result<()> {
        // A subscription is answered by a push. Other pushes answer no command.
        if value[0] == b'>' && !value.windows(9).any(|word| word == b"subscribe") {
            return self.to.write_all(value).await;
        }
        self.answered = true;
        let command = self.asked.lock().commands.pop_front().unwrap_or_default();
        let aimed_at = |order: &Arc<Order>| order.command.is_none_or(|name| name == command);
        let Some(order) = self.order().filter(aimed_at) else {
            return self.to.write_all(value).await;
        };
        let number = self.shared.attacks.load(Ordering::SeqCst);
        let Some(assault) = Assault::new(&order.attack, value, number) else {
            self.to.write_all(value).await?;
            self.begin_flood(&order.attack);
            return Ok(());
        };
        self.shared.attacks.fetch_add(1, Ordering::SeqCst);
        self.assault(&assault).await
    }

    /// Sends `assault`. Fails if the client cannot read further replies afterwards.
    async fn assault(&mut self, assault: &Assault) -> io::Result<()> {
        self.send(&assault.opening).await?;
        let mut left = assault.repeated;
        while left > 0 {
            let size = left.min(assault.pattern.len() as u64);
            self.send(&assault.pattern[..size as usize]).await?;
            left -= size;
            if let Some(pause) = assault.pause {
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = self.state.changed() => return Err(over()),
                }
            }
        }
        self.send(assault.ending).await?;
        if assault.completes {
            return Ok(());
        }
        Err(over())
    }

    /// Sends bytes of an attack. Fails if the attack is stopped meanwhile: the client may read
    /// slowly, or never.
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            tokio::select! {
                biased;
                sent = self.to.write_all(chunk) => sent?,
                _ = self.state.changed() => return Err(over()),
            }
            let count = chunk.len() as u64;
            self.shared.sent_bytes.fetch_add(count, Ordering::SeqCst);
        }
        Ok(())
    }

    fn begin_flood(&mut self, attack: &Attack) {
        let Attack::Pushes { push, per_second } = attack else {
            return;
        };
        if self.flood.is_none() && self.answered {
            self.flood = Some(Flood::new(*push, *per_second));
            self.shared.attacks.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The current order. A new order ends the flood of the last one.
    fn order(&mut self) -> Option<Arc<Order>> {
        let is_new = self.state.has_changed().unwrap_or(false);
        let order = self.state.borrow_and_update().order.clone();
        if is_new {
            self.flood = None;
            if let Some(order) = order.as_ref().filter(|order| order.command.is_none()) {
                self.begin_flood(&order.attack);
            }
        }
        order
    }
}

async fn next_pushes(flood: Option<&mut Flood>, channel: &str) -> (u64, Vec<u8>) {
    match flood {
        Some(flood) => flood.next(channel).await,
        None => future::pending().await,
    }
}

/// The error that ends a connection in the middle of an attack.
fn over() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the attack is over")
}

/// Counts a connection as open while this value lives.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.open.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}
