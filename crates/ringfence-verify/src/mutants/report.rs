//! What was caught by what, as a table for people.

use std::fmt::Write;

use super::Catch;

/// The table of `catches`, in Markdown.
pub fn table(catches: &[Catch]) -> String {
    let mut table = String::from(
        "| mutant | the rule that it breaks | caught by | after |\n|---|---|---|---:|\n",
    );
    for catch in catches {
        let by = match &catch.by {
            Some((suite, check)) => format!("{suite}: `{check}`"),
            None => "**nothing**".to_owned(),
        };
        let seconds = catch.took.as_secs_f64();
        let (name, rule) = (&catch.mutant.name, &catch.mutant.rule);
        // Writing to a string does not fail.
        let _ = writeln!(table, "| `{name}` | {rule} | {by} | {seconds:.1} s |");
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mutants::Listed;

    #[test]
    fn a_mutant_that_nothing_caught_stands_out() {
        let catch = |by| Catch {
            mutant: Listed {
                name: "NoUndo".to_owned(),
                place: "Machines".to_owned(),
                rule: "A lost attempt is undone.".to_owned(),
            },
            by,
            took: Duration::from_millis(1_250),
        };
        let table = table(&[catch(Some(("unit tests", "a::b".to_owned()))), catch(None)]);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `NoUndo` | A lost attempt is undone. | unit tests: `a::b` | 1.2 s |",
                "| `NoUndo` | A lost attempt is undone. | **nothing** | 1.2 s |",
            ]
        );
    }
}
