//! Applies the edits of the list to the files of the product.
//!
//! A text must be found exactly once in the function that its edit names. Otherwise the product has
//! changed and the entry must be updated: the error names the mutant, the file and the function.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::list::{Edit, Mutant};
use super::source::{Function, Language, Squeezed, functions, named};

/// Why an entry of the list does not match the product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    /// The mutants that name the edit; empty for a hook.
    mutants: Vec<&'static str>,
    file: &'static str,
    function: &'static str,
    why: String,
}

/// An edit with all mutants that name it.
#[derive(Debug, Clone)]
pub(super) struct SharedEdit {
    /// The edit.
    pub(super) edit: Edit,
    mutants: Vec<&'static str>,
}

/// A piece of a script, and what the server runs instead under a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The mutant.
    pub(super) mutant: &'static str,
    /// The piece, which occurs in one script only.
    pub(super) text: String,
    /// The replacement.
    pub(super) replacement: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mutants = match &self.mutants[..] {
            [] => "a hook".to_owned(),
            names => names.join(", "),
        };
        write!(f, "{mutants}: in {}", self.file)?;
        if !self.function.is_empty() {
            write!(f, ", function `{}`", self.function)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for Misfit {}

impl SharedEdit {
    /// The distinct edits of `mutants` and `hooks`, by file.
    pub(super) fn by_file(
        mutants: &[&Mutant],
        hooks: &[Edit],
    ) -> BTreeMap<&'static str, Vec<Self>> {
        let mut files: BTreeMap<_, Vec<Self>> = BTreeMap::new();
        let of_mutants = mutants.iter().flat_map(|mutant| {
            let edits = mutant.edits.iter();
            edits.map(|edit| (*edit, Some(mutant.name)))
        });
        for (edit, name) in of_mutants.chain(hooks.iter().map(|edit| (*edit, None))) {
            let shared = files.entry(edit.file).or_default();
            match shared.iter_mut().find(|known| known.edit == edit) {
                Some(known) => known.mutants.extend(name),
                None => shared.push(Self {
                    edit,
                    mutants: name.into_iter().collect(),
                }),
            }
        }
        files
    }

    /// The range of `text` that the edit refound.
    fn find(
        &self,
        text: &str,
        squeezed: &Squeezed,
        functions: &[Function],
    ) -> Result<Range<usize>, Misfit> {
        let scope = match self.edit.function {
            "" => 0..text.len(),
            name => match &named(functions, name)[..] {
                [one] => one.range.clone(),
                [] => return Err(self.misfit("there is no such function".to_owned())),
                several => {
                    let why = format!("there are {} of this name: add the type", several.len());
                    return Err(self.misfit(why));
                }
            },
        };
        let wanted = Squeezed::new(without_last_comma(self.edit.text), self.language());
        let mut found = squeezed.find(&wanted, &scope);
        match (found.pop(), found.len()) {
            (Some(range), 0) => Ok(range),
            (None, _) => Err(self.misfit(format!("not found: {}", self.edit.text))),
            (Some(_), more) => {
                Err(self.misfit(format!("found {} times: {}", more + 1, self.edit.text)))
            }
        }
    }

    fn language(&self) -> Language {
        match self.edit.is_lua() {
            true => Language::Lua,
            false => Language::Rust,
        }
    }

    fn misfit(&self, why: String) -> Misfit {
        let Edit { file, function, .. } = self.edit;
        let mutants = self.mutants.clone();
        Misfit {
            mutants,
            file,
            function,
            why,
        }
    }
}

/// Applies `edits`, which are all edits of one Rust file, to its `text`.
pub(super) fn apply(text: &str, edits: &[SharedEdit]) -> Result<String, Vec<Misfit>> {
    let (squeezed, functions) = (Squeezed::new(text, Language::Rust), functions(text));
    let (mut found, mut misfits) = (Vec::new(), Vec::new());
    for shared in edits {
        match shared.find(text, &squeezed, &functions) {
            Ok(range) => found.push((range, shared)),
            Err(misfit) => misfits.push(misfit),
        }
    }
    for (_, shared) in &found {
        let foreign = |name: &&str| !shared.mutants.contains(name);
        if let Some(name) = switches(shared.edit.replacement).find(foreign) {
            misfits
                .push(shared.misfit(format!("has the switch of {name}, which does not name it")));
        }
    }
    found.sort_by_key(|(range, _)| range.start);
    for pair in found.windows(2) {
        let [(one, first), (other, second)] = pair else {
            continue;
        };
        if other.start < one.end {
            let why = format!(
                "overlaps with the edit of {}: share one edit",
                first.mutants.join(", ")
            );
            misfits.push(second.misfit(why));
        }
    }
    if !misfits.is_empty() {
        return Err(misfits);
    }
    let mut edited = text.to_owned();
    for (range, shared) in found.into_iter().rev() {
        let replacement = without_last_comma(shared.edit.replacement);
        edited.replace_range(range, &switched(replacement));
    }
    Ok(edited)
}

/// The pieces of scripts that `edits` replace. `scripts` are all scripts of the product, by file. A
/// piece that also occurs in another script grows by lines until it is unique.
pub(super) fn pieces(
    scripts: &BTreeMap<&str, String>,
    edits: &[SharedEdit],
) -> Result<Vec<Piece>, Vec<Misfit>> {
    let (mut pieces, mut misfits) = (Vec::new(), Vec::new());
    for shared in edits {
        let Some(text) = scripts.get(shared.edit.file) else {
            misfits.push(shared.misfit("there is no such file".to_owned()));
            continue;
        };
        match shared.find(text, &Squeezed::new(text, Language::Lua), &[]) {
            Ok(found) => {
                let range = unique(scripts, text, found.clone());
                let (before, behind) =
                    (&text[range.start..found.start], &text[found.end..range.end]);
                pieces.extend(shared.mutants.iter().map(|mutant| Piece {
                    mutant,
                    text: text[range.clone()].to_owned(),
                    replacement: format!("{before}{}{behind}", shared.edit.replacement),
                }));
            }
            Err(misfit) => misfits.push(misfit),
        }
    }
    if misfits.is_empty() {
        Ok(pieces)
    } else {
        Err(misfits)
    }
}

/// `range` of `text`, extended by as many lines as it takes to occur in no other script.
fn unique(scripts: &BTreeMap<&str, String>, text: &str, mut range: Range<usize>) -> Range<usize> {
    let holders = |piece: &str| {
        scripts
            .values()
            .filter(|script| script.contains(piece))
            .count()
    };
    while holders(&text[range.clone()]) > 1 && range != (0..text.len()) {
        let before = text[..range.start.saturating_sub(1)].rfind('\n');
        let behind = text[range.end..].find('\n').map(|at| range.end + at + 1);
        range = before.map_or(0, |at| at + 1)..behind.unwrap_or(text.len());
    }
    range
}

/// Whether a comma follows a last element depends on where the lines break.
fn without_last_comma(text: &str) -> &str {
    let text = text.trim_ascii_end();
    text.strip_suffix(',').unwrap_or(text)
}

/// Refound each `mutant!(NAME)` by the call that the copy uses.
fn switched(replacement: &str) -> String {
    let mut parts = replacement.split("mutant!(");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(')').unwrap_or((part, ""));
        code.push_str(&format!("crate::mutants::is_chosen(\"{name}\"){rest}"));
    }
    code
}

/// The mutants whose switches `replacement` contains.
pub(super) fn switches(replacement: &str) -> impl Iterator<Item = &str> {
    let parts = replacement.split("mutant!(").skip(1);
    parts.map(|part| part.split(')').next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
