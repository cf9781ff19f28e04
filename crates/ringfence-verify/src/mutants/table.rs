//! The table of mutants and the tests that caught them, in Markdown: for people, and for the next
//! run, which tries these tests first.

use std::fmt::Write;
use std::time::Duration;

use super::Mutant;

const HEADING: &str = "\
| mutant | the rule that it breaks | caught by | seconds | simulator |
|---|---|---|---:|---|
";

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The mutant.
    pub name: String,
    /// The rule that it breaks.
    pub rule: String,
    /// The suite and the test that caught it, if one did.
    pub by: Option<(String, String)>,
    /// How long that test took.
    pub took: Duration,
    /// The result of the simulator alone, in words.
    pub simulator: String,
}

/// All rows, in the order of the list of mutants, with the text before and after them.
#[derive(Debug, Clone, Default)]
pub struct Table {
    before: String,
    rows: Vec<Row>,
    after: String,
}

impl Table {
    /// Reads the table in `text`. All other text is kept unchanged.
    pub fn read(text: &str) -> Self {
        let Some((before, rest)) = text.split_once(HEADING) else {
            return Self {
                before: text.to_owned(),
                ..Self::default()
            };
        };
        let end = rest
            .split_inclusive('\n')
            .take_while(|line| line.starts_with('|'))
            .map(str::len)
            .sum();
        let (rows, after) = rest.split_at(end);
        Self {
            before: before.to_owned(),
            rows: rows.lines().filter_map(Row::read).collect(),
            after: after.to_owned(),
        }
    }

    /// The row of a mutant.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Makes one row for each of `mutants`, in their order, and removes all others.
    pub fn follow(&mut self, mutants: &[Mutant]) {
        let rows = mutants.iter().map(|one| {
            let known = self.row(one.name).cloned();
            let known = known.unwrap_or_else(|| Row {
                name: String::new(),
                rule: String::new(),
                by: None,
                took: Duration::ZERO,
                simulator: String::new(),
            });
            Row {
                name: one.name.to_owned(),
                rule: one.rule.to_owned(),
                ..known
            }
        });
        self.rows = rows.collect();
    }

    /// Changes the row of a mutant, if there is one.
    pub fn note(&mut self, name: &str, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.name == name) {
            change(row);
        }
    }

    /// The text with the current table.
    pub fn write(&self) -> String {
        let mut text = format!("{}{HEADING}", self.before);
        for row in &self.rows {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", row.write());
        }
        text + &self.after
    }
}

impl Row {
    fn read(line: &str) -> Option<Self> {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next()?.trim_matches('`').to_owned();
        let rule = cells.next()?.to_owned();
        let by = cells.next()?.split_once(": ");
        let seconds: f64 = cells.next()?.parse().ok()?;
        Some(Self {
            name,
            rule,
            by: by.map(|(suite, test)| (suite.to_owned(), test.trim_matches('`').to_owned())),
            took: Duration::try_from_secs_f64(seconds).ok()?,
            simulator: cells.next()?.to_owned(),
        })
    }

    fn write(&self) -> String {
        let by = match &self.by {
            Some((suite, test)) => format!("{suite}: `{test}`"),
            None => "**nothing**".to_owned(),
        };
        let seconds = self.took.as_secs_f64();
        format!(
            "| `{}` | {} | {by} | {seconds:.1} | {} |",
            self.name, self.rule, self.simulator
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Mutants

| mutant | the rule that it breaks | caught by | seconds | simulator |
|---|---|---|---:|---|
| `NoUndo` | A lost attempt is undone. | rules: `cancel::leaves_nothing` | 1.2 | `leftovers` |
| `TieWins` | A tie is no majority. | **nothing** | 0.0 |  |

The end.
";

    #[test]
    fn a_written_table_reads_back() {
        let table = Table::read(TEXT);
        assert_eq!(table.write(), TEXT);
        let row = table.row("NoUndo").unwrap();
        let by = ("rules".to_owned(), "cancel::leaves_nothing".to_owned());
        assert_eq!(row.by, Some(by));
        assert_eq!(row.took, Duration::from_millis(1_200));
        assert_eq!(table.row("TieWins").unwrap().by, None);
    }

    #[test]
    fn a_text_without_a_table_gets_one() {
        let mut table = Table::read("# Mutants\n\n");
        table.follow(&[listed("TieWins", "No tie.")]);
        let row = "| `TieWins` | No tie. | **nothing** | 0.0 |  |\n";
        assert_eq!(table.write(), format!("# Mutants\n\n{HEADING}{row}"));
    }

    #[test]
    fn the_rows_follow_the_list_and_keep_their_results() {
        let mut table = Table::read(TEXT);
        table.follow(&[
            listed("New", "Another rule."),
            listed("NoUndo", "In other words."),
        ]);
        table.note("New", |row| row.took = Duration::from_secs(2));
        assert_eq!(table.row("TieWins"), None);
        assert_eq!(table.row("New").unwrap().took, Duration::from_secs(2));
        let kept = table.row("NoUndo").unwrap();
        assert_eq!(kept.rule, "In other words.");
        assert!(kept.by.is_some());
    }

    fn listed(name: &'static str, rule: &'static str) -> Mutant {
        Mutant {
            name,
            rule,
            edits: &[],
        }
    }
}
