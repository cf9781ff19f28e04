//! Metrics in a build without the feature `metrics`: nothing. `exported.rs` has the same functions.

use std::time::Duration;

use super::ObservedLock;
use super::labels::{AcquireOutcome, LossReason, RenewalOutcome};
use super::names::Templates;
use crate::protocol::VoteWord;

#[derive(Debug)]
pub(super) struct Exported;

impl Exported {
    pub(super) fn register<'a>(_: impl Iterator<Item = &'a str>, _: &Templates) -> Self {
        Self
    }

    #[inline]
    pub(super) fn acquiring(&self, _: ObservedLock) {}

    #[inline]
    pub(super) fn acquired(&self, _: ObservedLock, _: AcquireOutcome, _: Duration) {}

    #[inline]
    pub(super) fn held(&self, _: ObservedLock) {}

    #[inline]
    pub(super) fn not_held(&self, _: ObservedLock, _: Duration) {}

    #[inline]
    pub(super) fn waits(&self, _: ObservedLock) {}

    #[inline]
    pub(super) fn waits_no_more(&self, _: ObservedLock) {}

    #[inline]
    pub(super) fn renewed(&self, _: ObservedLock, _: RenewalOutcome) {}

    #[inline]
    pub(super) fn lost(&self, _: ObservedLock, _: LossReason) {}

    #[inline]
    pub(super) fn voted(&self, _node: usize, _: VoteWord) {}

    #[inline]
    pub(super) fn round_trip(&self, _node: usize, _: Duration) {}

    #[inline]
    pub(super) fn clock_offset(&self, _node: usize, _offset_us: i64) {}

    #[inline]
    pub(super) fn quarantined(&self, _node: usize, _: bool) {}
}
