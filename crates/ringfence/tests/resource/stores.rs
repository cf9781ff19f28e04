//! One number in three stores, each with the marks beside it; and an unguarded number in each.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, iter};

use redis::{Commands, Connection as RedisConnection, RedisError, Script};
use ringfence::resource::redis::{FENCED, FencedKey};
use ringfence::resource::sql::{self, POSTGRES, SQLITE};
use ringfence::resource::{Marks, Refused};
use ringfence_testkit::{Flavor, Postgres, Psql, Server};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tempfile::TempDir;

/// A store of a number that is read and written under a lock.
pub(crate) trait Store {
    fn read(&mut self, fence: u64) -> Result<i64, Refused>;
    fn write(&mut self, fence: u64, number: i64) -> Result<(), Refused>;
    fn marks(&mut self) -> Marks;
    /// Writes like a resource without fences.
    fn write_unfenced(&mut self, number: i64);
    fn read_unfenced(&mut self) -> i64;
}

/// The servers behind the stores.
pub(crate) struct Stores {
    pub(crate) redis: Server,
    pub(crate) postgres: Postgres,
    folder: TempDir,
}

/// The addresses of the stores, for another process.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    pub(crate) redis: String,
    pub(crate) sqlite: PathBuf,
    pub(crate) postgres: PathBuf,
}

impl Stores {
    pub(crate) fn start() -> Self {
        let stores = Self {
            redis: Server::start(Flavor::Redis),
            postgres: Postgres::start(),
            folder: tempfile::tempdir().unwrap(),
        };
        let mut session = stores.postgres.session();
        session.must(POSTGRES.create);
        session.must("CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL)");
        let sqlite = Connection::open(stores.addresses().sqlite).unwrap();
        sqlite.pragma_update(None, "journal_mode", "wal").unwrap();
        sqlite.execute(SQLITE.create, []).unwrap();
        let table = "CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL)";
        sqlite.execute(table, []).unwrap();
        stores
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            redis: self.redis.url(),
            sqlite: self.folder.path().join("data.db"),
            postgres: self.postgres.host().to_owned(),
        }
    }
}

impl Addresses {
    const NAMES: [&str; 3] = [
        "RINGFENCE_TEST_REDIS",
        "RINGFENCE_TEST_SQLITE",
        "RINGFENCE_TEST_POSTGRES",
    ];

    /// The addresses as environment variables for a child.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let redis = PathBuf::from(&self.redis);
        iter::zip(
            Self::NAMES,
            [redis, self.sqlite.clone(), self.postgres.clone()],
        )
    }

    /// The addresses from the process that started this one.
    pub(crate) fn inherited() -> Self {
        let [redis, sqlite, postgres] = Self::NAMES.map(|name| env::var(name).unwrap());
        Self {
            redis,
            sqlite: sqlite.into(),
            postgres: postgres.into(),
        }
    }

    /// Every store of the resource `name`; a new one contains 100.
    pub(crate) fn open(&self, name: &str) -> Vec<(&'static str, Box<dyn Store>)> {
        vec![
            ("redis", Box::new(InRedis::open(&self.redis, name))),
            ("sqlite", Box::new(InSqlite::open(&self.sqlite, name))),
            ("postgres", Box::new(InPostgres::open(&self.postgres, name))),
        ]
    }
}

/// The name of the unguarded number beside `name`.
fn unguarded(name: &str) -> String {
    format!("{name}-unguarded")
}

pub(crate) struct InRedis {
    connection: RedisConnection,
    script: Script,
    key: FencedKey,
    name: String,
}

impl InRedis {
    pub(crate) fn open(url: &str, name: &str) -> Self {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        for key in [name, &unguarded(name)] {
            let _: bool = connection.set_nx(key, 100).unwrap();
        }
        Self {
            connection,
            script: fenced(),
            key: FencedKey::new(name),
            name: name.to_owned(),
        }
    }
}

/// The script as the library has it.
pub(crate) fn fenced() -> Script {
    Script::new(FENCED)
}

fn refused(error: RedisError) -> Refused {
    assert_eq!(error.code(), Some("STALEFENCE"), "{error}");
    Refused::in_message(&error.to_string()).unwrap_or_else(|| panic!("{error}"))
}

impl Store for InRedis {
    fn read(&mut self, fence: u64) -> Result<i64, Refused> {
        let call = self.key.read(fence, ["GET"]);
        let mut invocation = self.script.key(call.keys());
        let read = invocation.arg(call.args()).invoke(&mut self.connection);
        read.map_err(refused)
    }

    fn write(&mut self, fence: u64, number: i64) -> Result<(), Refused> {
        let call = self
            .key
            .write(fence, ["SET".to_owned(), number.to_string()]);
        let mut invocation = self.script.key(call.keys());
        let written = invocation.arg(call.args()).invoke(&mut self.connection);
        written.map_err(refused)
    }

    fn marks(&mut self) -> Marks {
        let key = &self.key.read(0, ["GET"]).keys()[1].clone();
        let marks: [Option<u64>; 2] = self.connection.hmget(key, &["read", "write"]).unwrap();
        let [read, write] = marks.map(Option::unwrap_or_default);
        Marks { read, write }
    }

    fn write_unfenced(&mut self, number: i64) {
        let () = self.connection.set(unguarded(&self.name), number).unwrap();
    }

    fn read_unfenced(&mut self) -> i64 {
        self.connection.get(unguarded(&self.name)).unwrap()
    }
}

pub(crate) struct InSqlite {
    database: Connection,
    name: String,
}

impl InSqlite {
    pub(crate) fn open(path: &Path, name: &str) -> Self {
        let database = Connection::open(path).unwrap();
        database.busy_timeout(Duration::from_secs(20)).unwrap();
        for id in [name, &unguarded(name)] {
            let insert = "INSERT INTO account VALUES (?1, 100) ON CONFLICT DO NOTHING";
            database.execute(insert, [id]).unwrap();
        }
        Self {
            database,
            name: name.to_owned(),
        }
    }

    fn begin(&mut self) -> Transaction<'_> {
        let immediate = TransactionBehavior::Immediate;
        self.database.transaction_with_behavior(immediate).unwrap()
    }

    fn marks_in(database: &Connection, name: &str) -> Marks {
        let row = database.query_row(SQLITE.marks, [name], |row| {
            Ok(Marks::from_row(row.get(0)?, row.get(1)?))
        });
        row.optional().unwrap().unwrap_or_default()
    }

    fn balance(database: &Connection, id: &str) -> i64 {
        let select = "SELECT balance FROM account WHERE id = ?1";
        database.query_row(select, [id], |row| row.get(0)).unwrap()
    }
}

impl Store for InSqlite {
    fn read(&mut self, fence: u64) -> Result<i64, Refused> {
        let name = self.name.clone();
        let transaction = self.begin();
        let fenced = params![name, sql::number(fence)];
        if transaction.execute(SQLITE.admit_read, fenced).unwrap() == 0 {
            let mark = Self::marks_in(&transaction, &name).reader_needs();
            return Err(Refused { fence, mark });
        }
        let balance = Self::balance(&transaction, &name);
        transaction.commit().unwrap();
        Ok(balance)
    }

    fn write(&mut self, fence: u64, number: i64) -> Result<(), Refused> {
        let name = self.name.clone();
        let transaction = self.begin();
        let fenced = params![name, sql::number(fence)];
        if transaction.execute(SQLITE.admit_write, fenced).unwrap() == 0 {
            let mark = Self::marks_in(&transaction, &name).writer_needs();
            return Err(Refused { fence, mark });
        }
        let update = "UPDATE account SET balance = ?1 WHERE id = ?2";
        transaction.execute(update, params![number, name]).unwrap();
        transaction.commit().unwrap();
        Ok(())
    }

    fn marks(&mut self) -> Marks {
        Self::marks_in(&self.database, &self.name)
    }

    fn write_unfenced(&mut self, number: i64) {
        let update = "UPDATE account SET balance = ?1 WHERE id = ?2";
        let row = params![number, unguarded(&self.name)];
        self.database.execute(update, row).unwrap();
    }

    fn read_unfenced(&mut self) -> i64 {
        Self::balance(&self.database, &unguarded(&self.name))
    }
}

pub(crate) struct InPostgres {
    session: Psql,
    name: String,
}

impl InPostgres {
    pub(crate) fn open(host: &Path, name: &str) -> Self {
        let mut session = Psql::connect(host);
        prepare(&mut session);
        for id in [name, &unguarded(name)] {
            session.must(&format!(
                "INSERT INTO account VALUES ('{id}', 100) ON CONFLICT DO NOTHING"
            ));
        }
        Self {
            session,
            name: name.to_owned(),
        }
    }

    fn balance(&mut self, id: &str) -> i64 {
        let select = format!("SELECT balance FROM account WHERE id = '{id}'");
        self.session.must(&select).parse().unwrap()
    }

    /// Begins a transaction; rolls it back if the fence is refused.
    fn begin(&mut self, access: &str, fence: u64) -> Result<(), Marks> {
        self.session.must("BEGIN");
        let admit = format!("EXECUTE admit_{access}('{}', {fence})", self.name);
        match self.session.must(&admit).as_str() {
            "INSERT 0 1" => Ok(()),
            "INSERT 0 0" => {
                let marks = self.marks();
                self.session.must("ROLLBACK");
                Err(marks)
            }
            other => panic!("{other}"),
        }
    }
}

/// Prepares the unchanged statements of the library in a session.
pub(crate) fn prepare(session: &mut Psql) {
    for (name, text) in [
        ("admit_read", POSTGRES.admit_read),
        ("admit_write", POSTGRES.admit_write),
        ("marks", POSTGRES.marks),
    ] {
        session.must(&format!("PREPARE {name} AS {text}"));
    }
}

impl Store for InPostgres {
    fn read(&mut self, fence: u64) -> Result<i64, Refused> {
        self.begin("read", fence).map_err(|marks| {
            let mark = marks.reader_needs();
            Refused { fence, mark }
        })?;
        let balance = self.balance(&self.name.clone());
        self.session.must("COMMIT");
        Ok(balance)
    }

    fn write(&mut self, fence: u64, number: i64) -> Result<(), Refused> {
        self.begin("write", fence).map_err(|marks| {
            let mark = marks.writer_needs();
            Refused { fence, mark }
        })?;
        let update = format!(
            "UPDATE account SET balance = {number} WHERE id = '{}'",
            self.name
        );
        self.session.must(&update);
        self.session.must("COMMIT");
        Ok(())
    }

    fn marks(&mut self) -> Marks {
        let row = self
            .session
            .must(&format!("EXECUTE marks('{}')", self.name));
        let Some((read, write)) = row.split_once('|') else {
            return Marks::default();
        };
        Marks::from_row(read.parse().unwrap(), write.parse().unwrap())
    }

    fn write_unfenced(&mut self, number: i64) {
        let id = unguarded(&self.name);
        let update = format!("UPDATE account SET balance = {number} WHERE id = '{id}'");
        self.session.must(&update);
    }

    fn read_unfenced(&mut self) -> i64 {
        self.balance(&unguarded(&self.name))
    }
}
