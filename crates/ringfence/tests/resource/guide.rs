//! The guide, `docs/resources.md`: its examples are executed, and their output is what it shows.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use ringfence::resource::sql::POSTGRES;
use ringfence_testkit::{Flavor, Postgres, Server};

/// The block of the guide after the comment with this label.
fn block(label: &str) -> String {
    block_of("resources.md", label)
}

fn block_of(page: &str, label: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = fs::read_to_string(docs.join(page)).unwrap();
    let (_, rest) = text
        .split_once(&format!("<!-- {label} -->\n```"))
        .unwrap_or_else(|| panic!("{page} has no block `{label}`"));
    let (_, rest) = rest.split_once('\n').unwrap();
    let (block, _) = rest.split_once("\n```\n").unwrap();
    block.to_owned()
}

#[test]
fn the_statements_of_the_guide_are_those_of_the_library() {
    assert_eq!(block("create"), POSTGRES.create);
    assert_eq!(block("admit_write"), POSTGRES.admit_write);
    assert_eq!(block("admit_read"), POSTGRES.admit_read);
    assert_eq!(block("marks"), POSTGRES.marks);
}

#[test]
fn psql_answers_as_the_guide_shows() {
    let postgres = Postgres::start();
    let mut session = postgres.session();
    session.must(&block("create"));
    assert_eq!(session.must(&block("psql")), block("psql said"));
    assert_eq!(session.must("SELECT balance FROM account"), "150");
}

#[test]
fn a_column_refuses_a_late_holder() {
    let postgres = Postgres::start();
    let mut session = postgres.session();
    session.must(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
         INSERT INTO account VALUES (1, 100);",
    );
    let text = block("column");
    let [create, read, write] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("three statements: {text}");
    };
    session.must(create);
    session.must(&format!("PREPARE fenced_read AS {read}"));
    session.must(&format!("PREPARE fenced_write AS {write}"));
    assert_eq!(session.must("EXECUTE fenced_read(34, 1)"), "100\nUPDATE 1");
    assert_eq!(session.must("EXECUTE fenced_write(150, 34, 1)"), "UPDATE 1");
    assert_eq!(session.must("EXECUTE fenced_read(33, 1)"), "UPDATE 0");
    assert_eq!(session.must("EXECUTE fenced_write(90, 33, 1)"), "UPDATE 0");
    assert_eq!(session.must("SELECT balance FROM account"), "150");
}

#[test]
fn a_version_refuses_the_slower_writer() {
    let postgres = Postgres::start();
    let mut session = postgres.session();
    session.must(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, version int NOT NULL);
         INSERT INTO account VALUES (1, 100, 7);",
    );
    let write = block_of("when-not.md", "version");
    session.must(&format!("PREPARE versioned_write AS {write};"));
    assert_eq!(
        session.must("EXECUTE versioned_write(150, 1, 7)"),
        "UPDATE 1"
    );
    assert_eq!(
        session.must("EXECUTE versioned_write(90, 1, 7)"),
        "UPDATE 0"
    );
    assert_eq!(session.must("SELECT balance FROM account"), "150");
}

#[test]
fn python_refuses_a_late_deposit() {
    let program = [
        "import sqlite3",
        "db = sqlite3.connect(':memory:', isolation_level=None)",
        &format!("db.execute('''{}''')", block("create")),
        "db.execute('CREATE TABLE account (id, balance)')",
        "db.execute('INSERT INTO account VALUES (1, 100)')",
        &block("python"),
        "deposit(db, 34, 50)",
        "try:",
        "    deposit(db, 33, -10)",
        "except Refused as refused:",
        "    print(refused)",
        "print(db.execute('SELECT balance FROM account').fetchone()[0])",
    ];
    let output = Command::new("python3")
        .args(["-c", &program.join("\n")])
        .output();
    let output = output.expect("python3 is not installed: run ./verify, which installs it");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (refused, balance) = printed.trim_end().split_once('\n').unwrap();
    assert!(refused.starts_with("fence 33 is too low"), "{printed}");
    assert_eq!(balance, "150");
}

#[test]
fn redis_cli_answers_as_the_guide_shows() {
    let server = Server::start(Flavor::Redis);
    let folder = tempfile::tempdir().unwrap();
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/resource/lua");
    for file in ["admit.lua", "fenced.lua"] {
        fs::copy(lua.join(file), folder.path().join(file)).unwrap();
    }
    let shown = block("redis");
    let mut printed = Vec::new();
    for command in shown.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let here = format!("redis-cli -p {}", server.port());
        let output = Command::new("sh")
            .args(["-c", &command.replace("redis-cli", &here)])
            .current_dir(folder.path())
            .output()
            .unwrap();
        printed.push(format!("$ {command}"));
        let output = String::from_utf8(output.stdout).unwrap();
        printed.extend(
            output
                .lines()
                .filter(|line| !line.is_empty())
                .map(str::to_owned),
        );
    }
    assert_eq!(printed.join("\n"), shown);
}
