//! Histories made by hand, for the tests of the invariants.

pub(crate) use super::History;
use super::{Mode, What};

impl History {
    /// A call begins.
    pub(crate) fn invoke(&mut self, at_us: u64, op: u64, (names, mode): (Vec<String>, Mode)) {
        let what = What::Invoked {
            op,
            client: op,
            mode,
            names,
            waits: true,
            owner: None,
        };
        self.push(at_us, what);
    }

    /// All calls so far are those of one owner.
    pub(crate) fn of_one_owner(&mut self) {
        for event in &mut self.events {
            if let What::Invoked { owner, .. } = &mut event.what {
                *owner = Some(1);
            }
        }
    }

    /// A complete hold: granted at the moment of the call, and released before its deadline.
    pub(crate) fn held(
        &mut self,
        op: u64,
        wanted: (Vec<String>, Mode),
        fence: u64,
        span: (u64, u64),
    ) {
        self.invoke(span.0, op, wanted);
        self.push(span.0, grant(op, fence, span.1 + 1_000));
        self.push(span.1, What::Ended { op });
        self.events.sort_by_key(|event| event.at_us);
    }

    /// From here on clocks do not keep what exclusion needs.
    pub(crate) fn break_timing(&mut self, at_us: u64) {
        let what = "a clock freezes".to_owned();
        self.push(at_us, What::Fault { what, timing: true });
        self.events.sort_by_key(|event| event.at_us);
    }
}

pub(crate) fn exclusive(name: &str) -> (Vec<String>, Mode) {
    (vec![name.to_owned()], Mode::Exclusive)
}

pub(crate) fn shared(name: &str) -> (Vec<String>, Mode) {
    (vec![name.to_owned()], Mode::Shared)
}

pub(crate) fn permit(name: &str, of: u32) -> (Vec<String>, Mode) {
    (vec![name.to_owned()], Mode::Permit { of })
}

pub(crate) fn grant(op: u64, fence: u64, until_us: u64) -> What {
    What::Granted {
        op,
        fence: Some(fence),
        slot: None,
        until_us,
    }
}

pub(crate) fn grant_slot(op: u64, fence: u64, slot: u32, until_us: u64) -> What {
    What::Granted {
        op,
        fence: Some(fence),
        slot: Some(slot),
        until_us,
    }
}
