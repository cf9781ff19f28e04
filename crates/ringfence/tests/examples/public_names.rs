//! The public names of the crate are a file, so that a change of the surface is seen in a diff.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::examples::root;

/// Set it to have the list written instead of compared.
const WRITE: &str = "RINGFENCE_WRITE_NAMES";

#[test]
fn the_public_names_are_those_of_the_list() {
    let list = root().join("crates/ringfence/public-names.txt");
    let names: String = public_names().into_iter().collect();
    if env::var_os(WRITE).is_some() {
        fs::write(&list, &names).unwrap();
    }
    let listed = fs::read_to_string(&list).unwrap();
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let (now, before) = (lines(&names), lines(&listed));
    let added: Vec<_> = now.difference(&before).collect();
    let removed: Vec<_> = before.difference(&now).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "new names: {added:?}; gone: {removed:?}; if that is wanted: {WRITE}=1 cargo test -p ringfence \
         --all-features --test all public_names, and a line in CHANGELOG.md"
    );
}

/// `kind path` of every public item, one in each line, as rustdoc lists them.
fn public_names() -> BTreeSet<String> {
    let test = env::current_exe().unwrap();
    let target: PathBuf = test.ancestors().nth(3).unwrap().to_owned();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let made = Command::new(cargo)
        .args([
            "doc",
            "--offline",
            "--no-deps",
            "--all-features",
            "-p",
            "ringfence",
        ])
        .args(["--target-dir".as_ref(), target.as_os_str()])
        .current_dir(root())
        .env_remove("RUSTDOCFLAGS")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let page = fs::read_to_string(target.join("doc/ringfence/all.html")).unwrap();
    let links = page.split("<li><a href=\"").skip(1);
    // Those to headings of the page are no names.
    let links = links.filter(|link| !link.starts_with('#'));
    let names = links.map(|link| {
        let (address, rest) = link.split_once("\">").expect("a link");
        let (path, _) = rest.split_once("</a>").expect("the end of a link");
        let file = address.rsplit('/').next().expect("a file");
        let (kind, _) = file.split_once('.').expect("a kind");
        format!("{kind} {path}\n")
    });
    let names: BTreeSet<String> = names.collect();
    assert!(names.contains("struct Locks\n"), "{names:?}");
    names
}
