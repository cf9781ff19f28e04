//! The copy of the product in which every rule can be broken.
//!
//! It contains every file that git tracks, changed by the edits of the list. Each crate that an
//! edit changes also gets a module `mutants`, which knows the mutant that the process was started
//! with. A file is written only if it differs, so that cargo builds only what has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::edit::{self, Misfit, Piece, SharedEdit};
use super::list;

/// Not tracked by git, but needed by tests: the folder in which Valkey is installed.
const VENV: &str = ".venv";

/// The changed files of the copy, by their path from the root of the workspace.
pub(super) type Changed = BTreeMap<PathBuf, String>;

/// Writes the copy of the workspace at `root` to the folder `copy`.
pub(super) fn write(root: &Path, copy: &Path) -> Result<(), Box<dyn Error>> {
    let mut changed = changed(root)?;
    let mut files = tracked(root)?;
    files.extend(changed.keys().cloned());
    for file in &files {
        let (from, to) = (root.join(file), copy.join(file));
        let content = match changed.remove(file) {
            Some(text) => text.into_bytes(),
            None => fs::read(&from)?,
        };
        if put(&to, &content)?
            && let Ok(original) = fs::metadata(&from)
        {
            fs::set_permissions(&to, original.permissions())?;
        }
    }
    remove_others(copy, Path::new(""), &files)?;
    match symlink(root.join(VENV), copy.join(VENV)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes `file` unless it has this content already. Returns whether it was written.
fn put(file: &Path, content: &[u8]) -> io::Result<bool> {
    if fs::read(file).is_ok_and(|known| known == content) {
        return Ok(false);
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, content)?;
    Ok(true)
}

/// The files of the copy that differ from the workspace at `root`, and those that it has in
/// addition.
pub(super) fn changed(root: &Path) -> Result<Changed, Box<dyn Error>> {
    let mutants = list::all();
    let by_file = SharedEdit::by_file(&mutants, list::HOOKS);
    let (mut changed, mut misfits) = (Changed::new(), Vec::new());
    let (mut crates, mut of_scripts) = (BTreeSet::new(), Vec::new());
    for (file, edits) in by_file {
        if file.ends_with(".lua") {
            of_scripts.extend(edits);
            continue;
        }
        if let Some((folder, _)) = file.split_once("/src/") {
            crates.insert(folder);
        }
        match edit::apply(&read(root, file)?, &edits) {
            Ok(text) => drop(changed.insert(file.into(), text)),
            Err(found) => misfits.extend(found),
        }
    }
    let scripts = scripts(root, of_scripts.iter().map(|shared| shared.edit.file))?;
    let by_name = scripts
        .iter()
        .map(|(file, text)| (file.as_str(), text.clone()))
        .collect();
    let pieces = edit::pieces(&by_name, &of_scripts).unwrap_or_else(|found| {
        misfits.extend(found);
        Vec::new()
    });
    if !misfits.is_empty() {
        return Err(describe(&misfits).into());
    }
    let names = mutants.iter().map(|mutant| mutant.name);
    let switch = switch(names, &pieces);
    for folder in crates {
        let root_file = format!("{folder}/src/lib.rs");
        let text = match changed.remove(Path::new(&root_file)) {
            Some(text) => text,
            None => read(root, &root_file)?,
        };
        changed.insert(
            root_file.into(),
            text + "\n#[doc(hidden)]\npub mod mutants;\n",
        );
        changed.insert(format!("{folder}/src/mutants.rs").into(), switch.clone());
    }
    Ok(changed)
}

fn describe(misfits: &[Misfit]) -> String {
    let mut text = "the list of mutants (crates/ringfence-verify/src/mutants/list) does not match \
                    the product:"
        .to_owned();
    for misfit in misfits {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{misfit}");
    }
    text
}

/// The module that the changed crates of the copy have in addition.
fn switch<'a>(names: impl Iterator<Item = &'a str>, pieces: &[Piece]) -> String {
    let names: Vec<&str> = names.collect();
    let pieces = pieces.iter().map(|piece| {
        format!(
            "    ({:?}, {:?}, {:?}),\n",
            piece.mutant, piece.text, piece.replacement
        )
    });
    include_str!("switch.rs")
        .replace("&[] /* names */", &format!("&{names:?}"))
        .replace(
            "&[] /* pieces */",
            &format!("&[\n{}]", pieces.collect::<String>()),
        )
}

/// All scripts in the folders of `files`, by their path from `root`.
fn scripts<'a>(
    root: &Path,
    files: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    let folders: BTreeSet<&str> = files
        .filter_map(|file| Some(file.rsplit_once('/')?.0))
        .collect();
    let mut scripts = BTreeMap::new();
    for folder in folders {
        let entries =
            fs::read_dir(root.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
        for entry in entries {
            let name = format!("{folder}/{}", entry?.file_name().display());
            if name.ends_with(".lua") {
                let text = read(root, &name)?;
                scripts.insert(name, text);
            }
        }
    }
    Ok(scripts)
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

/// The files that git tracks, and new ones that it does not ignore.
fn tracked(root: &Path) -> Result<BTreeSet<PathBuf>, Box<dyn Error>> {
    let git = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git to list the files to copy: {error}"))?;
    if !git.status.success() {
        let why = String::from_utf8_lossy(&git.stderr);
        return Err(format!("git failed to list the files to copy: {}", why.trim()).into());
    }
    let names = String::from_utf8(git.stdout)?;
    let names = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    // Git still lists deleted files.
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}

/// Removes all files from `folder` of the copy that are not in `files`.
fn remove_others(copy: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(copy.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            remove_others(copy, &name, files)?;
        } else if kind.is_file() && !files.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_text_of_the_list_is_found_once_in_the_product() {
        changed(&root()).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn every_mutant_breaks_something() {
        for mutant in list::all() {
            let mut edits = mutant.edits.iter();
            let broken = match mutant.runs_on() {
                list::RunsOn::Library => edits
                    .any(|edit| edit::switches(edit.replacement).any(|name| name == mutant.name)),
                _ => edits.all(|edit| edit.is_lua() && edit.text != edit.replacement),
            };
            assert!(broken, "{} changes nothing", mutant.name);
        }
    }

    #[test]
    fn a_file_is_written_only_if_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("src/lib.rs");
        assert!(put(&file, b"one").unwrap());
        assert!(!put(&file, b"one").unwrap());
        assert!(put(&file, b"two").unwrap());
        assert_eq!(fs::read(&file).unwrap(), b"two");
    }

    #[test]
    fn files_that_the_workspace_no_longer_has_are_removed_from_the_copy() {
        let (elsewhere, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(copy.path().join("old/er")).unwrap();
        for name in ["kept", "old/gone", "old/er/gone"] {
            fs::write(copy.path().join(name), name).unwrap();
        }
        symlink(elsewhere.path(), copy.path().join(VENV)).unwrap();
        remove_others(copy.path(), Path::new(""), &BTreeSet::from(["kept".into()])).unwrap();
        assert!(copy.path().join("kept").exists());
        assert!(copy.path().join(VENV).is_symlink());
        assert!(!copy.path().join("old/gone").exists());
        assert!(!copy.path().join("old/er/gone").exists());
    }
}
