//! A history as JSON lines, one event each: what a run in several processes writes down, and what is
//! kept of a run that went wrong.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Event, History, Mode, What};

/// A line that is no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
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
        let mut text = String::new();
        for event in &self.events {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", event.to_json());
        }
        text
    }

    /// Reads what [`to_json_lines`](Self::to_json_lines) wrote; lines of several processes may stand
    /// in any order.
    ///
    /// # Errors
    /// At the first line that is no event.
    pub fn from_json_lines(text: &str) -> Result<Self, BadLine> {
        let mut events = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let bad = |why: String| BadLine { line: at + 1, why };
            let value: Value = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
            let event = Event::from_json(&value);
            events.push(event.ok_or_else(|| bad("this is no event".to_owned()))?);
        }
        events.sort_by_key(|event: &Event| event.at_us);
        Ok(Self { events })
    }
}

impl Event {
    /// The event as one JSON object.
    pub fn to_json(&self) -> Value {
        let mut value = self.what.to_json();
        value["at_us"] = json!(self.at_us);
        value
    }

    /// Reads one JSON object; `None` if it is no event.
    pub fn from_json(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        Some(Self {
            at_us: number(object, "at_us")?,
            what: What::from_json(object)?,
        })
    }
}

impl What {
    fn to_json(&self) -> Value {
        match self {
            Self::Invoked {
                op,
                client,
                mode,
                names,
                waits,
                owner,
            } => {
                let (mode, permits) = match mode {
                    Mode::Exclusive => ("exclusive", None),
                    Mode::Shared => ("shared", None),
                    Mode::Permit { of } => ("permit", Some(of)),
                };
                json!({"event": "invoked", "op": op, "client": client, "mode": mode,
                       "permits": permits, "names": names, "waits": waits, "owner": owner})
            }
            Self::Queued { op } => json!({"event": "queued", "op": op}),
            Self::Seated { op, ballot } => {
                json!({"event": "seated", "op": op, "ballot": ballot})
            }
            Self::Granted {
                op,
                fence,
                slot,
                until_us,
            } => json!({"event": "granted", "op": op, "fence": fence, "slot": slot,
                        "until_us": until_us}),
            Self::Deadline { op, until_us } => {
                json!({"event": "deadline", "op": op, "until_us": until_us})
            }
            Self::Downgraded { op } => json!({"event": "downgraded", "op": op}),
            Self::Ended { op } => json!({"event": "ended", "op": op}),
            Self::Kept {
                op,
                from_us,
                until_us,
            } => json!({"event": "kept", "op": op, "from_us": from_us, "until_us": until_us}),
            Self::Told {
                op,
                name,
                leader,
                term,
            } => json!({"event": "told", "op": op, "name": name, "leader": leader, "term": term}),
            Self::Turned {
                op,
                client,
                latch,
                count,
                party,
            } => json!({"event": "turned", "op": op, "client": client, "latch": latch,
                        "count": count, "party": party}),
            Self::Found { op, arrived, open } => {
                json!({"event": "found", "op": op, "arrived": arrived, "open": open})
            }
            Self::Refused { op, why } => json!({"event": "refused", "op": op, "why": why}),
            Self::Unknown { op } => json!({"event": "unknown", "op": op}),
            Self::Updated {
                resource,
                op,
                fence,
                saw,
                wrote,
            } => json!({"event": "updated", "resource": resource, "op": op, "fence": fence,
                        "saw": saw, "wrote": wrote}),
            Self::Removed {
                node,
                name,
                holder,
                by,
            } => json!({"event": "removed", "node": node, "name": name, "holder": holder,
                        "by": by}),
            Self::Returned { node, name, holder } => {
                json!({"event": "returned", "node": node, "name": name, "holder": holder})
            }
            Self::Remains { node, name, what } => {
                json!({"event": "remains", "node": node, "name": name, "what": what})
            }
            Self::Fault { what, timing } => {
                json!({"event": "fault", "what": what, "timing": timing})
            }
            Self::Healed => json!({"event": "healed"}),
            Self::Over => json!({"event": "over"}),
        }
    }

    fn from_json(object: &Map<String, Value>) -> Option<Self> {
        let op = || number(object, "op");
        Some(match object.get("event")?.as_str()? {
            "invoked" => Self::Invoked {
                op: op()?,
                client: number(object, "client")?,
                mode: match object.get("mode")?.as_str()? {
                    "exclusive" => Mode::Exclusive,
                    "shared" => Mode::Shared,
                    "permit" => Mode::Permit {
                        of: u32::try_from(number(object, "permits")?).ok()?,
                    },
                    _ => return None,
                },
                names: names(object)?,
                waits: flag(object, "waits")?,
                owner: number(object, "owner"),
            },
            "queued" => Self::Queued { op: op()? },
            "seated" => Self::Seated {
                op: op()?,
                ballot: number(object, "ballot")?,
            },
            "granted" => Self::Granted {
                op: op()?,
                fence: number(object, "fence"),
                slot: number(object, "slot").and_then(|slot| u32::try_from(slot).ok()),
                until_us: number(object, "until_us")?,
            },
            "deadline" => Self::Deadline {
                op: op()?,
                until_us: number(object, "until_us")?,
            },
            "downgraded" => Self::Downgraded { op: op()? },
            "ended" => Self::Ended { op: op()? },
            "kept" => Self::Kept {
                op: op()?,
                from_us: number(object, "from_us")?,
                until_us: number(object, "until_us")?,
            },
            "told" => Self::Told {
                op: op()?,
                name: text(object, "name")?,
                leader: number(object, "leader")?,
                term: number(object, "term")?,
            },
            "turned" => Self::Turned {
                op: op()?,
                client: number(object, "client")?,
                latch: text(object, "latch")?,
                count: number(object, "count")?,
                party: text(object, "party"),
            },
            "found" => Self::Found {
                op: op()?,
                arrived: number(object, "arrived"),
                open: flag(object, "open")?,
            },
            "refused" => Self::Refused {
                op: op()?,
                why: text(object, "why")?,
            },
            "unknown" => Self::Unknown { op: op()? },
            "updated" => Self::Updated {
                resource: text(object, "resource")?,
                op: op()?,
                fence: number(object, "fence")?,
                saw: number(object, "saw")?,
                wrote: number(object, "wrote")?,
            },
            "removed" => Self::Removed {
                node: usize::try_from(number(object, "node")?).ok()?,
                name: text(object, "name")?,
                holder: text(object, "holder")?,
                by: text(object, "by")?,
            },
            "returned" => Self::Returned {
                node: usize::try_from(number(object, "node")?).ok()?,
                name: text(object, "name")?,
                holder: text(object, "holder")?,
            },
            "remains" => Self::Remains {
                node: usize::try_from(number(object, "node")?).ok()?,
                name: text(object, "name")?,
                what: text(object, "what")?,
            },
            "fault" => Self::Fault {
                what: text(object, "what")?,
                timing: flag(object, "timing")?,
            },
            "healed" => Self::Healed,
            "over" => Self::Over,
            _ => return None,
        })
    }
}

fn number(object: &Map<String, Value>, key: &str) -> Option<u64> {
    object.get(key)?.as_u64()
}

fn text(object: &Map<String, Value>, key: &str) -> Option<String> {
    Some(object.get(key)?.as_str()?.to_owned())
}

fn flag(object: &Map<String, Value>, key: &str) -> Option<bool> {
    object.get(key)?.as_bool()
}

fn names(object: &Map<String, Value>) -> Option<Vec<String>> {
    let names = object.get("names")?.as_array()?.iter();
    names.map(|name| Some(name.as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event of each sort.
    fn all() -> History {
        let mut history = History::default();
        let name = || "x".to_owned();
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
        let rest = [
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
        ];
        for (at, what) in (2..).zip(rest) {
            history.push(at, what);
        }
        history
    }

    #[test]
    fn every_event_reads_back() {
        let history = all();
        let text = history.to_json_lines();
        assert_eq!(text.lines().count(), history.events.len());
        assert_eq!(History::from_json_lines(&text), Ok(history));
    }

    #[test]
    fn lines_of_several_processes_are_put_in_order() {
        let lines = all().to_json_lines();
        let backwards: Vec<&str> = lines.lines().rev().collect();
        let read = History::from_json_lines(&backwards.join("\n")).unwrap();
        assert!(read.events.is_sorted_by_key(|event| event.at_us));
    }

    #[test]
    fn what_is_no_event_is_named_by_its_line() {
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
