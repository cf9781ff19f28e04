//! `ringfence init`: the operator declares that a node is new. The node is searched for locks
//! first.

use redis::Value;

use crate::group::Group;
use crate::node::redis::key::BORN_KEY;
use crate::node::redis::scripts::SCRIPTS;
use crate::node::redis::session::Membership;
use crate::node::redis::transport::connection::Connection;
use crate::node::{CallError, Facts, InitMode, TroubleKind};
use crate::time::Timestamp;

use super::Handshake;
use super::born::{BirthRecord, group_fields};
use super::search::{InitAnswer, SEARCH_MAX, SEARCH_STEP, Search};
use super::server::Server;

/// When a question was sent and when its answer arrived.
type Times = (Timestamp, Timestamp);

impl Handshake {
    /// Lets the node vote at once, unless it holds locks or votes already; or checks whether it
    /// could.
    pub(crate) async fn init(
        &self,
        connection: &mut Connection,
        server: &Server,
        group: &Group,
        mode: InitMode,
    ) -> Result<(Option<Membership>, Facts), CallError> {
        let mut search = Search::default();
        let (answer, times) = self
            .search(&mut search, connection, server, group, mode)
            .await?;
        let InitAnswer {
            clock_us,
            outcome,
            born,
        } = answer;
        if outcome == "changed" {
            return Err(self.changed());
        }
        let born = born.as_deref().map(|text| self.read_born(text));
        let born = born.transpose()?;
        let found = format!("{} lock records{}", search.count, held_now(&search.holders));
        match (outcome.as_str(), born) {
            ("done", Some(born)) => {
                if search.count != "0" {
                    let node = &self.reporter.node;
                    tracing::warn!(
                        target: "ringfence", %node,
                        "declared new although it has {found}; two clients may then hold the same \
                         lock"
                    );
                }
                let (membership, facts) = self.member(server, born, clock_us, times);
                Ok((Some(membership), facts))
            }
            ("free", born) => Ok((None, self.facts(server, born.as_ref(), clock_us, times))),
            (outcome, born) => Err(self.not_new(outcome, born.as_ref(), group, &found)),
        }
    }

    /// Searches the node, page by page, until the script has decided.
    async fn search(
        &self,
        search: &mut Search,
        connection: &mut Connection,
        server: &Server,
        group: &Group,
        mode: InitMode,
    ) -> Result<(InitAnswer, Times), CallError> {
        let begun = self.clock.now();
        loop {
            let mut pipe = redis::pipe();
            pipe.cmd("EVAL")
                .arg(&SCRIPTS.init.text)
                .arg(1)
                .arg(BORN_KEY);
            pipe.arg(&server.run_id)
                .arg(server.replication_id.as_deref().unwrap_or("-"))
                .arg(u8::from(server.durable))
                .arg(word_of(mode))
                .arg(server.epoch_text())
                .arg(server.sentinels)
                .arg(server.database)
                .arg(&group_fields(group))
                .arg(&group_fields(&Group::new(group.nodes)));
            search.write(&mut pipe, mode);
            let sent = self.clock.now();
            let answers = tokio::time::timeout(SEARCH_STEP, connection.ask(pipe)).await;
            let answers = answers.map_err(|_| self.hangs())?;
            let answers = answers.map_err(|e| self.unknown(&e))?;
            let received = self.clock.now();
            let fields = match answers.into_iter().next().unwrap_or(Value::Nil) {
                Value::ServerError(error) => {
                    return Err(CallError::Refused(self.reporter.init_error(&error)));
                }
                answer => self.fields(answer)?,
            };
            match self.shaped(search.read_page(fields))? {
                Some(answer) => return Ok((answer, (sent, received))),
                None if begun + SEARCH_MAX <= received => return Err(self.unsearched()),
                None => {}
            }
        }
    }

    /// Why the node is not declared new, by the script's `outcome`.
    fn not_new(
        &self,
        outcome: &str,
        born: Option<&BirthRecord>,
        group: &Group,
        found: &str,
    ) -> CallError {
        let doubled = "if it is declared new by force, two clients may then hold the same lock";
        let what = match (outcome, born) {
            ("votes", Some(_)) => format!("votes already and has {found}; {doubled}"),
            ("holders", _) => {
                format!("has {found}; stop all clients and try again when their locks have ended")
            }
            ("recent", Some(born)) => format!(
                "was in use less than {:?} ago; stop all clients and wait for that long",
                born.group.quarantine
            ),
            ("group", Some(born)) => {
                let born = &born.group;
                let what = format!("belongs to a group of {born}, not {group}");
                return self.refused(TroubleKind::Group, what);
            }
            ("records", _) => format!("is not new, it has {found}; {doubled}"),
            _ => return CallError::Refused(self.reporter.garbage()),
        };
        self.refused(TroubleKind::Other, what)
    }

    /// An unfinished search does not prove that the node has no locks.
    fn unsearched(&self) -> CallError {
        self.refused(
            TroubleKind::Other,
            format!(
                "has too many keys to be searched for locks within {SEARCH_MAX:?}; give locks a \
                 server or a database of their own"
            ),
        )
    }

    fn hangs(&self) -> CallError {
        let what = format!("has not answered a step of `init` within {SEARCH_STEP:?}");
        CallError::Unknown(self.reporter.trouble(TroubleKind::Timeout, what))
    }
}

/// The script's name for `mode`.
fn word_of(mode: InitMode) -> &'static str {
    match mode {
        InitMode::Check => "check",
        InitMode::Write => "write",
        InitMode::Force => "force",
        InitMode::CheckRegroup => "check regroup",
        InitMode::Regroup => "regroup",
    }
}

/// A description of the holders that were found.
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
