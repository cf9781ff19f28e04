//! Those who share a name, on real nodes and against the ledger: the Lua on servers, and SQLite.

mod bench;
mod redis_ledger;
mod sqlite_ledger;
