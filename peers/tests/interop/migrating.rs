//! The code of other libraries in `docs/migrating.md` runs with those libraries: readers find what
//! they have in their own programs.

use ringfence_peers::Library;

use crate::stage::{Stage, present};

/// The only block in `language` of the guide.
fn block(language: &str) -> &'static str {
    let guide = include_str!("../../../docs/migrating.md");
    let opening = format!("\n```{language}\n");
    let mut blocks = guide.split(&opening).skip(1);
    let block = blocks.next().expect("a block").split("\n```").next();
    assert!(blocks.next().is_none(), "a second block in {language}");
    block.expect("the text before the end")
}

/// Runs a program of the client's language until it ends.
#[track_caller]
fn runs(library: Library, source: &str) {
    let Some(mut command) = present(library, library.snippet(source)) else {
        return;
    };
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{source}\n{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.trim_end(), "done", "{source}\n{output:?}");
}

#[test]
fn the_go_code_runs() {
    let stage = Stage::with_nodes(3);
    let source = format!(
        r#"package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func work(ctx context.Context, pools []redsyncredis.Pool) error {{
{}
return nil
}}

func main() {{
	var pools []redsyncredis.Pool
	for _, url := range {} {{
		options, err := redis.ParseURL(url)
		if err != nil {{
			panic(err)
		}}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}}
	if err := work(context.Background(), pools); err != nil {{
		fmt.Println(err)
		os.Exit(1)
	}}
	fmt.Println("done")
}}
"#,
        block("go"),
        listed(&stage.urls, "[]string{", "}"),
    );
    runs(Library::Redsync, &source);
}

#[test]
fn the_node_code_runs() {
    let stage = Stage::with_nodes(3);
    let source = format!(
        r#"import {{ Redis }} from "ioredis";
import * as redlock5 from "redlock";

const work = async () => {{}};
const clients = {}.map((url) => new Redis(url));
const redlock = new redlock5.default(clients);
{}
await lock.release();
for (const client of clients) client.disconnect();
console.log("done");
"#,
        listed(&stage.urls, "[", "]"),
        block("js"),
    );
    runs(Library::Redlock, &source);
}

#[test]
fn the_python_code_runs() {
    let stage = Stage::with_nodes(3);
    let source = format!(
        r#"from pottery import Redlock
from redis import Redis

masters = {{Redis.from_url(url) for url in {}}}
redis = next(iter(masters))
{}
print("done")
"#,
        listed(&stage.urls, "[", "]"),
        block("python"),
    );
    runs(Library::Pottery, &source);
}

/// The URLs as a list of strings, in the syntax of a language.
fn listed(urls: &str, open: &str, close: &str) -> String {
    let quoted = urls.split(',').map(|url| format!("\"{url}\""));
    let quoted: Vec<String> = quoted.collect();
    format!("{open}{}{close}", quoted.join(", "))
}
