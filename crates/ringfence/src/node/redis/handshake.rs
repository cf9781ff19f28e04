//! What happens on every new connection, and again whenever the node has forgotten its past: look at
//! the server, join the group, load the scripts.

use redis::{RedisError, Value};

use crate::clock::Clock;
use crate::group::Group;
use crate::message::Standing;
use crate::node::{CallError, Facts, InitMode, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::born::{BORN_MAX_BYTES, Born, group_fields};
use super::command::Terms;
use super::key::BORN_KEY;
use super::line::Line;
use super::reply::{Fields, Misshapen, NUMBER_MAX_BYTES};
use super::report::Reporter;
use super::rights::Allowed;
use super::script::SCRIPTS;
use super::search::{InitAnswer, SEARCH_MAX, SEARCH_STEP, Search};
use super::server::{Leniency, Server, ask_config, questions, refuse_config};
use super::watch::Image;

/// How hands are shaken with one node.
pub(super) struct Handshake {
    pub(super) reporter: Reporter,
    pub(super) leniency: Leniency,
    pub(super) clock: Clock,
}

/// A node that may be sent calls.
#[derive(Debug, Clone)]
pub(super) struct Membership {
    /// What every lock operation tells the node.
    pub(super) terms: Terms,
    /// What the server must still be, for the membership to count.
    pub(super) image: Image,
    /// When the handshake began to look at the server.
    pub(super) seen_at: Timestamp,
    /// The incarnation that answers under these terms.
    standing: Standing,
    /// When `standing.clock_us` was read, on our clock.
    read_at: Timestamp,
}

impl Membership {
    /// The standing at `now`, with the node's clock carried on from when it was last heard.
    pub(super) fn standing(&self, now: Timestamp) -> Standing {
        let elapsed = now.as_micros().saturating_sub(self.read_at.as_micros());
        Standing {
            clock_us: self.standing.clock_us.saturating_add(elapsed),
            ..self.standing
        }
    }

    /// Whether scripts that write a holder compare the replication id: always on a server that is
    /// known to be replicated, else if nobody has looked at it lately. Some servers do not tell theirs.
    pub(super) fn compare(&mut self, unseen: bool) {
        let server = &self.image.server;
        self.terms.compare = server.replication_id.is_some() && (server.replicated || unseen);
    }

    /// Hears the node's clock.
    pub(super) fn hear(&mut self, clock_us: u64, now: Timestamp) {
        self.standing.clock_us = clock_us;
        self.read_at = now;
    }
}

impl Handshake {
    /// Reads what the node is, without changing it.
    pub(super) async fn probe(&self, line: &mut Line) -> Result<(Server, Facts), CallError> {
        let sent = self.clock.now();
        let server = self.look(line).await?;
        let received = self.clock.now();
        let born = server
            .born
            .as_deref()
            .map(|text| self.read_born(text))
            .transpose()?;
        let facts = self.facts(&server, born.as_ref(), server.clock_us, (sent, received));
        Ok((server, facts))
    }

    /// Reads what the server is, whatever its birth record says.
    pub(super) async fn look(&self, line: &mut Line) -> Result<Server, CallError> {
        // A user who may only look may have been given more meanwhile.
        let known = line.allowed.filter(|allowed| allowed.join);
        let mut pipe = questions();
        match known {
            None => {
                pipe.add_command(Allowed::question());
            }
            Some(allowed) if allowed.config => ask_config(&mut pipe),
            Some(_) => {}
        }
        let mut answers = line.ask(pipe).await.map_err(|e| self.unsent(&e))?;
        if known.is_none() {
            let allowed = Allowed::read(answers.pop().as_ref());
            line.allowed = Some(allowed);
            if allowed.config {
                let mut pipe = redis::pipe();
                ask_config(&mut pipe);
                answers.extend(line.ask(pipe).await.map_err(|e| self.unsent(&e))?);
            }
        }
        if refuse_config(&answers) {
            line.refuse_config();
        }
        let server = Server::read(answers, &self.reporter, self.leniency)?;
        if server.replication_id.is_none() {
            let node = &self.reporter.node;
            tracing::debug!(target: "ringfence", %node, "tells no replication id; a failover and back goes unnoticed there");
        }
        Ok(server)
    }

    /// Makes the node a member of `group`, if it is not one of another already. What it is was `seen`
    /// just now. The trouble in place of a membership is why no call may be sent.
    pub(super) async fn join(
        &self,
        line: &mut Line,
        seen: (Server, Facts),
        group: &Group,
    ) -> Result<(Result<Membership, Trouble>, Facts), CallError> {
        let (server, facts) = &seen;
        if line.may_only_look() {
            return self.look_on(server, facts, group);
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
            .arg(&group_fields(group));
        for script in SCRIPTS.by_hash() {
            pipe.cmd("SCRIPT").arg("LOAD").arg(&script.text);
        }
        let sent = self.clock.now();
        let answers = line.ask(pipe).await.map_err(|e| self.unknown(&e))?;
        let received = self.clock.now();
        // Where loading is forbidden, each script is sent in full at its first call.
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

    /// In place of [`Handshake::join`] for a user who may only look: the birth record stays as it is. If
    /// it is of an earlier run, the node does not count, and there is nothing to look at.
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

    fn check_group(&self, born: &Born, group: &Group) -> Result<(), CallError> {
        if group_fields(&born.group) == group_fields(group) {
            return Ok(());
        }
        let what = format!(
            "belongs to a group of {}, but this client was told {group}; use the same values \
             everywhere, or run `ringfence init` if the group is new",
            born.group
        );
        Err(self.refused(TroubleKind::Group, what))
    }

    /// Declares the node grown up, unless it holds locks or votes already, or says whether it could.
    pub(super) async fn init(
        &self,
        line: &mut Line,
        server: &Server,
        group: &Group,
        mode: InitMode,
    ) -> Result<(Option<Membership>, Facts), CallError> {
        let begun = self.clock.now();
        let mut search = Search::default();
        let (fields, sent, received) = loop {
            let mut pipe = redis::pipe();
            let cmd = pipe
                .cmd("EVAL")
                .arg(&SCRIPTS.init.text)
                .arg(1)
                .arg(BORN_KEY);
            cmd.arg(&server.run_id)
                .arg(server.replication_id.as_deref().unwrap_or("-"))
                .arg(u8::from(server.durable))
                .arg(match mode {
                    InitMode::Check => "check",
                    InitMode::Write => "write",
                    InitMode::Force => "force",
                    InitMode::CheckRegroup => "check regroup",
                    InitMode::Regroup => "regroup",
                })
                .arg(&group_fields(group))
                .arg(&group_fields(&Group::new(group.nodes)));
            search.write(cmd, mode);
            let sent = self.clock.now();
            let answers = tokio::time::timeout(SEARCH_STEP, line.ask(pipe)).await;
            let answers = answers.map_err(|_| self.hangs())?;
            let answers = answers.map_err(|e| self.unknown(&e))?;
            let received = self.clock.now();
            let fields = match answers.into_iter().next().unwrap_or(Value::Nil) {
                Value::ServerError(error) => {
                    return Err(CallError::Refused(self.reporter.init_error(&error)));
                }
                answer => self.fields(answer)?,
            };
            match self.shaped(search.hear(fields))? {
                Some(fields) => break (fields, sent, received),
                None if begun + SEARCH_MAX <= received => return Err(self.unsearched()),
                None => {}
            }
        };
        let InitAnswer {
            clock_us,
            word,
            born,
        } = fields;
        let Search { count, holders, .. } = &search;
        let holders = held_now(holders);
        let found = format!("{count} lock records{holders}");
        if word == "changed" {
            return Err(self.changed());
        }
        let born = born
            .as_deref()
            .map(|text| self.read_born(text))
            .transpose()?;
        match (word.as_str(), born) {
            ("done", Some(born)) => {
                if count != "0" {
                    tracing::warn!(target: "ringfence", node = %self.reporter.node, "declared new although it has {found}; these holders may be doubled");
                }
                let (membership, facts) = self.member(server, born, clock_us, (sent, received));
                Ok((Some(membership), facts))
            }
            ("free", born) => {
                let facts = self.facts(server, born.as_ref(), clock_us, (sent, received));
                Ok((None, facts))
            }
            ("grown", Some(_)) => Err(self.refused(
                TroubleKind::Other,
                format!("votes already and has {found}; --force declares it new nevertheless, and its holders may then be doubled"),
            )),
            ("holders", _) => Err(self.refused(
                TroubleKind::Other,
                format!("has {found}; stop all clients and try again when their locks have ended"),
            )),
            ("recent", Some(born)) => Err(self.refused(
                TroubleKind::Other,
                format!(
                    "was in use less than {:?} ago; stop all clients and wait for that long",
                    born.group.quarantine
                ),
            )),
            ("group", Some(born)) => Err(self.refused(
                TroubleKind::Group,
                format!("belongs to a group of {}, not {group}; --force overwrites that", born.group),
            )),
            ("records", _) => Err(self.refused(
                TroubleKind::Other,
                format!("is not new, it has {found}; --force declares it new nevertheless, and its holders may then be doubled"),
            )),
            _ => Err(CallError::Refused(self.reporter.garbage())),
        }
    }

    fn member(
        &self,
        server: &Server,
        born: Born,
        clock_us: u64,
        times: (Timestamp, Timestamp),
    ) -> (Membership, Facts) {
        let facts = self.facts(server, Some(&born), clock_us, times);
        let membership = Membership {
            standing: self.standing(&born, clock_us),
            read_at: times.1,
            terms: Terms::new(&born.text, &born.group),
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
        born: Option<&Born>,
        clock_us: u64,
        (sent, received): (Timestamp, Timestamp),
    ) -> Facts {
        let own = server.own(born);
        Facts {
            standing: own.map(|born| self.standing(born, clock_us)),
            clock_us,
            sent,
            received,
            group: born.map(|born| born.group),
            run_id: server.run_id.clone(),
            version: server.version.clone(),
            tier: server.tier(self.leniency, own),
        }
    }

    fn standing(&self, born: &Born, clock_us: u64) -> Standing {
        Standing {
            incarnation: born.since_us,
            born_us: if self.leniency.no_quarantine {
                0
            } else {
                born.birth_us
            },
            clock_us,
            server: Standing::server_of(&born.server.run_id),
        }
    }

    /// A search that takes too long is not an empty one.
    fn unsearched(&self) -> CallError {
        self.refused(
            TroubleKind::Other,
            format!(
                "has too many keys to be searched for locks within {SEARCH_MAX:?}; give locks a \
                 server or a database of their own, or use --force if you know that nobody holds one"
            ),
        )
    }

    fn hangs(&self) -> CallError {
        let what = format!("has not answered a step of `init` within {SEARCH_STEP:?}");
        CallError::Unknown(self.reporter.trouble(TroubleKind::Timeout, what))
    }

    fn read_born(&self, text: &str) -> Result<Born, CallError> {
        match Born::parse(text) {
            Ok(born) if born.server.epoch.is_some() => {
                Err(CallError::Refused(self.reporter.needs_sentinels()))
            }
            Ok(born) => Ok(born),
            Err(why) => Err(CallError::Refused(self.reporter.unreadable_birth(&why))),
        }
    }

    /// The server was demoted, promoted or replaced between the look at it and the script.
    fn changed(&self) -> CallError {
        let what = "changed its role or was replaced during the handshake; shaking hands again";
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

    fn shaped<T>(&self, read: Result<T, Misshapen>) -> Result<T, CallError> {
        read.map_err(|Misshapen| CallError::Refused(self.reporter.garbage()))
    }

    fn refused(&self, kind: TroubleKind, what: String) -> CallError {
        CallError::Refused(self.reporter.trouble(kind, what))
    }

    /// A question that changes nothing was lost.
    fn unsent(&self, error: &RedisError) -> CallError {
        CallError::NotSent(self.reporter.connection(error))
    }

    /// A question that may have changed something was lost.
    fn unknown(&self, error: &RedisError) -> CallError {
        CallError::Unknown(self.reporter.connection(error))
    }
}

/// A clock that travels as text.
fn clock(fields: &mut Fields) -> Result<u64, Misshapen> {
    let text = fields.text(NUMBER_MAX_BYTES)?.ok_or(Misshapen)?;
    text.parse().map_err(|_| Misshapen)
}

/// The holders that were found, in words.
fn held_now(holders: &[(String, String)]) -> String {
    let shown = holders.iter().map(|(name, label)| {
        let (name, label) = (name.escape_debug(), label.escape_debug());
        format!("`{name}` by {label}")
    });
    match shown.collect::<Vec<_>>().as_slice() {
        [] => ", none of them held now".to_owned(),
        held => format!(", held now: {}", held.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::birth::Record;

    #[test]
    fn the_replication_id_is_compared_where_replicas_are_known_or_nobody_looked() {
        for (id, replicated, unseen, compared) in [
            (Some("e1"), false, false, false),
            (Some("e1"), true, false, true),
            (Some("e1"), false, true, true),
            (None, true, true, false),
        ] {
            let mut membership = Membership {
                terms: Terms::new("born", &Group::new(3)),
                image: Image {
                    server: Record {
                        run_id: "ab".to_owned(),
                        replication_id: id.map(str::to_owned),
                        epoch: None,
                        replicated,
                        durable: false,
                    },
                    evicts: false,
                },
                seen_at: Timestamp::ZERO,
                standing: Standing::default(),
                read_at: Timestamp::ZERO,
            };
            membership.compare(unseen);
            assert_eq!(
                membership.terms.compare, compared,
                "{id:?} {replicated} {unseen}"
            );
        }
    }
}
