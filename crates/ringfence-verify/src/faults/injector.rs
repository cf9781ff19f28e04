//! Carries out a plan of faults, each at its time, and records when each began and ended. A fault
//! whose target is still under another fault waits, which happens on a busy machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::time::Duration;

use crate::history::What;

use super::journal::{Journal, Note, now_us};
use super::planned::{FaultKind, PlannedFault};
use super::processes::ClientProcesses;
use super::servers::Servers;

/// How long after a clock was set no new client may start: longer than any lock that the jump may
/// have ended too early. A new client has not seen the clock before. See [`FaultKind::BlindJump`].
const AFTER_JUMP_US: u64 = 3_000_000;
/// After which time a postponed fault is tried again.
const AGAIN_US: u64 = 100_000;

pub(super) struct Injector<'a> {
    pub(super) servers: &'a Servers,
    pub(super) processes: &'a mut ClientProcesses,
    pub(super) journal: &'a Journal,
}

/// The time, the index of the fault, and whether it ends. The earliest is the greatest.
type Due = Reverse<(u64, usize, bool)>;

impl Injector<'_> {
    /// Carries out all faults and calls `progress` with each.
    pub(super) fn inject(
        &mut self,
        faults: &[PlannedFault],
        mut progress: impl FnMut(&str),
    ) -> Result<(), Box<dyn Error>> {
        let start_us = now_us();
        let at = |time: Duration| start_us + time.as_micros() as u64;
        let mut due: BinaryHeap<Due> = (0..faults.len())
            .map(|number| Reverse((at(faults[number].at), number, false)))
            .collect();
        let mut begun_us = vec![0; faults.len()];
        let (mut under_way, mut clocks_set_us): (Vec<&PlannedFault>, u64) = (Vec::new(), 0);
        while let Some(Reverse((at_us, number, ends))) = due.pop() {
            sleep_until(at_us);
            let fault = &faults[number];
            let clashes = !ends && under_way.iter().any(|other| fault.clashes_with(other));
            if clashes || !self.may_happen(fault, ends, clocks_set_us) {
                due.push(Reverse((now_us() + AGAIN_US, number, ends)));
                continue;
            }
            if fault.kind == FaultKind::ClockJump {
                clocks_set_us = now_us();
            }
            if ends {
                under_way.retain(|other| !std::ptr::eq(*other, fault));
                self.end(fault, begun_us[number])?;
            } else {
                under_way.push(fault);
                progress(&fault.to_string());
                begun_us[number] = now_us();
                self.begin(fault)?;
                // Counted from now, because the beginning may have been late.
                let end_us = now_us() + fault.span.as_micros() as u64;
                due.push(Reverse((end_us, number, true)));
            }
        }
        Ok(())
    }

    /// A clock is set, and set back, only while every client knows it; and no client starts soon
    /// after.
    fn may_happen(&mut self, fault: &PlannedFault, ends: bool, clocks_set_us: u64) -> bool {
        match fault.kind {
            FaultKind::ClockJump => self.processes.is_warm(),
            FaultKind::ClientCrash if ends => now_us() >= clocks_set_us + AFTER_JUMP_US,
            _ => true,
        }
    }

    fn begin(&mut self, fault: &PlannedFault) -> Result<(), Box<dyn Error>> {
        let timing = fault.kind == FaultKind::BlindJump;
        let what = What::Fault {
            what: fault.to_string(),
            timing,
        };
        self.journal.event(now_us(), what);
        match (fault.kind, fault.client) {
            (FaultKind::ClientPause, Some(client)) => self.processes.pause(client),
            (FaultKind::ClientCrash | FaultKind::BlindJump, Some(client)) => {
                let client = self.processes.kill(client);
                self.journal.note(now_us(), &Note::Dead { client });
            }
            _ => {}
        }
        self.servers.begin(fault);
        if let (FaultKind::BlindJump, Some(client)) = (fault.kind, fault.client) {
            self.processes.replace(client)?;
        }
        Ok(())
    }

    fn end(&mut self, fault: &PlannedFault, from_us: u64) -> Result<(), Box<dyn Error>> {
        self.servers.end(fault);
        match (fault.kind, fault.client) {
            (FaultKind::ClientPause, Some(client)) => self.processes.resume(client),
            (FaultKind::ClientCrash, Some(client)) => self.processes.replace(client)?,
            _ => {}
        }
        let note = Note::Fault {
            kind: fault.kind.name().to_owned(),
            on: fault.target(),
            from_us,
        };
        self.journal.note(now_us(), &note);
        Ok(())
    }
}

fn sleep_until(at_us: u64) {
    let left = at_us.saturating_sub(now_us());
    std::thread::sleep(Duration::from_micros(left));
}
