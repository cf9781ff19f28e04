//! A history as JSON lines, one event per line. Runs with several processes write their journals in
//! this form, and failed runs keep it.

use super::{Event, History};

/// A line that is not an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong with the line.
    pub why: String,
}

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for BadLine {}

impl History {
    /// The history as JSON lines.
    pub fn to_json_lines(&self) -> String {
        self.events
            .iter()
            .map(|event| event.to_json() + "\n")
            .collect()
    }

    /// Reads what [`to_json_lines`](Self::to_json_lines) wrote. The lines of several processes may
    /// be in any order.
    ///
    /// # Errors
    /// Fails at the first line that is not an event.
    pub fn from_json_lines(text: &str) -> Result<Self, BadLine> {
        let mut events = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let event = serde_json::from_str(line).map_err(|error| BadLine {
                line: at + 1,
                why: error.to_string(),
            })?;
            events.push(event);
        }
        events.sort_by_key(|event: &Event| event.at_us);
        Ok(Self { events })
    }
}

impl Event {
    /// The event as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every event can be written as JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, What};
    use super::*;

    /// One event of each kind.
    fn all() -> History {
        let mut history = History::default();
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { of: 3 }] {
            let what = What::Invoked {
                op: 1,
                client: 2,
                mode,
                names: vec![name(), "y".to_owned()],
                waits: true,
                owner: Some(7),
            };
            history.push(1, what);
        }
        for (at, what) in (2..).zip(calls().into_iter().chain(outcomes())) {
            history.push(at, what);
        }
        history
    }

    fn name() -> String {
        "x".to_owned()
    }

    fn calls() -> Vec<What> {
        vec![
            What::Queued { op: 1 },
            What::Seated { op: 1, ballot: 7 },
            What::Kept {
                op: 1,
                from_us: 8,
                until_us: 9,
            },
            What::Told {
                op: 5,
                name: name(),
                leader: 1,
                term: 7,
            },
            What::Vacant {
                op: 5,
                name: name(),
            },
            What::Turned {
                op: 6,
                client: 2,
                latch: name(),
                count: 2,
                party: Some("eu".to_owned()),
            },
            What::Turned {
                op: 7,
                client: 2,
                latch: name(),
                count: 2,
                party: None,
            },
            What::Found {
                op: 6,
                arrived: Some(1),
                open: false,
            },
            What::Found {
                op: 7,
                arrived: None,
                open: true,
            },
            What::Granted {
                op: 1,
                fence: Some(u64::MAX),
                slot: Some(2),
                until_us: 9,
            },
            What::Granted {
                op: 2,
                fence: None,
                slot: None,
                until_us: 9,
            },
        ]
    }

    fn outcomes() -> Vec<What> {
        vec![
            What::Deadline {
                op: 1,
                until_us: 10,
            },
            What::Downgraded { op: 1 },
            What::Ended { op: 1 },
            What::Refused {
                op: 3,
                why: "held \"by\" another\n".to_owned(),
            },
            What::Unknown { op: 4 },
            What::Updated {
                resource: name(),
                op: 1,
                fence: 7,
                saw: 0,
                wrote: 1,
            },
            What::Removed {
                node: 0,
                name: name(),
                holder: "a".to_owned(),
                by: "a".to_owned(),
            },
            What::Returned {
                node: 2,
                name: name(),
                holder: "a".to_owned(),
            },
            What::Remains {
                node: 2,
                name: name(),
                what: "a key".to_owned(),
            },
            What::Fault {
                what: "partition".to_owned(),
                timing: false,
            },
            What::Healed,
            What::Over,
        ]
    }

    #[test]
    fn every_event_reads_back() {
        let history = all();
        let text = history.to_json_lines();
        assert_eq!(text.lines().count(), history.events.len());
        assert_eq!(History::from_json_lines(&text), Ok(history));
    }

    /// Histories of earlier versions must stay readable, so the form must not change.
    #[test]
    fn an_event_is_one_flat_object() {
        let text = all().to_json_lines();
        for line in [
            concat!(
                r#"{"at_us":1,"event":"invoked","op":1,"client":2,"mode":"permit","permits":3,"#,
                r#""names":["x","y"],"waits":true,"owner":7}"#
            ),
            r#"{"at_us":12,"event":"granted","op":2,"fence":null,"slot":null,"until_us":9}"#,
            r#"{"at_us":24,"event":"over"}"#,
        ] {
            assert!(
                text.lines().any(|written| written == line),
                "{line}\n{text}"
            );
        }
        let earlier = concat!(
            r#"{"at_us":1,"client":2,"event":"invoked","mode":"shared","names":["x"],"op":1,"#,
            r#""owner":null,"permits":null,"waits":true}"#
        );
        let read = History::from_json_lines(earlier).unwrap();
        let shared = matches!(
            read.events[0].what,
            What::Invoked {
                mode: Mode::Shared,
                owner: None,
                ..
            }
        );
        assert!(shared, "{read:?}");
    }

    #[test]
    fn lines_of_several_processes_are_sorted_by_time() {
        let lines = all().to_json_lines();
        let backwards: Vec<&str> = lines.lines().rev().collect();
        let read = History::from_json_lines(&backwards.join("\n")).unwrap();
        assert!(read.events.is_sorted_by_key(|event| event.at_us));
    }

    #[test]
    fn a_bad_line_is_reported_with_its_number() {
        for bad in [
            "{",
            "[]",
            "{\"at_us\":1}",
            "{\"at_us\":1,\"event\":\"granted\"}",
        ] {
            let text = format!("{{\"at_us\":1,\"event\":\"over\"}}\n\n{bad}\n");
            assert_eq!(
                History::from_json_lines(&text).unwrap_err().line,
                3,
                "{bad}"
            );
        }
    }
}
