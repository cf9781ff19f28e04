//! What was measured, as a table: for people, and for programs.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

/// One figure: contenders in rows, measurements in columns.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    /// A short name, for the plot's file and the JSON.
    pub(crate) key: &'static str,
    /// What was measured.
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) bars: Vec<Bar>,
    /// Notes for the reader: which contenders are missing, and why.
    pub(crate) notes: Vec<String>,
    /// Whether the columns are steps of growth, which are drawn as lines.
    pub(crate) grows: bool,
}

/// One contender.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) who: String,
    /// In the order of the columns; `None` where nothing was measured.
    pub(crate) cells: Vec<Option<Cell>>,
}

/// The median of the rounds, with the lowest and the highest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The ratio that a figure should reach.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) wanted: Aim,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Cell {
    /// Of several rounds. `None` if there are none.
    pub(crate) fn of(rounds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        Some(Self {
            median: *rounds.get(rounds.len().checked_sub(1)? / 2)?,
            low: *rounds.first()?,
            high: *rounds.last()?,
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, low, high] = [self.median, self.low, self.high].map(short);
        write!(f, "{median} [{low}–{high}]")
    }
}

impl Bar {
    pub(crate) fn new(what: impl Into<String>, measured: f64, wanted: Aim) -> Self {
        let what = what.into();
        Self {
            what,
            measured,
            wanted,
        }
    }

    pub(crate) fn is_met(&self) -> bool {
        match self.wanted {
            Aim::AtLeast(least) => self.measured >= least,
            Aim::AtMost(most) => self.measured <= most,
        }
    }
}

impl Sheet {
    pub(crate) fn new(key: &'static str, title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            key,
            title: title.into(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn row(&mut self, who: impl Into<String>, cells: Vec<Option<Cell>>) {
        self.rows.push(Row {
            who: who.into(),
            cells,
        });
    }

    /// The median of `who` in `column`.
    pub(crate) fn median(&self, who: &str, column: usize) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.who == who)?;
        Some((*row.cells.get(column)?)?.median)
    }

    /// The medians in `column` of all contenders except `ours`.
    pub(crate) fn others<'a>(
        &'a self,
        ours: &'a [&str],
        column: usize,
    ) -> impl Iterator<Item = (&'a str, f64)> {
        let others = self
            .rows
            .iter()
            .filter(move |row| !ours.contains(&row.who.as_str()));
        others.filter_map(move |row| Some((row.who.as_str(), (*row.cells.get(column)?)?.median)))
    }

    /// The best of them: the largest, or the smallest.
    pub(crate) fn best_other(&self, ours: &[&str], column: usize, largest: bool) -> Option<f64> {
        let others = self.others(ours, column).map(|(_, median)| median);
        others.reduce(if largest { f64::max } else { f64::min })
    }

    /// Compares `measured` with `wanted`, if it is known.
    pub(crate) fn judge(&mut self, what: impl Into<String>, measured: Option<f64>, wanted: Aim) {
        match measured {
            Some(measured) => self.bars.push(Bar::new(what, measured, wanted)),
            None => self.notes.push(format!(
                "not compared, because one side is missing: {}",
                what.into()
            )),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n{}\n", self.title);
        let rows = self.rows.iter().map(|row| {
            let cells = row.cells.iter().map(|cell| match cell {
                Some(cell) => cell.to_string(),
                None => "–".to_owned(),
            });
            [row.who.clone()].into_iter().chain(cells).collect()
        });
        let head = [String::new()].into_iter().chain(self.columns.clone());
        let rows: Vec<Vec<String>> = [head.collect()].into_iter().chain(rows).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..=self.columns.len()).filter_map(width).collect();
        for row in &rows {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(text, "{cell:width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            text.push('\n');
        }
        for bar in &self.bars {
            let (sign, wanted) = match bar.wanted {
                Aim::AtLeast(least) => ('≥', least),
                Aim::AtMost(most) => ('≤', most),
            };
            let met = if bar.is_met() { "met" } else { "NOT MET" };
            let _ = writeln!(
                text,
                "  {}: {} (wanted {sign} {wanted}): {met}",
                bar.what,
                short(bar.measured)
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let cell = |cell: &Option<Cell>| {
            cell.map(|cell| json!({ "median": cell.median, "low": cell.low, "high": cell.high }))
        };
        let row = |row: &Row| {
            let cells: Vec<_> = row.cells.iter().map(cell).collect();
            json!({ "who": row.who, "cells": cells })
        };
        let bar = |bar: &Bar| {
            let (at, wanted) = match bar.wanted {
                Aim::AtLeast(least) => ("at least", least),
                Aim::AtMost(most) => ("at most", most),
            };
            json!({ "what": bar.what, "measured": bar.measured, at: wanted, "met": bar.is_met() })
        };
        json!({
            "figure": self.key,
            "title": self.title,
            "columns": self.columns,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "bars": self.bars.iter().map(bar).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// Three significant digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_rounds_is_one_of_them() {
        let cell = Cell::of([5.0, 1.0, 3.0, 2.0]).expect("rounds");
        assert_eq!((cell.median, cell.low, cell.high), (2.0, 1.0, 5.0));
        assert!(Cell::of([]).is_none());
    }

    #[test]
    fn columns_fit_their_contents() {
        let mut sheet = Sheet::new("x", "A title", &["µs", "a long name"]);
        sheet.row("one", vec![Cell::of([100.0]), Cell::of([5.0])]);
        sheet.row("another", vec![None]);
        let text = "\nA title\n                    µs       a long name\n\
                    one      100 [100–100]  5.00 [5.00–5.00]\n\
                    another              –\n";
        assert_eq!(sheet.text(), text);
    }

    #[test]
    fn bars_are_judged_both_ways() {
        assert!(Bar::new("", 1.0, Aim::AtLeast(1.0)).is_met());
        assert!(!Bar::new("", 0.9, Aim::AtLeast(1.0)).is_met());
        assert!(Bar::new("", 1.0, Aim::AtMost(1.0)).is_met());
        assert!(!Bar::new("", 1.1, Aim::AtMost(1.0)).is_met());
    }

    #[test]
    fn the_best_of_the_others_leaves_ours_out() {
        let mut sheet = Sheet::new("x", "x", &["a"]);
        for (who, value) in [("ours", 9.0), ("one", 2.0), ("two", 3.0)] {
            sheet.row(who, vec![Cell::of([value])]);
        }
        assert_eq!(sheet.best_other(&["ours"], 0, true), Some(3.0));
        assert_eq!(sheet.best_other(&["ours"], 0, false), Some(2.0));
        assert_eq!(sheet.median("two", 0), Some(3.0));
    }
}
