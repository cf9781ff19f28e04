//! A Sentinel that says what the test wants: it names an old master, or forgets the others.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::resp::{bulk, value_end, words};

/// How often a connection's thread looks whether the fake has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// What the fake Sentinel answers.
#[derive(Debug, Clone)]
pub struct Testimony {
    /// Its id (`SENTINEL MYID`).
    pub id: String,
    /// The service that it watches.
    pub service: String,
    /// The master's host and port (`SENTINEL GET-MASTER-ADDR-BY-NAME`).
    pub master: (String, u16),
    /// The configuration epoch before and after that answer (`SENTINEL MASTER`).
    pub epochs: [u64; 2],
    /// How many other Sentinels it knows.
    pub others: u32,
}

/// A program that answers like a Sentinel. Dropping it ends it.
#[derive(Debug)]
pub struct FakeSentinel {
    addr: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    testimony: Mutex<Testimony>,
    asked: AtomicUsize,
    ended: AtomicBool,
}

impl Testimony {
    /// The word of a Sentinel with this `id` about the master of `service`, like that of the two
    /// others.
    pub fn of(service: &str, id: &str, master: SocketAddr) -> Self {
        Self {
            id: id.to_owned(),
            service: service.to_owned(),
            master: (master.ip().to_string(), master.port()),
            epochs: [0, 0],
            others: 2,
        }
    }
}

impl FakeSentinel {
    /// Starts it on a free loopback port.
    ///
    /// # Panics
    /// If no port can be used.
    pub fn start(testimony: Testimony) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen");
        let addr = listener.local_addr().expect("a listener has an address");
        listener
            .set_nonblocking(true)
            .expect("cannot listen without blocking");
        let state = Arc::new(State {
            testimony: Mutex::new(testimony),
            asked: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let thread = thread::spawn({
            let state = Arc::clone(&state);
            move || accept(&listener, &state)
        });
        Self {
            addr,
            state,
            thread: Some(thread),
        }
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Answers differently from now on.
    pub fn change(&self, change: impl FnOnce(&mut Testimony)) {
        change(&mut self.state.testimony());
    }

    /// How often it was asked for the master's address.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }
}

impl Drop for FakeSentinel {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn testimony(&self) -> MutexGuard<'_, Testimony> {
        self.testimony
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to one command; `first`: it is the first `SENTINEL MASTER` of its batch.
    fn answer(&self, command: &[&str], first: bool) -> Vec<u8> {
        let testimony = self.testimony();
        match command {
            ["SENTINEL", "MYID"] => bulk(testimony.id.as_bytes()),
            ["SENTINEL", "MASTER", service] if *service == testimony.service => {
                let epoch = testimony.epochs[usize::from(!first)].to_string();
                let others = testimony.others.to_string();
                let (host, port) = (&testimony.master.0, testimony.master.1.to_string());
                list(&[
                    "name",
                    service,
                    "ip",
                    host,
                    "port",
                    &port,
                    "flags",
                    "master",
                    "config-epoch",
                    &epoch,
                    "num-slaves",
                    "2",
                    "num-other-sentinels",
                    &others,
                    "quorum",
                    "2",
                ])
            }
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service] if *service == testimony.service => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                let (host, port) = &testimony.master;
                list(&[host, &port.to_string()])
            }
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => b"*-1\r\n".to_vec(),
            ["SENTINEL", "MASTER", _] => b"-ERR No such master with that name\r\n".to_vec(),
            ["HELLO", ..] => b"-NOPROTO unsupported protocol version\r\n".to_vec(),
            ["PING"] => b"+PONG\r\n".to_vec(),
            _ => b"-ERR unknown command\r\n".to_vec(),
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    let mut serving = Vec::new();
    while !state.ended.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                let state = Arc::clone(state);
                // A connection that breaks ends its thread; the client connects again.
                serving.push(thread::spawn(move || drop(serve(stream, &state))));
            }
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    }
    for thread in serving {
        let _ = thread.join();
    }
}

fn serve(mut stream: TcpStream, state: &State) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut arrived, mut chunk) = (Vec::new(), [0; 4096]);
    while !state.ended.load(Ordering::SeqCst) {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => arrived.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        let mut first = true;
        while let Some(end) = value_end(&arrived) {
            let words = words(&arrived[..end]);
            let upper: Vec<String> = words
                .iter()
                .enumerate()
                // The service's name is not a keyword.
                .map(|(i, word)| {
                    if i < 2 {
                        word.to_uppercase()
                    } else {
                        word.clone()
                    }
                })
                .collect();
            let command: Vec<&str> = upper.iter().map(String::as_str).collect();
            stream.write_all(&state.answer(&command, first))?;
            first &= !matches!(command.as_slice(), ["SENTINEL", "MASTER", _]);
            arrived.drain(..end);
        }
    }
    Ok(())
}

fn list(items: &[&str]) -> Vec<u8> {
    let head = format!("*{}\r\n", items.len()).into_bytes();
    items
        .iter()
        .fold(head, |list, item| [list, bulk(item.as_bytes())].concat())
}
