//! What is written down while a run goes on: one file for each process, one JSON line for each thing
//! that happened, on the clock that all processes of a machine share. A line is written before its
//! process does anything else, so that the file of a client that was killed lacks nothing.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ringfence::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::history::{Event, History, What};

/// What is not judged as an event, but counted or shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// Which nodes granted a call.
    Votes {
        /// The call.
        op: u64,
        /// The nodes, from 0.
        nodes: Vec<u64>,
    },
    /// A holder was told that it lost what it held.
    Lost {
        /// The call.
        op: u64,
        /// Why, for people.
        why: String,
    },
    /// The fenced resource refused what came too late.
    Late {
        /// On behalf of which call.
        op: u64,
    },
    /// A fault, from beginning to end.
    Strike {
        /// Which sort.
        kind: String,
        /// Whom it hit: `node 2`, `client 1`, or the links between.
        on: String,
        /// When it began.
        from_us: u64,
    },
    /// A client process was killed: what it had asked for is unknown.
    Dead {
        /// Its number.
        client: u64,
    },
}

/// One line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Event(Event),
    Note {
        at_us: u64,
        #[serde(flatten)]
        note: Note,
    },
}

/// A file that lines are added to.
#[derive(Debug)]
pub(super) struct Journal(Mutex<File>);

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::create(path)?)))
    }

    pub(super) fn event(&self, at_us: u64, what: What) {
        self.write(&Line::Event(Event { at_us, what }));
    }

    pub(super) fn note(&self, at_us: u64, note: &Note) {
        let note = note.clone();
        self.write(&Line::Note { at_us, note });
    }

    /// A run that cannot write down what happens is worth nothing.
    fn write(&self, line: &impl Serialize) {
        let line = serde_json::to_string(line).expect("every line has a form in JSON") + "\n";
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .expect("cannot write the history");
    }
}

/// The moment on the clock that all processes of this machine share.
pub(super) fn now_us() -> u64 {
    Clock::System.now().as_micros()
}

/// All that was written down, put together.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// What is judged.
    pub history: History,
    /// The rest, by time.
    pub notes: Vec<(u64, Note)>,
}

impl Record {
    /// Reads every journal in `folder`.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut record = Self::default();
        let mut paths: Vec<_> = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
            .collect();
        paths.sort();
        for path in paths {
            let text = fs::read_to_string(&path)?;
            for (at, line) in text.lines().enumerate() {
                let whole = at + 1 < text.lines().count() || text.ends_with('\n');
                match record.add(line) {
                    Some(()) => {}
                    // Its process was killed in the middle of the line, before it did anything.
                    None if !whole => {}
                    None => {
                        let why = format!("{}: line {} is no event", path.display(), at + 1);
                        return Err(io::Error::other(why));
                    }
                }
            }
        }
        record.history.events.sort_by_key(|event| event.at_us);
        record.notes.sort_by_key(|(at_us, _)| *at_us);
        record.close_calls_of_the_dead();
        Ok(record)
    }

    /// Counts all times from the first event on.
    pub(super) fn count_from_zero(&mut self) {
        let first = self.history.events.first();
        let start_us = first.map_or(0, |event| event.at_us);
        let shift = |at_us: &mut u64| *at_us = at_us.saturating_sub(start_us);
        for event in &mut self.history.events {
            shift(&mut event.at_us);
            if let What::Granted { until_us, .. } | What::Deadline { until_us, .. } =
                &mut event.what
            {
                shift(until_us);
            }
        }
        for (at_us, note) in &mut self.notes {
            shift(at_us);
            if let Note::Strike { from_us, .. } = note {
                shift(from_us);
            }
        }
    }

    fn add(&mut self, line: &str) -> Option<()> {
        match serde_json::from_str(line).ok()? {
            Line::Event(event) => self.history.events.push(event),
            Line::Note { at_us, note } => self.notes.push((at_us, note)),
        }
        Some(())
    }

    /// Nobody can say what came of the calls that were under way in a client when it was killed.
    fn close_calls_of_the_dead(&mut self) {
        let dead: BTreeMap<u64, u64> = self
            .notes
            .iter()
            .filter_map(|(at_us, note)| match note {
                Note::Dead { client } => Some((*client, *at_us)),
                _ => None,
            })
            .collect();
        let mut ended = HashSet::new();
        for event in &self.history.events {
            if let What::Granted { op, .. }
            | What::Found { op, .. }
            | What::Refused { op, .. }
            | What::Unknown { op } = &event.what
            {
                ended.insert(*op);
            }
        }
        let mut unknown = Vec::new();
        for event in &self.history.events {
            if let What::Invoked { op, client, .. } | What::Turned { op, client, .. } = &event.what
                && let Some(at_us) = dead.get(client)
                && !ended.contains(op)
            {
                unknown.push((*at_us, What::Unknown { op: *op }));
            }
        }
        for (at_us, what) in unknown {
            self.history.push(at_us, what);
        }
        self.history.events.sort_by_key(|event| event.at_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Mode;

    fn invoked(op: u64, client: u64) -> What {
        What::Invoked {
            op,
            client,
            mode: Mode::Exclusive,
            names: vec!["x".to_owned()],
            waits: true,
            owner: None,
        }
    }

    #[test]
    fn journals_are_put_together_and_the_calls_of_the_dead_are_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let notes = [
            Note::Votes {
                op: 1,
                nodes: vec![0, 2],
            },
            Note::Lost {
                op: 1,
                why: "gone".to_owned(),
            },
            Note::Late { op: 1 },
            Note::Strike {
                kind: "cut".to_owned(),
                on: "node 1".to_owned(),
                from_us: 3,
            },
            Note::Dead { client: 7 },
        ];
        let one = Journal::create(&folder.path().join("one.jsonl")).unwrap();
        one.event(2, invoked(1, 7));
        one.event(9, What::Over);
        let other = Journal::create(&folder.path().join("other.jsonl")).unwrap();
        other.event(1, invoked(2, 8));
        for (at_us, note) in (4..).zip(&notes) {
            other.note(at_us, note);
        }
        other.write(&"cut short");
        let path = folder.path().join("other.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 4]).unwrap();

        let record = Record::read(folder.path()).unwrap();
        let read: Vec<&Note> = record.notes.iter().map(|(_, note)| note).collect();
        assert_eq!(read, notes.iter().collect::<Vec<_>>());
        let unknown: Vec<_> = record
            .history
            .events
            .iter()
            .filter(|event| matches!(event.what, What::Unknown { .. }))
            .collect();
        assert_eq!(unknown.len(), 1, "only the call of the dead");
        assert_eq!(unknown[0].what, What::Unknown { op: 1 });
        assert_eq!(unknown[0].at_us, 8);
    }

    #[test]
    fn times_count_from_the_first_event() {
        let mut record = Record::default();
        record.history.push(100, invoked(1, 1));
        record
            .history
            .push(130, crate::history::made::grant(1, 9, 150));
        let (kind, on) = ("cut".to_owned(), "node 1".to_owned());
        let from_us = 110;
        record.notes = vec![(140, Note::Strike { kind, on, from_us })];
        record.count_from_zero();
        let hold = &record.history.holds()[0];
        assert_eq!((hold.invoked_us, hold.from_us, hold.to_us), (0, 30, 50));
        assert!(
            matches!(record.notes[0], (40, Note::Strike { from_us: 10, .. })),
            "{:?}",
            record.notes
        );
    }

    #[test]
    fn a_whole_line_that_is_no_event_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.jsonl"), "{}\n").unwrap();
        let error = Record::read(folder.path()).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
