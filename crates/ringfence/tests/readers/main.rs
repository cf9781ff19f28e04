//! Readers on real nodes, compared with the ledger: the Lua on servers, and SQLite.

mod bench;
mod redis_ledger;
mod sqlite_ledger;
