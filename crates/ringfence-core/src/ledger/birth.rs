//! The rule of the handshake that decides when a server is born again, as a pure function.
//!
//! A server stores a birth record (`ringfence:born` on Redis). The record identifies one
//! incarnation of the server: run id, replication id, the number of the database and, in a group
//! with Sentinels, the configuration epoch. A handshake compares the record with the current state
//! of the server:
//!
//! | the handshake finds | the handshake does |
//! |---|---|
//! | no record | birth |
//! | the record has an epoch, the client knows none | refuses, writes nothing |
//! | the number of another database | birth: the databases were swapped |
//! | the same epoch, and the client may not read the server's state | keeps the record |
//! | any difference, but the operator says that failovers lose nothing | records the difference |
//! | another run id | birth, unless the server was and is durable, and was never promoted |
//! | another epoch | birth |
//! | another replication id, and the server remembers a former one | birth: it was promoted |
//! | another replication id, no former one, and it would still be remembered | records the new id |
//! | another replication id, no former one, it may be forgotten, and no epoch is known | birth |
//! | a replica for the first time | marks the record as replicated, permanently |
//! | none of these | keeps the record |
//!
//! The run id alone is not enough. A master that is demoted and promoted again within a TTL has the
//! same run id and the same birth record, but it has lost the locks that it granted before: the
//! resync deleted them. A demotion or promotion always changes the replication id, and the server
//! remembers the former one (`master_replid2`) until it frees its replication backlog
//! (`repl-backlog-ttl`). The first replica also changes the replication id, but leaves no former
//! one; nothing is lost then.
//!
//! `SWAPDB` gives a client the data of another application, whose record has the same run id and
//! replication id. Locks that this client's application holds are not in that data, so it is a birth
//! even if the operator says that failovers lose nothing. The values of the group are then not those
//! of the record.
//!
//! Between two handshakes a replicated server compares the replication id whenever it writes a
//! holder ([`Incarnation::stands_for`]). Clients check other servers once a second.

/// The contents of a birth record. On a real server `Id` is a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation<Id> {
    /// The run id of the server.
    pub run_id: Id,
    /// The server's replication id; `None` if the server does not report it.
    pub replication_id: Option<Id>,
    /// The number of the database that has the record.
    pub database: u32,
    /// The configuration epoch that a majority of Sentinels confirmed; `None` without Sentinels.
    pub epoch: Option<u64>,
    /// Whether a replica was ever seen. It never becomes false again.
    pub replicated: bool,
    /// Whether the server has written everything to disk before each reply, ever since its birth.
    pub durable: bool,
}

/// The state of a server at the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present<Id> {
    /// Whether the client may not read the state of the server (`INFO` is denied). Then a restart
    /// is not noticed, nor a failover without Sentinels: best effort.
    pub unseen: bool,
    /// The run id of the server. A client that may not read it passes that of the record.
    pub run_id: Id,
    /// Its replication id (`master_replid`); `None` if it does not report it.
    pub replication_id: Option<Id>,
    /// The number of the client's database.
    pub database: u32,
    /// Whether it remembers a former replication id (`master_replid2` is not zero).
    pub former_id: bool,
    /// Whether the server would still remember a former replication id after a whole quarantine:
    /// `repl-backlog-ttl` is known, and it is zero (for ever) or at least the quarantine.
    pub former_id_lasts: bool,
    /// Whether it has replicas now.
    pub has_replicas: bool,
    /// Whether every write is on disk before the reply.
    pub durable: bool,
    /// The configuration epoch that the client confirmed; `None` without Sentinels.
    pub epoch: Option<u64>,
    /// The operator's word that a promotion or a restart loses no write that was acknowledged.
    pub lossless: bool,
}

/// What the handshake does with the birth record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BirthVerdict<Id> {
    /// Keeps the record.
    Keep,
    /// Writes this record and keeps the birth time: the server has lost nothing.
    Update(Incarnation<Id>),
    /// Writes this record with a new birth time: the server may have lost locks.
    Birth(Incarnation<Id>),
    /// Writes nothing and refuses the server: only clients with Sentinels may use it.
    NeedsSentinels,
}

/// Decides what a handshake does with the stored record, if there is one, on a server in the state
/// `now`.
pub fn judge<Id: Clone + PartialEq>(
    stored: Option<&Incarnation<Id>>,
    now: &Present<Id>,
) -> BirthVerdict<Id> {
    let Some(stored) = stored else {
        return BirthVerdict::Birth(now.record(false));
    };
    if stored.epoch.is_some() && now.epoch.is_none() {
        return BirthVerdict::NeedsSentinels;
    }
    if stored.database != now.database {
        return BirthVerdict::Birth(now.record(stored.replicated));
    }
    let same_run = stored.run_id == now.run_id;
    if now.unseen && same_run && stored.epoch == now.epoch {
        return BirthVerdict::Keep;
    }
    if now.lossless {
        return keep_or_update(stored, now.record_after(stored));
    }
    if !same_run {
        let new = now.record(stored.replicated);
        // `record` never marks a server as durable that was promoted or has replicas.
        let stayed_durable = stored.durable && new.durable;
        return match stayed_durable && stored.epoch == now.epoch {
            true => BirthVerdict::Update(new),
            false => BirthVerdict::Birth(new),
        };
    }
    let new = now.record_after(stored);
    // With Sentinels the epoch tells of a promotion whose former id is forgotten.
    let is_known = now.former_id_lasts || now.epoch.is_some();
    let promoted = now.changed_id(stored) && (now.former_id || !is_known);
    if stored.epoch != now.epoch || promoted {
        return BirthVerdict::Birth(new);
    }
    let updated = Incarnation {
        // Within one run only a birth makes a server durable: earlier writes may not be on disk.
        durable: stored.durable && new.durable,
        ..new
    };
    keep_or_update(stored, updated)
}

fn keep_or_update<Id: PartialEq>(
    stored: &Incarnation<Id>,
    updated: Incarnation<Id>,
) -> BirthVerdict<Id> {
    match updated == *stored {
        true => BirthVerdict::Keep,
        false => BirthVerdict::Update(updated),
    }
}

/// The birth time of an incarnation that begins at `clock_us`, after one that began at `former_us`.
/// Two births never have the same time, even if the server's clock was set back.
pub fn since_us(clock_us: u64, former_us: Option<u64>) -> u64 {
    former_us.map_or(clock_us, |former| clock_us.max(former.saturating_add(1)))
}

impl<Id: Clone + PartialEq> Incarnation<Id> {
    /// Whether a replicated server may write holders under this record: it is still a master and
    /// has the replication id of the record. If not, the client must repeat the handshake.
    pub fn stands_for(&self, is_master: bool, replication_id: Option<&Id>) -> bool {
        let compared = self.replicated && self.replication_id.is_some();
        !compared || is_master && self.replication_id.as_ref() == replication_id
    }
}

impl<Id: Clone + PartialEq> Present<Id> {
    /// Whether the server has another replication id than `stored`, within one run. If the server
    /// no longer reports its id, the ids cannot be compared.
    fn changed_id(&self, stored: &Incarnation<Id>) -> bool {
        let known = self.replication_id.is_some();
        stored.run_id == self.run_id && known && stored.replication_id != self.replication_id
    }

    /// The record for this state, after `stored`.
    fn record_after(&self, stored: &Incarnation<Id>) -> Incarnation<Id> {
        // A changed id means that there was a replica, even if it is gone now.
        let mut record = self.record(stored.replicated || self.changed_id(stored));
        if record.replication_id.is_none() && stored.run_id == self.run_id {
            record.replication_id.clone_from(&stored.replication_id);
        }
        record
    }

    /// The record for this state. `replicated`: an earlier record was marked as replicated.
    fn record(&self, replicated: bool) -> Incarnation<Id> {
        let replicated = replicated || self.has_replicas || self.former_id;
        Incarnation {
            run_id: self.run_id.clone(),
            replication_id: self.replication_id.clone(),
            database: self.database,
            epoch: self.epoch,
            replicated,
            // A replica that is started as a master has this record, but it may lack the last
            // locks.
            durable: self.lossless || self.durable && !replicated,
        }
    }
}

#[cfg(test)]
mod tests;
