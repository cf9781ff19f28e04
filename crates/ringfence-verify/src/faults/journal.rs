//! The journals of a run: one file per process, one JSON line per event, with times of the clock
//! that all processes of a machine share. A process writes a line before it does anything else, so
//! the file of a killed client is complete.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ringfence::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::history::{Event, History, What};

/// Something that is counted or shown, but not judged as an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// The nodes that granted a call.
    Votes {
        /// The call.
        op: u64,
        /// The nodes, from 0.
        nodes: Vec<u64>,
    },
    /// A holder learned that it lost its lock.
    Lost {
        /// The call.
        op: u64,
        /// The reason, for people.
        why: String,
    },
    /// A fenced resource refused a late read or write.
    Late {
        /// The call on whose behalf it was sent.
        op: u64,
    },
    /// A fault, from beginning to end.
    Fault {
        /// The kind of fault.
        kind: String,
        /// The target: `node 2`, `client 1`, or the connections between them.
        on: String,
        /// When it began.
        from_us: u64,
    },
    /// A call was granted through the blocking API.
    Blocking {
        /// The call.
        op: u64,
    },
    /// The lock that a call was granted is renewed in the background.
    Renews {
        /// The call.
        op: u64,
    },
    /// A failover behind a Sentinel group, with its times.
    Failover {
        /// How it was brought about.
        kind: String,
        /// How many masters followed each other in it.
        promotions: u64,
        /// When the first fault began.
        from_us: u64,
        /// When a majority of the Sentinels named the last new master, and it served.
        promoted_us: u64,
        /// When the clients that were cut off with the old master could reach the new one.
        healed_us: u64,
        /// When a newcomer was granted a lock again; nothing if it never was.
        granted_us: Option<u64>,
    },
    /// The Sentinels began another failover by themselves since the last one that was recorded.
    Unplanned,
    /// A client process was killed: the results of its open calls are unknown.
    Dead {
        /// Its number.
        client: u64,
    },
}

/// One line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum JournalLine {
    Event(Event),
    Note {
        at_us: u64,
        #[serde(flatten)]
        note: Note,
    },
}

/// A file to which lines are appended.
#[derive(Debug)]
pub(super) struct Journal(Mutex<File>);

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::create(path)?)))
    }

    pub(super) fn event(&self, at_us: u64, what: What) {
        self.write(&JournalLine::Event(Event { at_us, what }));
    }

    pub(super) fn note(&self, at_us: u64, note: &Note) {
        let note = note.clone();
        self.write(&JournalLine::Note { at_us, note });
    }

    /// Panics if the line cannot be written: without its history a run proves nothing.
    fn write(&self, line: &impl Serialize) {
        let line = serde_json::to_string(line).expect("every line can be written as JSON") + "\n";
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .expect("cannot write the history");
    }
}

/// The current time on the clock that all processes of this machine share.
pub(super) fn now_us() -> u64 {
    Clock::System.now().as_micros()
}

/// All journals of a run in one.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The events, which are judged.
    pub history: History,
    /// The notes, by time.
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
                    // The process was killed while it wrote the line, before it did anything else.
                    None if !whole => {}
                    None => {
                        let why = format!("{}: line {} is not an event", path.display(), at + 1);
                        return Err(io::Error::other(why));
                    }
                }
            }
        }
        record.history.events.sort_by_key(|event| event.at_us);
        record.notes.sort_by_key(|(at_us, _)| *at_us);
        record.close_calls_of_killed_clients();
        Ok(record)
    }

    /// Makes all times relative to the first event.
    pub(super) fn count_from_zero(&mut self) {
        let first = self.history.events.first();
        let start_us = first.map_or(0, |event| event.at_us);
        let shift = |at_us: &mut u64| *at_us = at_us.saturating_sub(start_us);
        for event in &mut self.history.events {
            shift(&mut event.at_us);
            if let What::Granted { until_us, .. }
            | What::Deadline { until_us, .. }
            | What::Broken { until_us, .. } = &mut event.what
            {
                shift(until_us);
            }
        }
        for (at_us, note) in &mut self.notes {
            shift(at_us);
            match note {
                Note::Fault { from_us, .. } => shift(from_us),
                Note::Failover {
                    from_us,
                    promoted_us,
                    healed_us,
                    granted_us,
                    ..
                } => {
                    [from_us, promoted_us, healed_us]
                        .into_iter()
                        .for_each(shift);
                    granted_us.iter_mut().for_each(shift);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, line: &str) -> Option<()> {
        match serde_json::from_str(line).ok()? {
            JournalLine::Event(event) => self.history.events.push(event),
            JournalLine::Note { at_us, note } => self.notes.push((at_us, note)),
        }
        Some(())
    }

    /// Marks the calls that were under way in a killed client as unknown.
    fn close_calls_of_killed_clients(&mut self) {
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
            | What::Broken { op, .. }
            | What::Refused { op, .. }
            | What::Unknown { op } = &event.what
            {
                ended.insert(*op);
            }
        }
        let mut unknown = Vec::new();
        for event in &self.history.events {
            if let What::Invoked { op, client, .. }
            | What::Turned { op, client, .. }
            | What::Breaks { op, client, .. } = &event.what
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
    fn journals_are_merged_and_open_calls_of_killed_clients_are_unknown() {
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
            Note::Fault {
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
        other.write(&"incomplete");
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
        assert_eq!(unknown.len(), 1, "only the call of the killed client");
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
        record.notes = vec![(140, Note::Fault { kind, on, from_us })];
        record.count_from_zero();
        let hold = &record.history.holds()[0];
        assert_eq!((hold.invoked_us, hold.from_us, hold.to_us), (0, 30, 50));
        assert!(
            matches!(record.notes[0], (40, Note::Fault { from_us: 10, .. })),
            "{:?}",
            record.notes
        );
    }

    #[test]
    fn a_complete_line_that_is_not_an_event_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.jsonl"), "{}\n").unwrap();
        let error = Record::read(folder.path()).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
