//! Every link in every document leads to a file, and to a heading if it names one.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::examples::root;

/// The folders whose documents are checked.
const FOLDERS: [&str; 5] = ["", "docs", "bench", "peers", "fuzz"];

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    assert!(documents.len() > 10, "{documents:?}");
    let mut broken = Vec::new();
    let mut checked = 0;
    for path in &documents {
        let text = fs::read_to_string(path).unwrap();
        for id in undefined_references(&text) {
            broken.push(format!("{}: [{id}] is not defined", path.display()));
        }
        for target in links(&text) {
            checked += 1;
            if let Err(why) = check(path, &target) {
                broken.push(format!("{}: ({target}): {why}", path.display()));
            }
        }
    }
    assert!(checked > 50, "only {checked} links were found");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A page that nothing links to is not found by a reader.
#[test]
fn every_page_is_linked_from_another() {
    let documents = documents();
    for page in documents_in("docs") {
        let page = page.canonicalize().unwrap();
        let others = documents
            .iter()
            .filter(|other| other.canonicalize().unwrap() != page);
        let mut links = others.flat_map(|other| {
            let folder = other.parent().unwrap().to_owned();
            let links = links(&fs::read_to_string(other).unwrap()).into_iter();
            links.map(move |link| folder.join(link.split('#').next().unwrap()))
        });
        let is_linked = links.any(|link| link.canonicalize().is_ok_and(|link| link == page));
        assert!(is_linked, "no document links to {}", page.display());
    }
}

fn documents() -> Vec<PathBuf> {
    FOLDERS
        .iter()
        .flat_map(|folder| documents_in(folder))
        .collect()
}

fn documents_in(folder: &str) -> Vec<PathBuf> {
    let entries = root().join(folder).read_dir().unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

/// Whether the link `target` of the document at `path` leads somewhere.
fn check(path: &Path, target: &str) -> Result<(), String> {
    if target.starts_with("https://") {
        // The tests use no network. Other schemes would not reach a reader safely.
        return Ok(());
    }
    if target.contains("://") {
        return Err("not https".to_owned());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match file {
        "" => path.to_owned(),
        _ => path.parent().unwrap().join(file),
    };
    if !file.exists() {
        return Err("no such file".to_owned());
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let anchors = anchors(&text);
    match anchors.iter().any(|known| known == anchor) {
        true => Ok(()),
        false => Err(format!("no such heading; there are {}", anchors.join(", "))),
    }
}

/// The targets of the links of a document: `[text](target)`, pictures too, and `[text]: target`.
fn links(text: &str) -> Vec<String> {
    let prose = without_code(text);
    let mut targets = Vec::new();
    for part in prose.split("](").skip(1) {
        let target = part.split([')', ' ']).next().unwrap();
        targets.push(target.to_owned());
    }
    for line in prose.lines() {
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        targets.extend(definition.map(|(_, target)| target.trim().to_owned()));
    }
    targets
}

/// The ids of references, `[text][id]`, that the document does not define.
fn undefined_references(text: &str) -> Vec<String> {
    let prose = without_code(text);
    let ids = prose
        .split("][")
        .skip(1)
        .map(|part| part.split(']').next().unwrap());
    let undefined = ids.filter(|id| !prose.contains(&format!("\n[{id}]: ")));
    undefined.map(str::to_owned).collect()
}

/// The anchors of the headings of a document, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let prose = without_fences(text);
    let headings = prose.lines().filter_map(|line| {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        ((1..=6).contains(&level) && title.starts_with(' ')).then(|| title.trim())
    });
    let mut anchors = Vec::new();
    for title in headings {
        let slug = slug(title);
        let earlier = seen.entry(slug.clone()).or_default();
        anchors.push(match *earlier {
            0 => slug,
            n => format!("{slug}-{n}"),
        });
        *earlier += 1;
    }
    anchors
}

fn slug(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let title = title.to_lowercase();
    title
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// `text` without its blocks of code and its inline code, where brackets mean something else.
fn without_code(text: &str) -> String {
    let fences = without_fences(text);
    // Every second part is between two backticks.
    fences.split('`').step_by(2).collect()
}

fn without_fences(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        if !inside && !is_fence {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

#[test]
fn a_link_to_a_missing_file_or_heading_is_found() {
    let page = root().join("README.md");
    assert!(check(&page, "docs/resources.md#redis-and-valkey").is_ok());
    assert!(check(&page, "docs/resources.md#redis-and-no-other").is_err());
    assert!(check(&page, "docs/nowhere.md").is_err());
    assert!(check(&page, "ftp://example.org").is_err());
}

#[test]
fn links_are_found_in_prose_and_not_in_code() {
    let text =
        "a [b](c.md#d), ![e](f.svg) and `[g](h)`\n```rust\nlet i = j[k](l);\n```\n[m]: n.md\n";
    assert_eq!(links(text), ["c.md#d", "f.svg", "n.md"]);
    assert!(undefined_references("[a][b]\n[b]: c.md\n").is_empty());
    assert_eq!(undefined_references("[a][b]\n[c]: c.md\n"), ["b"]);
}

#[test]
fn anchors_are_those_of_github() {
    let text =
        "# Two words\n## How `run` ends: its, command\n```sh\n# no heading\n```\n## Two words\n";
    assert_eq!(
        anchors(text),
        ["two-words", "how-run-ends-its-command", "two-words-1"]
    );
}
