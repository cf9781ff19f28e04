//! The handshake on every new connection, and again whenever the node may have forgotten locks:
//! examine the server, join the group, load the scripts.

pub(crate) mod born;
pub(crate) mod init;
pub(crate) mod sections;
pub(crate) mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{RedisError, Value};

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::group::Group;
use crate::ledger::Rules;
use crate::message::Standing;
use crate::node::{CallError, Facts, Trouble, TroubleKind};
use crate::time::Timestamp;

use self::born::{BORN_MAX_BYTES, BirthRecord, group_fields};
use self::sections::Image;
use self::server::{Server, UrlOptions, ask_config, questions, refuse_config};
use crate::node::redis::access::rights::Asking;
use crate::node::redis::codec::ScriptTerms;
use crate::node::redis::codec::reply::{Fields, MalformedReply, NUMBER_MAX_BYTES};
use crate::node::redis::report::Reporter;
use crate::node::redis::scripts::{BORN_KEY, SCRIPTS};
use crate::node::redis::sentinel::Sentinels;
use crate::node::redis::session::Membership;
use crate::node::redis::wire::{Allowed, Connection};
use crate::protocol::MasterAddress;

/// The handshake with one node.
pub(crate) struct Handshake {
    pub(crate) reporter: Reporter,
    pub(crate) options: UrlOptions,
    pub(crate) clock: Clock,
    /// The Sentinels that name the server, if its URL has any.
    pub(crate) sentinels: Option<Arc<Sentinels>>,
    /// Whether it was told that our user may not run `INFO`.
    pub(crate) told_unseen: AtomicBool,
    /// Whether the server was ever seen to have a replica.
    pub(crate) replicas_seen: AtomicBool,
}

impl Handshake {
    /// Reads the node's facts without changing it.
    pub(crate) async fn probe(
        &self,
        connection: &mut Connection,
    ) -> Result<(Server, Facts), CallError> {
        let sent = self.clock.now();
        let server = self.look(connection).await?;
        let received = self.clock.now();
        let born = server
            .born
            .as_deref()
            .map(|text| self.read_born(text))
            .transpose()?;
        let facts = self.facts(&server, born.as_ref(), server.clock_us, (sent, received));
        Ok((server, facts))
    }

    /// Reads the server's state, with any birth record.
    pub(crate) async fn look(&self, connection: &mut Connection) -> Result<Server, CallError> {
        // A user who could only look may have got more rights meanwhile.
        let never_joins = self.options.never_joins;
        let known = connection
            .allowed
            .filter(|allowed| allowed.join || never_joins);
        let mut pipe = questions();
        match known {
            None => {
                pipe.add_command(Allowed::question(Asking::ByHash));
            }
            Some(allowed) if allowed.config => ask_config(&mut pipe),
            Some(_) => {}
        }
        let mut answers = connection.ask(pipe).await.map_err(|e| self.unsent(&e))?;
        if known.is_none() {
            let mut allowed = self.allowed(connection, answers.pop()).await?;
            allowed.join &= !never_joins;
            connection.allowed = Some(allowed);
            if allowed.config {
                let mut pipe = redis::pipe();
                ask_config(&mut pipe);
                answers.extend(connection.ask(pipe).await.map_err(|e| self.unsent(&e))?);
            }
        }
        if refuse_config(&answers) {
            connection.refuse_config();
        }
        let server = Server::read(answers, &self.reporter, self.options);
        let mut server = server.map_err(|error| self.demoted(error))?;
        let master = connection.master.clone();
        self.ask_sentinels(master.as_ref(), &mut server).await?;
        if server.run_id.is_empty() {
            server.run_id = made_up_id();
        }
        if self.replicas_seen.load(Ordering::Relaxed) {
            // A failover and back may have undone the mark in the birth record, with the last locks.
            (server.has_replicas, server.durable) = (true, false);
        }
        if server.unseen {
            self.warn_unseen();
        } else if server.replication_id.is_none() {
            let node = &self.reporter.node;
            tracing::debug!(
                target: "ringfence", %node,
                "reports no replication id; a failover and back is not noticed there"
            );
        }
        Ok(server)
    }

    /// What our user may do, by its `answer` to the question by hash. If the server lacks the script
    /// of the question, it is asked again in full.
    async fn allowed(
        &self,
        connection: &mut Connection,
        answer: Option<Value>,
    ) -> Result<Allowed, CallError> {
        if let Some(allowed) = Allowed::read(answer.as_ref()) {
            return Ok(allowed);
        }
        let mut pipe = redis::pipe();
        pipe.add_command(Allowed::question(Asking::InFull));
        let again = connection.ask(pipe).await.map_err(|e| self.unsent(&e))?;
        Ok(Allowed::read_again(answer.as_ref(), again.first()))
    }

    /// Tells once that the server's state is not known.
    fn warn_unseen(&self) {
        if self.told_unseen.swap(true, Ordering::Relaxed) {
            return;
        }
        let (node, user) = (&self.reporter.node, self.reporter.user.escape_debug());
        tracing::warn!(
            target: "ringfence", %node,
            "does not let user `{user}` run INFO: best effort. A restart with old data is not \
             noticed, nor a failover without Sentinels, and two clients may then hold one lock. Grant \
             it with ACL SETUSER {user} +info; if no failover loses a write, say ?failover=lossless"
        );
    }

    /// Has a majority of the Sentinels confirm that `server`, which was examined before, is the
    /// master. So a birth is written only to a master that a majority names.
    async fn ask_sentinels(
        &self,
        master: Option<&MasterAddress>,
        server: &mut Server,
    ) -> Result<(), CallError> {
        let (Some(sentinels), Some(master)) = (&self.sentinels, master) else {
            return Ok(());
        };
        let born = server.born.as_deref().map(BirthRecord::parse);
        if let Some(Ok(born)) = born {
            sentinels.note_recorded(born.sentinels);
        }
        let confirmed = sentinels.confirm(self.clock.now()).await?;
        if !confirmed.address.is_same(master) {
            let what = format!("moved to {} during the handshake", confirmed.address);
            let trouble = self.reporter.trouble(TroubleKind::Unconfirmed, what);
            return Err(CallError::NotSent(trouble));
        }
        server.epoch = Some(confirmed.epoch);
        server.sentinels = confirmed.reported;
        Ok(())
    }

    /// A server that Sentinels name and that is a replica: a failover is in progress. Waiting
    /// helps.
    fn demoted(&self, error: CallError) -> CallError {
        match error {
            CallError::Refused(trouble)
                if self.sentinels.is_some() && trouble.kind == TroubleKind::Replica =>
            {
                let what = "has a master that is a replica by now; a failover is in progress";
                let trouble = self.reporter.trouble(TroubleKind::Unconfirmed, what);
                CallError::NotSent(trouble)
            }
            error => error,
        }
    }

    /// Makes the node a member of `group`, unless it belongs to another. `seen` is its state, read
    /// just now. If no call may be sent, the trouble says why.
    pub(crate) async fn join(
        &self,
        connection: &mut Connection,
        seen: (Server, Facts),
        group: &Group,
    ) -> Result<(Result<Membership, Trouble>, Facts), CallError> {
        let (server, facts) = &seen;
        if connection.may_only_look() {
            let (mut joined, facts) = self.look_on(server, facts, group)?;
            if let (Ok(membership), Some(allowed)) = (&mut joined, connection.allowed) {
                membership.terms.by_hash_only = !allowed.send_scripts;
            }
            return Ok((joined, facts));
        }
        let mut pipe = redis::pipe();
        let cmd = pipe
            .cmd("EVAL")
            .arg(&SCRIPTS.join.text)
            .arg(1)
            .arg(BORN_KEY);
        let backlog_ttl = server.backlog_ttl_s.map(|s| s.to_string());
        cmd.arg(&server.run_id)
            .arg(server.replication_id.as_deref().unwrap_or("-"))
            .arg(u8::from(server.durable))
            .arg(backlog_ttl.as_deref().unwrap_or("-"))
            .arg(server.epoch_text())
            .arg(server.sentinels)
            .arg(server.database)
            .arg(&group_fields(group));
        for script in SCRIPTS.by_hash() {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&script.text);
        }
        let sent = self.clock.now();
        let answers = connection.ask(pipe).await.map_err(|e| self.unknown(&e))?;
        let received = self.clock.now();
        // If SCRIPT LOAD is forbidden, the first call of each script sends it in full.
        let joined = answers.into_iter().next().unwrap_or(Value::Nil);
        let mut fields = self.fields(joined)?;
        let clock_us = self.shaped(clock(&mut fields))?;
        let Some(born) = self.shaped(fields.text(BORN_MAX_BYTES))? else {
            return Err(self.changed());
        };
        let born = self.read_born(&born)?;
        self.check_group(&born, group)?;
        let (membership, facts) = self.member(server, born, clock_us, (sent, received));
        Ok((Ok(membership), facts))
    }

    /// Replaces [`Handshake::join`] for a user who may only look: the birth record is not changed.
    /// If it is of an earlier run, the node does not count.
    fn look_on(
        &self,
        server: &Server,
        facts: &Facts,
        group: &Group,
    ) -> Result<(Result<Membership, Trouble>, Facts), CallError> {
        let born = server.born.as_deref().map(|text| self.read_born(text));
        let born = born.transpose()?;
        let Some(born) = server.own(born.as_ref()) else {
            return Ok((Err(self.reporter.unmet()), facts.clone()));
        };
        self.check_group(born, group)?;
        let times = (facts.sent, facts.received);
        let (mut membership, facts) = self.member(server, born.clone(), server.clock_us, times);
        membership.terms.looks_only = true;
        Ok((Ok(membership), facts))
    }

    fn check_group(&self, born: &BirthRecord, group: &Group) -> Result<(), CallError> {
        if group_fields(&born.group) == group_fields(group) {
            return Ok(());
        }
        let what = format!(
            "belongs to a group of {}, but this client is set to {group}; use the same values \
             everywhere, or run `ringfence init` if the group is new",
            born.group
        );
        Err(self.refused(TroubleKind::Group, what))
    }

    fn member(
        &self,
        server: &Server,
        born: BirthRecord,
        clock_us: u64,
        times: (Timestamp, Timestamp),
    ) -> (Membership, Facts) {
        if born.server.replicated {
            self.replicas_seen.store(true, Ordering::Relaxed);
        }
        let facts = self.facts(server, Some(&born), clock_us, times);
        let mut terms = ScriptTerms::new(&born.text, self.rules(&born));
        terms.unseen = server.unseen;
        let membership = Membership {
            standing: self.standing(&born, clock_us),
            read_at: times.1,
            alone: born.group.nodes == 1,
            terms,
            image: Image {
                server: born.server,
                evicts: server.evicts,
            },
            seen_at: times.0,
        };
        (membership, facts)
    }

    fn facts(
        &self,
        server: &Server,
        born: Option<&BirthRecord>,
        clock_us: u64,
        (sent, received): (Timestamp, Timestamp),
    ) -> Facts {
        let own = server.own(born);
        Facts {
            standing: own.map(|born| self.standing(born, clock_us)),
            clock_us,
            sent,
            received,
            // The values of another application's database are not those of this group.
            group: born
                .filter(|born| born.server.database == server.database)
                .map(|born| born.group),
            run_id: server.run_id.clone(),
            version: server.version.clone(),
            tier: server.tier(self.options, own),
        }
    }

    fn standing(&self, born: &BirthRecord, clock_us: u64) -> Standing {
        Standing {
            incarnation: born.since_us,
            born_us: if self.options.no_quarantine {
                0
            } else {
                born.birth_us
            },
            clock_us,
            server: Standing::server_of(&born.server.run_id),
            replicated: born.is_replaceable(),
            epoch: born.server.epoch,
        }
    }

    fn rules(&self, born: &BirthRecord) -> Rules {
        let birth_us = match self.options.no_quarantine {
            true => 0,
            false => born.birth_us,
        };
        Rules::of_incarnation(&born.group, birth_us, born.is_replaceable())
    }

    fn read_born(&self, text: &str) -> Result<BirthRecord, CallError> {
        let sentinels = self.options.sentinels;
        let born = self.reporter.read_birth(text, sentinels);
        born.map_err(CallError::Refused)
    }

    /// The server was demoted, promoted or replaced between the questions and the script.
    fn changed(&self) -> CallError {
        let what = "changed its role or was replaced during the handshake; repeating the handshake";
        CallError::NotSent(self.reporter.trouble(TroubleKind::Newborn, what))
    }

    fn fields(&self, value: Value) -> Result<Fields, CallError> {
        match value {
            Value::Array(items) => Ok(Fields(items.into_iter())),
            Value::ServerError(error) => {
                Err(CallError::Refused(self.reporter.server_error(&error)))
            }
            _ => Err(CallError::Refused(self.reporter.garbage())),
        }
    }

    fn shaped<T>(&self, read: Result<T, MalformedReply>) -> Result<T, CallError> {
        read.map_err(|MalformedReply| CallError::Refused(self.reporter.garbage()))
    }

    fn refused(&self, kind: TroubleKind, what: String) -> CallError {
        CallError::Refused(self.reporter.trouble(kind, what))
    }

    /// A question that changes nothing got no answer.
    fn unsent(&self, error: &RedisError) -> CallError {
        CallError::NotSent(self.reporter.connection(error))
    }

    /// A script that may have changed something got no answer.
    fn unknown(&self, error: &RedisError) -> CallError {
        CallError::Unknown(self.reporter.connection(error))
    }
}

/// An id in place of a run id that our user may not read. No other server has the same.
fn made_up_id() -> String {
    let entropy = Entropy::default();
    entropy.client_id() + &entropy.client_id()
}

/// A clock that is sent as text.
fn clock(fields: &mut Fields) -> Result<u64, MalformedReply> {
    let text = fields.text(NUMBER_MAX_BYTES)?.ok_or(MalformedReply)?;
    text.parse().map_err(|_| MalformedReply)
}
