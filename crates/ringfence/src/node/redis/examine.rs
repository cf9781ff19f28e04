//! The examination of one server over a connection of its own: its state, our rights there, and our
//! keys without an expiry. Every command here only reads.

pub(super) mod service;

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};

use crate::clock::Clock;
use crate::message::Standing;
use crate::node::{
    Birth, ClockSample, Identity, Keys, NodeClock, ServerExamination, Trouble, TroubleKind, Voting,
    WriteStop,
};
use crate::protocol::{Cluster, Drift};
use crate::url::RedisUrl;

use super::access::rights::{self, Asking};
use super::handshake::born::BirthRecord;
use super::handshake::sections::Info;
use super::handshake::server::{BORN_ANSWER, Server, UrlOptions, ask_config, clock_us, questions};
use super::report::{Reporter, quote};
use super::scripts::BORN_KEY;
use super::wire::Connection;
use super::wire::dial::Dial;
use super::wire::wake_listeners::WakeListeners;

use self::service::{REPLICATION_ANSWER, examination, replicas};

/// How long connecting and logging in may take, and how long each answer may take.
const STEP: Duration = Duration::from_secs(2);
/// How often the clock is read; the reading with the shortest round trip counts.
const READINGS: usize = 5;
/// How long the search for keys may take.
const SEARCH: Duration = Duration::from_secs(1);
const PAGES_MAX: usize = 500;
/// Keys per page: the reply stays below the limit with the longest names, even with twice as many
/// keys, which a server that rehashes may return.
const PAGE_KEYS: usize = 200;
/// The index of `INFO persistence` in the answers to the questions of a handshake.
const PERSISTENCE_ANSWER: usize = 3;
/// The longest cursor. It is sent back to the server.
const CURSOR_MAX_BYTES: usize = 20;

/// Examines one server.
pub(crate) struct Examiner {
    url: RedisUrl,
    reporter: Reporter,
    clock: Clock,
    nodes: usize,
    drift: Drift,
    /// Whether to log in to the replicas of a service, for their clocks.
    pub(crate) replica_clocks: bool,
}

impl Examiner {
    /// An examiner of the server at `url`, one of `nodes`, for clients that allow for `drift`.
    pub(crate) fn new(url: RedisUrl, clock: Clock, nodes: usize, drift: Drift) -> Self {
        let reporter = Reporter::of(&url);
        Self {
            url,
            reporter,
            clock,
            nodes,
            drift,
            replica_clocks: false,
        }
    }

    /// Examines the server, and compares its clock with `wall`. Also checks the rights on the lock
    /// `name`. Ends within a bounded time, whatever the server does.
    pub(crate) async fn examine(
        &self,
        wall: &NodeClock,
        name: Option<&str>,
    ) -> Result<ServerExamination, Trouble> {
        let dial = Dial::url(&self.url).map_err(|error| self.untried(&error))?;
        let listeners = Arc::new(WakeListeners::default());
        let master = self.find_master().await?;
        let address = master.as_ref().map(|(confirmed, _)| &confirmed.address);
        let mut connection = self.bounded(dial.connect(address, &listeners)).await?;
        let (mut answers, rights) = self.ask(&mut connection, name).await?;
        // Rights that are not known to be denied are tried.
        let may = |found: fn(&rights::FoundRights) -> bool| rights.as_ref().map_or(true, found);
        let (may_ask_config, may_scan) = (may(|found| found.config), may(|found| found.scan));
        if may_ask_config {
            let mut pipe = redis::pipe();
            ask_config(&mut pipe);
            answers.extend(self.bounded(connection.ask(pipe)).await?);
        }
        // Read separately: a node in cluster mode refuses the key, but still reports its mode.
        let born = answers.get_mut(BORN_ANSWER);
        let born = born.map_or(Value::Nil, |born| std::mem::replace(born, Value::Nil));
        let options = UrlOptions::of(&self.url);
        let replicas = replicas(answers.get(REPLICATION_ANSWER));
        let stops = self.write_stops(&mut connection, &answers, may_ask_config);
        let write_stops = stops.await;
        let server = Server::look(answers, &self.reporter)
            .map(|server| server.with_options(options))
            .map(|server| server.with_epoch(master.as_ref().map(|(found, _)| found.epoch)))
            .map_err(|e| e.trouble().clone());
        let born = self.read_born(born);
        let clock = self.read_clock(&mut connection, wall).await;
        let keys = match may_scan {
            true => self.search_keys(&mut connection).await,
            false => Err(self.reporter.denied_command("scan")),
        };
        let birth = born.as_ref().map_err(Trouble::clone).map(|born| Birth {
            voting: self.voting(born.as_ref(), server.as_ref().ok()),
            kept_for: kept_for(born.as_ref(), server.as_ref().ok()),
            group: born.as_ref().map(|born| born.group),
            replicated: born.as_ref().is_some_and(|born| born.server.replicated),
        });
        let own_born = born.ok().flatten();
        let service = match master {
            Some(master) => {
                let least = self.least_replicas(&mut connection, may_ask_config).await;
                let replicas = self.examine_replicas(&dial, replicas, wall).await;
                Some(examination(master, replicas, least))
            }
            None => None,
        };
        Ok(ServerExamination {
            service,
            user: self.reporter.user.to_string(),
            clock,
            identity: server.map(|server| identity(server, options, own_born.as_ref())),
            birth,
            rights: rights.map(|found| found.rights),
            keys,
            write_stops,
            pushes: connection.has_pushes(),
            quarantine_off: options.no_quarantine,
            eviction_allowed: options.eviction_allowed,
            said_durable: options.said_durable,
        })
    }

    /// Asks for the state of the server and the rights of our user.
    async fn ask(
        &self,
        connection: &mut Connection,
        name: Option<&str>,
    ) -> Result<(Vec<Value>, Result<rights::FoundRights, Trouble>), Trouble> {
        let mut pipe = questions();
        pipe.add_command(rights::question(name, Asking::ByHash));
        let mut answers = self.bounded(connection.ask(pipe)).await?;
        let mut rights = answers.pop();
        if matches!(rights, Some(Value::ServerError(_))) {
            // The script is not loaded, or our user has `+eval` but not `+evalsha_ro`.
            let mut pipe = redis::pipe();
            pipe.add_command(rights::question(name, Asking::InFull));
            let again = self.bounded(connection.ask(pipe)).await?.pop();
            if rights::has_no_scripts(rights.as_ref()) && rights::is_denied(again.as_ref()) {
                return Ok((answers, Err(self.reporter.unloaded())));
            }
            rights = again;
        }
        Ok((answers, self.read_rights(rights, name)))
    }

    /// Waits for `step` for at most [`STEP`].
    async fn bounded<T>(&self, step: impl Future<Output = RedisResult<T>>) -> Result<T, Trouble> {
        tokio::select! {
            biased;
            done = step => done.map_err(|error: RedisError| self.reporter.connection(&error)),
            () = self.clock.sleep_until(self.clock.now() + STEP) => Err(self.reporter.trouble(
                TroubleKind::Timeout,
                format!("did not answer within {} s", STEP.as_secs()),
            )),
        }
    }

    fn read_rights(
        &self,
        answer: Option<Value>,
        name: Option<&str>,
    ) -> Result<rights::FoundRights, Trouble> {
        match answer {
            Some(Value::ServerError(error)) => Err(self.reporter.server_error(&error)),
            Some(answer) => rights::read(&answer, name).ok_or_else(|| self.reporter.garbage()),
            None => Err(self.reporter.garbage()),
        }
    }

    fn read_born(&self, answer: Value) -> Result<Option<BirthRecord>, Trouble> {
        match answer {
            Value::Nil => Ok(None),
            Value::BulkString(text) => {
                let text = String::from_utf8_lossy(&text);
                self.reporter
                    .read_birth(&text, self.url.sentinel.is_some())
                    .map(Some)
            }
            Value::ServerError(error) => Err(self.reporter.server_error(&error)),
            _ => Err(self.reporter.garbage()),
        }
    }

    /// Whether the server's votes count, with this birth record.
    fn voting(&self, born: Option<&BirthRecord>, server: Option<&Server>) -> Voting {
        // The URL may switch the quarantine off.
        let (true, Some(server)) = (self.url.quarantine, server) else {
            return Voting::Now;
        };
        // A single node has a quarantine only if a failover may replace it.
        let level = born.map_or(self.url.failover.unwrap_or_default(), |born| {
            born.group.failover
        });
        let replicated = server.has_replicas || born.is_some_and(BirthRecord::is_replaceable);
        if self.nodes == 1 && !level.quarantines(replicated) {
            return Voting::Now;
        }
        let Some(born) = born else {
            return Voting::NeverMet;
        };
        if !server.has_kept(born) {
            return Voting::Restarted;
        }
        let standing = Standing {
            incarnation: born.since_us,
            born_us: born.birth_us,
            clock_us: server.clock_us,
            server: Standing::server_of(&server.run_id),
            replicated: born.is_replaceable(),
            epoch: born.server.epoch,
        };
        let cluster = Cluster::new(&born.group, self.drift, &vec![true; self.nodes]);
        let left = cluster.quarantine_left(0, standing, self.clock.now());
        left.map_or(Voting::Now, Voting::In)
    }

    /// The reading with the shortest round trip, which is the most exact.
    async fn read_clock(
        &self,
        connection: &mut Connection,
        wall: &NodeClock,
    ) -> Result<ClockSample, Trouble> {
        let mut question = redis::pipe();
        question.cmd("TIME");
        let mut best: Option<ClockSample> = None;
        for _ in 0..READINGS {
            let sent_us = wall.now_us();
            let answer = self.bounded(connection.ask(question.clone())).await?;
            let round_trip_us = wall.now_us().saturating_sub(sent_us);
            let round_trip = Duration::from_micros(round_trip_us);
            let clock_us = match answer.first() {
                Some(Value::ServerError(error)) => return Err(self.reporter.server_error(error)),
                Some(time) => clock_us(time),
                None => None,
            };
            let clock_us = clock_us.ok_or_else(|| self.reporter.garbage())?;
            if best.is_none_or(|best| round_trip < best.round_trip) {
                let ours_us = sent_us + round_trip_us / 2;
                best = Some(ClockSample {
                    ahead_us: signed(clock_us).saturating_sub(signed(ours_us)),
                    round_trip,
                });
            }
        }
        best.ok_or_else(|| self.reporter.garbage())
    }

    /// Searches for keys of ours without an expiry; only `born` should have none.
    async fn search_keys(&self, connection: &mut Connection) -> Result<Keys, Trouble> {
        let until = self.clock.now() + SEARCH;
        let mut keys = Keys::default();
        let mut cursor = b"0".to_vec();
        for _ in 0..PAGES_MAX {
            let (next, page) = self.turn_page(connection, &cursor).await?;
            let page: Vec<Vec<u8>> = page
                .into_iter()
                .filter(|key| key != BORN_KEY.as_bytes())
                .collect();
            let found = page.len() as u64;
            let (hidden, lasting) = self.without_expiry(connection, page).await?;
            keys.looked_at += found - hidden;
            keys.hidden += hidden;
            for key in lasting {
                keys.lasting += 1;
                keys.example
                    .get_or_insert_with(|| quote(&String::from_utf8_lossy(&key)));
            }
            cursor = next;
            if cursor == b"0" {
                keys.complete = true;
                break;
            }
            if self.clock.now() >= until {
                break;
            }
        }
        Ok(keys)
    }

    async fn turn_page(
        &self,
        connection: &mut Connection,
        cursor: &[u8],
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>), Trouble> {
        let mut question = redis::pipe();
        question.cmd("SCAN").arg(cursor);
        question
            .arg("MATCH")
            .arg("ringfence:*")
            .arg("COUNT")
            .arg(PAGE_KEYS);
        let answer = self.bounded(connection.ask(question)).await?.pop();
        let page = match answer {
            Some(Value::Array(parts)) => <[Value; 2]>::try_from(parts).ok(),
            Some(Value::ServerError(error)) => return Err(self.reporter.server_error(&error)),
            _ => None,
        };
        match page {
            Some([Value::BulkString(next), Value::Array(keys)])
                if next.len() <= CURSOR_MAX_BYTES =>
            {
                let keys = keys.into_iter().filter_map(|key| match key {
                    Value::BulkString(key) => Some(key),
                    _ => None,
                });
                Ok((next, keys.collect()))
            }
            _ => Err(self.reporter.garbage()),
        }
    }

    /// How many of `keys` our user may not read, and which of the others have no expiry.
    async fn without_expiry(
        &self,
        connection: &mut Connection,
        keys: Vec<Vec<u8>>,
    ) -> Result<(u64, Vec<Vec<u8>>), Trouble> {
        if keys.is_empty() {
            return Ok((0, keys));
        }
        let mut question = redis::pipe();
        for key in &keys {
            question.cmd("PTTL").arg(key);
        }
        let answers = self.bounded(connection.ask(question)).await?;
        let denied = |answer: &&Value| matches!(answer, Value::ServerError(_));
        let hidden = answers.iter().filter(denied).count() as u64;
        // -1: the key has no expiry. -2: it has expired meanwhile, which is fine.
        let lasting = keys.into_iter().zip(answers);
        let lasting = lasting.filter(|(_, answer)| *answer == Value::Int(-1));
        Ok((hidden, lasting.map(|(key, _)| key).collect()))
    }

    /// Why the server refuses writes, as far as it tells without a write: the reasons in the `answers` to the questions of a handshake, and in the settings that decide
    /// whether they are reasons.
    async fn write_stops(
        &self,
        connection: &mut Connection,
        answers: &[Value],
        may_ask_config: bool,
    ) -> Vec<WriteStop> {
        let info = |at: usize| answers.get(at).and_then(Info::read).unwrap_or_default();
        let (persistence, replication) = (info(PERSISTENCE_ANSWER), info(REPLICATION_ANSWER));
        let mut stops = Vec::new();
        if persistence.get("rdb_last_bgsave_status") == Some("err") {
            let error = self
                .setting(connection, "stop-writes-on-bgsave-error", may_ask_config)
                .await;
            let save = self.setting(connection, "save", may_ask_config).await;
            let both = error.zip(save);
            let stops_writes = both.map(|(error, save)| error == "yes" && !save.is_empty());
            stops.push(WriteStop::SnapshotFailed {
                stops: stops_writes,
            });
        }
        let has_log = persistence.get("aof_enabled") == Some("1");
        if has_log && persistence.get("aof_last_write_status") == Some("err") {
            stops.push(WriteStop::LogFailed);
        }
        // The server reports this only if it needs replicas.
        let good = replication.get("min_slaves_good_slaves");
        if let Some(good) = good.and_then(|good| good.parse().ok()) {
            let needed = self.least_replicas(connection, may_ask_config).await;
            if needed.unwrap_or(1) > good {
                stops.push(WriteStop::TooFewReplicas { good, needed });
            }
        }
        stops
    }
}

/// The description of `server` with the birth record `born`.
fn identity(server: Server, options: UrlOptions, born: Option<&BirthRecord>) -> Identity {
    Identity {
        tier: server.tier(options, born),
        run_id: server.run_id,
        unseen: server.unseen,
        version: server.version,
        role: server.role,
        loading: server.loading,
        on_disk: server.on_disk,
        has_replicas: server.has_replicas,
        tells_replication_id: server.replication_id.is_some(),
        backlog_ttl: server.backlog_ttl_s.map(Duration::from_secs),
        memory: server.memory,
    }
}

fn kept_for(born: Option<&BirthRecord>, server: Option<&Server>) -> Option<Duration> {
    let (born, server) = (born?, server?);
    let kept_us = server.clock_us.saturating_sub(born.since_us);
    server
        .has_kept(born)
        .then(|| Duration::from_micros(kept_us))
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
