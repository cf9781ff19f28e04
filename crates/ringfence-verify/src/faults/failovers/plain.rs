//! The usual lock, for comparison: `SET NX PX` on the master that a Sentinel names, renewal and
//! release by compare. Each client process has one, on the same servers, through the same network.
//!
//! It does what the specification of Sentinel clients asks: Sentinels in turn, the role verified,
//! and all of it again after every failed call.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};
use ringfence_testkit::SentinelGroup;
use tokio::sync::watch;

use crate::history::{History, Mode, What};
use crate::random::Random;

use super::super::client::OPS_OF_CLIENT;
use super::super::journal::{Journal, now_us};
use super::call::{LONG_TTL, NAMES};

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_millis(250);
/// What the algorithm subtracts from the TTL: clock drift.
const DRIFT_US: u64 = 112_000;
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                     return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) end return 0";

/// One client of the usual lock.
pub(in super::super) struct PlainClient {
    number: u64,
    next_op: u64,
    random: Random,
    /// The addresses of the Sentinels.
    sentinels: Vec<String>,
    master: Option<MultiplexedConnection>,
    journal: Journal,
}

impl PlainClient {
    /// `nodes`: the URL of the group, without passwords.
    pub(in super::super) fn new(number: u64, seed: u64, nodes: &str, journal: Journal) -> Self {
        let hosts = nodes.split("://").nth(1).unwrap_or_default();
        let hosts = hosts.split('/').next().unwrap_or_default();
        Self {
            number,
            next_op: number * OPS_OF_CLIENT,
            random: Random::apart(seed, 1_000_000 + number),
            sentinels: hosts.split(',').map(str::to_owned).collect(),
            master: None,
            journal,
        }
    }

    /// Takes one lock after the other.
    pub(in super::super) async fn work(mut self, stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let pause_ms = match self.hold_once().await {
                Some(()) => self.random.between(1, 40),
                None => self.random.between(150, 700),
            };
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    async fn hold_once(&mut self) -> Option<()> {
        let op = self.next_op;
        self.next_op += 1;
        let name = format!("plain-{}", self.random.pick(&NAMES));
        let span_ms = match self.random.chance(55) {
            true => self.random.between(4_000, 25_000),
            false => self.random.between(2, 300),
        };
        let invoked = What::Invoked {
            op,
            client: self.number,
            mode: Mode::Exclusive,
            names: vec![name.clone()],
            waits: false,
            owner: None,
        };
        self.journal.event(now_us(), invoked);
        let (t0_us, token) = (now_us(), op.to_string());
        let ttl_ms = LONG_TTL.as_millis() as u64;
        let mut set = redis::cmd("SET");
        set.arg(&name).arg(&token).arg("NX").arg("PX").arg(ttl_ms);
        let set: Option<Option<String>> = self.call(set).await;
        let until_us = deadline_us(t0_us);
        if set.flatten().is_none() || now_us() >= until_us {
            let why = "not granted".to_owned();
            self.journal.event(now_us(), What::Refused { op, why });
            return None;
        }
        let granted = What::Granted {
            op,
            fence: None,
            slot: None,
            until_us,
        };
        self.journal.event(now_us(), granted);
        self.hold(op, &name, &token, until_us, t0_us + span_ms * 1_000)
            .await;
        self.journal.event(now_us(), What::Ended { op });
        let _: Option<u64> = self.script(RELEASE, &name, &token).await;
        Some(())
    }

    /// Holds until `end_us`, with a renewal at each third of the TTL, or until the lock is lost.
    async fn hold(&mut self, op: u64, name: &str, token: &str, mut until_us: u64, end_us: u64) {
        let third_us = LONG_TTL.as_micros() as u64 / 3;
        let mut renewed_us = now_us();
        while now_us() < end_us.min(until_us) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if now_us() < renewed_us + third_us {
                continue;
            }
            let t0_us = now_us();
            match self.script(RENEW, name, token).await {
                Some(1) if now_us() < until_us => {
                    (renewed_us, until_us) = (t0_us, deadline_us(t0_us));
                    self.journal
                        .event(now_us(), What::Deadline { op, until_us });
                }
                Some(_) => return,
                // Not known: tries again soon, until the deadline.
                None => renewed_us += third_us / 20,
            }
        }
    }

    async fn script(&mut self, script: &str, name: &str, token: &str) -> Option<u64> {
        let mut call = redis::cmd("EVAL");
        call.arg(script).arg(1).arg(name).arg(token);
        call.arg(LONG_TTL.as_millis() as u64);
        self.call(call).await
    }

    /// Makes one call on the master; finds the master first if there is no connection.
    async fn call<T: FromRedisValue>(&mut self, call: Cmd) -> Option<T> {
        if self.master.is_none() {
            self.master = self.find_master().await;
        }
        let reply = ask(&call, &mut self.master.clone()?).await;
        if reply.is_none() {
            self.master = None;
        }
        reply
    }

    /// The master that the first Sentinel names that answers, if it says itself that it is one.
    async fn find_master(&self) -> Option<MultiplexedConnection> {
        let mut question = redis::cmd("SENTINEL");
        question
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(SentinelGroup::SERVICE);
        for sentinel in &self.sentinels {
            let Some(mut sentinel) = connect(sentinel).await else {
                continue;
            };
            let named: Option<(String, u16)> = ask(&question, &mut sentinel).await;
            let Some((host, port)) = named else {
                continue;
            };
            let mut master = connect(&format!("{host}:{port}")).await?;
            let role: Vec<redis::Value> = ask(&redis::cmd("ROLE"), &mut master).await?;
            let role: String = redis::from_redis_value(role.into_iter().next()?).ok()?;
            return (role == "master").then_some(master);
        }
        None
    }
}

async fn connect(address: &str) -> Option<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://{address}")).ok()?;
    let connection = client.get_multiplexed_async_connection();
    tokio::time::timeout(TIMEOUT, connection).await.ok()?.ok()
}

/// The reply; nothing after an error or without one in time.
async fn ask<T: FromRedisValue>(call: &Cmd, server: &mut MultiplexedConnection) -> Option<T> {
    let reply = call.query_async(server);
    tokio::time::timeout(TIMEOUT, reply).await.ok()?.ok()
}

/// Until when a lock that was asked for at `t0_us` is valid.
fn deadline_us(t0_us: u64) -> u64 {
    t0_us + LONG_TTL.as_micros() as u64 - DRIFT_US
}

/// What happened to the usual locks of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlainFigures {
    /// How many were granted.
    pub grants: usize,
    /// How many of them while another client held the same lock and was inside its validity.
    pub double_holds: usize,
}

impl PlainFigures {
    pub(super) fn of(history: &History) -> Self {
        let mut holds = history.holds();
        holds.retain(|hold| hold.from_us < hold.to_us);
        holds.sort_by_key(|hold| hold.from_us);
        let mut held_until_us: HashMap<&str, u64> = HashMap::new();
        let mut figures = Self::default();
        for hold in &holds {
            figures.grants += 1;
            let until_us = held_until_us.entry(&hold.names[0]).or_default();
            figures.double_holds += usize::from(hold.from_us < *until_us);
            *until_us = hold.to_us.max(*until_us);
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::exclusive;

    #[test]
    fn a_grant_during_the_validity_of_another_is_a_double_hold() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 1, (0, 100));
        history.held(2, exclusive("x"), 2, (20, 30));
        history.held(3, exclusive("x"), 3, (40, 50));
        history.held(4, exclusive("x"), 4, (100, 130));
        history.held(5, exclusive("y"), 5, (20, 130));
        let figures = PlainFigures::of(&history);
        assert_eq!((figures.grants, figures.double_holds), (5, 2));
    }
}
