//! The history as a picture: time runs to the right, faults are at the top, and each task of each
//! client has a lane below with its waits and holds. The page needs no other files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use ringfence_testkit::svg::{Svg, escape};

use crate::history::{Event, Hold, Mode, What};
use crate::invariants::Violation;

use super::call::{LEAD, NAMES, POOL};
use super::client::TASKS;
use super::journal::{Note, Record};
use super::lanes::{LANE, Lanes};

/// The width of a second, in pixels.
const SECOND: f64 = 90.0;
/// The left edge of the time axis.
const LEFT: f64 = 15.0;
/// The width of the lanes' names, which do not scroll.
const NAMES_WIDTH: f64 = 135.0;
const BAR: f64 = 16.0;

const HEAD: &str = r#"<!doctype html><meta charset="utf-8"><title>Faults on real servers</title>
<style>
 body{font:13px system-ui,sans-serif;margin:1em;color:#222;background:#fff}
 .lanes{display:flex;border:1px solid #ccc} .lanes>svg{flex:none} .scroll{overflow-x:auto}
 svg text{font:11px system-ui,sans-serif;fill:#333}
 .key span{display:inline-block;margin:0 1em .5em 0}
 .key i{display:inline-block;width:14px;height:12px;margin-right:4px;vertical-align:-1px}
</style>
"#;

/// The page.
pub(super) fn draw(record: &Record, violations: &[Violation], nodes: usize) -> String {
    let first_us = record.history.events.first().map_or(0, |event| event.at_us);
    let last_us = record.history.events.last().map_or(0, |event| event.at_us);
    let mut canvas = Canvas {
        svg: Svg::default(),
        names: Svg::default(),
        first_us,
        last_us,
    };
    let lanes = Lanes::of(nodes);
    canvas.frame(&lanes);
    canvas.faults(record, &lanes);
    canvas.waits(record, &lanes);
    canvas.holds(record, &lanes, nodes);
    for violation in violations {
        canvas.violation(violation, lanes.height());
    }
    let mut page = HEAD.to_owned();
    page.push_str(&legend(violations));
    let (width, height) = (canvas.x(last_us) + 40.0, lanes.height() + 30.0);
    let _ = writeln!(
        page,
        concat!(
            r#"<div class="lanes"><svg width="{names_width}" height="{height:.0}">{}</svg>"#,
            r#"<div class="scroll"><svg width="{width:.0}" height="{height:.0}">{}</svg></div></div>"#
        ),
        canvas.names,
        canvas.svg,
        names_width = NAMES_WIDTH,
        height = height,
        width = width
    );
    page
}

fn legend(violations: &[Violation]) -> String {
    let mut text = "<h1>Faults on real servers</h1><p class=key>".to_owned();
    for name in NAMES.into_iter().chain([LEAD, POOL]) {
        let _ = write!(
            text,
            r#"<span><i style="background:{}"></i>{name}</span>"#,
            colour(name)
        );
    }
    text.push_str(
        "</p><p>A bar is a hold, from the time at which its client learned of the grant until the \
         client no longer relied on it: full for an exclusive hold, pale for a shared one, framed \
         for a permit. Below it is one mark for each node, dark if that node's vote was counted. \
         A thin line is a call without an answer. It ends in a hollow ring if the call was \
         refused, and in a question mark if the result is not known. A red cross: the holder \
         learned of the loss. A red triangle: the resource refused a late read or write. \
         Grey bars above are faults. Point at anything for its details.</p>",
    );
    match violations {
        [] => text.push_str("<p><b>No violation.</b></p>"),
        _ => {
            for violation in violations {
                let _ = write!(
                    text,
                    "<p><b>VIOLATION</b> {}</p>",
                    escape(&violation.to_string())
                );
            }
        }
    }
    text
}

struct Canvas {
    svg: Svg,
    /// The lanes' names.
    names: Svg,
    first_us: u64,
    last_us: u64,
}

impl Canvas {
    fn x(&self, at_us: u64) -> f64 {
        let past = at_us.clamp(self.first_us, self.last_us) - self.first_us;
        LEFT + past as f64 / 1e6 * SECOND
    }

    /// The lanes, their names, and a vertical line for each second.
    fn frame(&mut self, lanes: &Lanes) {
        let right = self.x(self.last_us);
        for (index, name) in lanes.names.iter().enumerate() {
            let y = Lanes::top(index);
            let shade = match index < lanes.faults {
                true => "#faf6ef",
                false if ((index - lanes.faults) / TASKS as usize).is_multiple_of(2) => "#f3f6fa",
                false => "#fff",
            };
            let fill = format!(r#"fill="{shade}""#);
            self.svg.rect([0.0, y, right, LANE], &fill);
            self.names.rect([0.0, y, NAMES_WIDTH, LANE], &fill);
            self.names.text([6.0, y + 16.0], "", name);
        }
        let seconds = (self.last_us - self.first_us) / 1_000_000;
        for second in 0..=seconds {
            let x = LEFT + second as f64 * SECOND;
            let line = [x, 22.0, x, lanes.height()];
            self.svg.line(line, r##"stroke="#ddd""##);
            let name = format!("{second} s");
            self.svg.text([x, 16.0], r#"text-anchor="middle""#, &name);
        }
    }

    fn faults(&mut self, record: &Record, lanes: &Lanes) {
        for (to_us, note) in &record.notes {
            let Note::Fault { kind, on, from_us } = note else {
                continue;
            };
            let (x, right) = (self.x(*from_us), self.x(*to_us));
            let width = (right - x).max(3.0);
            for (y, many) in lanes.of_fault(on) {
                let (height, word) = match many {
                    1 => (BAR, short(kind)),
                    // Over all lanes of a client's tasks.
                    _ => (LANE * many as f64, short(kind)),
                };
                let seconds = (*to_us - *from_us) as f64 / 1e6;
                let title = format!("{kind} on {on}, {seconds:.3} s");
                let opacity = if many == 1 { 0.35 } else { 0.18 };
                let fill = format!(r##"fill="#555" fill-opacity="{opacity}""##);
                self.svg.titled(&title, |svg| {
                    svg.rect([x, y + 3.0, width, height], &fill);
                    svg.text([x + 2.0, y + 15.0], r##"fill="#000""##, word);
                });
            }
        }
    }

    /// Calls without an answer yet, and the ends of calls that were not granted.
    fn waits(&mut self, record: &Record, lanes: &Lanes) {
        let mut asked: BTreeMap<u64, u64> = BTreeMap::new();
        for Event { at_us, what } in &record.history.events {
            let (op, end) = match what {
                What::Invoked { op, .. } | What::Turned { op, .. } | What::Breaks { op, .. } => {
                    asked.insert(*op, *at_us);
                    continue;
                }
                What::Granted { op, .. } | What::Found { op, .. } | What::Broken { op, .. } => {
                    (op, String::new())
                }
                What::Refused { op, why } => (op, why.clone()),
                What::Unknown { op } => (op, "unknown".to_owned()),
                _ => continue,
            };
            let (Some(from_us), Some(y)) = (asked.remove(op), lanes.of_op(*op)) else {
                continue;
            };
            let (from, to, middle) = (self.x(from_us), self.x(*at_us), y + 11.0);
            self.svg
                .line([from, middle, to, middle], r##"stroke="#999""##);
            match what {
                What::Refused { .. } => self.svg.titled(&format!("op {op}: {end}"), |svg| {
                    svg.circle([to, middle, 2.5], r##"fill="#fff" stroke="#999""##);
                }),
                What::Unknown { .. } => {
                    let title = format!("op {op}: the result is not known");
                    self.svg.titled(&title, |svg| {
                        svg.text([to, middle + 4.0], r#"font-weight="bold""#, "?");
                    });
                }
                _ => {}
            }
        }
    }

    fn holds(&mut self, record: &Record, lanes: &Lanes, nodes: usize) {
        let mut votes: HashMap<u64, HashSet<u64>> = HashMap::new();
        for (_, note) in &record.notes {
            if let Note::Votes { op, nodes } = note {
                votes.insert(*op, nodes.iter().copied().collect());
            }
        }
        for hold in record.history.holds() {
            if let Some(y) = lanes.of_op(hold.op) {
                self.hold(&hold, y, votes.get(&hold.op), nodes);
            }
        }
        for (at_us, note) in &record.notes {
            let (op, mark, title) = match note {
                Note::Lost { op, why } => (op, "✕", why.as_str()),
                Note::Late { op } => (op, "▲", "the resource refused it: too late"),
                _ => continue,
            };
            if let Some(y) = lanes.of_op(*op) {
                let at = [self.x(*at_us), y + 15.0];
                self.svg.titled(&format!("op {op}: {title}"), |svg| {
                    let style = r##"style="fill:#c00;font-weight:bold" text-anchor="middle""##;
                    svg.text(at, style, mark);
                });
            }
        }
    }

    fn hold(&mut self, hold: &Hold<'_>, y: f64, votes: Option<&HashSet<u64>>, nodes: usize) {
        let x = self.x(hold.from_us);
        let width = (self.x(hold.to_us) - x).max(2.0);
        let colour = colour(&hold.names[0]);
        let style = match hold.mode {
            Mode::Exclusive => format!(r#"fill="{colour}""#),
            Mode::Shared => format!(r#"fill="{colour}" fill-opacity="0.35""#),
            Mode::Permit { .. } => format!(r##"fill="#fff" stroke="{colour}" stroke-width="2""##),
        };
        let names = hold.names.join(" + ");
        let slot = hold
            .slot
            .map(|slot| format!(" slot {slot}"))
            .unwrap_or_default();
        let title = format!(
            "op {} holds {names}{slot}, fence {}, {:.3} s",
            hold.op,
            hold.fence.unwrap_or_default(),
            (hold.to_us.saturating_sub(hold.from_us)) as f64 / 1e6,
        );
        self.svg.titled(&title, |svg| {
            svg.rect([x, y + 3.0, width, BAR], &style);
            // The second of several names has its colour below.
            if let Some(second) = hold.names.get(1) {
                let fill = format!(r#"fill="{}""#, self::colour(second));
                svg.rect([x, y + 3.0 + BAR / 2.0, width, BAR / 2.0], &fill);
            }
            for node in 0..nodes {
                let voted = votes.is_some_and(|votes| votes.contains(&(node as u64)));
                let fill = if voted { "#222" } else { "#ccc" };
                let left = x + node as f64 * 4.0;
                let fill = format!(r#"fill="{fill}""#);
                svg.rect([left, y + 4.0 + BAR, 3.0, 4.0], &fill);
            }
        });
    }

    fn violation(&mut self, violation: &Violation, height: f64) {
        let x = self.x(violation.at_us);
        self.svg.titled(&violation.to_string(), |svg| {
            svg.line([x, 20.0, x, height], r##"stroke="#c00" stroke-width="2""##);
        });
    }
}

/// A short name that fits into a bar.
pub(super) fn short(kind: &str) -> &str {
    match kind {
        "server SIGKILL, memory lost" => "KILL, empty",
        "server SIGKILL, AOF kept" => "KILL, AOF",
        "power cut of all without AOF" => "power cut",
        "server SIGSTOP" | "client SIGSTOP" => "STOP",
        "client SIGKILL" => "KILL",
        "failover and back: replica attached, promoted; master demoted, promoted" => "failback",
        "clock jump" => "clock",
        "clock jump unseen by a new client" => "clock, unseen",
        "connections cut" => "cut",
        "connections refused" => "refused",
        "half-open connections" => "half-open",
        "one way: requests lost" => "→ lost",
        "one way: replies lost" => "← lost",
        "reset after send" => "reset",
        other => other,
    }
}

fn colour(name: &str) -> &'static str {
    const COLOURS: [&str; 6] = [
        "#2b6cb0", "#2f855a", "#c05621", "#6b46c1", "#b7791f", "#b83280",
    ];
    let known = NAMES.into_iter().chain([LEAD, POOL]);
    let index = known.into_iter().position(|known| known == name);
    COLOURS[index.unwrap_or(0) % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::history::made::exclusive;

    use super::super::client::{OPS_OF_CLIENT, OPS_OF_TASK};

    #[test]
    fn holds_losses_faults_and_violations_are_in_the_picture() {
        let mut record = Record::default();
        let op = 2 * OPS_OF_CLIENT + OPS_OF_TASK;
        record.history = History::default();
        record
            .history
            .held(op, exclusive("b"), 77, (1_000, 900_000));
        let lost = Note::Lost {
            op,
            why: "it <expired>".to_owned(),
        };
        let fault = Note::Fault {
            kind: "FLUSHALL".to_owned(),
            on: "node 3".to_owned(),
            from_us: 5_000,
        };
        record.notes = vec![(6_000, fault), (800_000, lost)];
        let violation = Violation {
            invariant: "fences",
            at_us: 7,
            how: "made up".to_owned(),
        };
        let page = draw(&record, &[violation], 5);
        for part in [
            "client 1, task 1",
            "fence 77",
            "FLUSHALL on node 3",
            "it &lt;expired&gt;",
            "fences at 0.000007 s: made up",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}
