//! The only node of a group after a failover: readers put their locks back, and a restore replaces
//! holders that the promoted replica should not have any more. Their ballots are lower.

use super::*;

impl TestNode {
    /// The node was promoted: it is in quarantine from now on.
    fn promoted(&mut self) {
        self.rules.grants_from_us = self.clock_us + 1_000_000;
    }

    fn restore_as(&mut self, wanted: &[WantedClaim<'_>], who: u8, ballot: Ballot) -> Answer {
        self.ask_as(wanted, who, restore(ballot)).0
    }

    fn readers(&self) -> Vec<String> {
        let readers = self.entry("x").readers;
        readers.into_iter().map(|reader| reader.token).collect()
    }
}

fn tokens(who: &[u8]) -> Vec<String> {
    let mut tokens: Vec<String> = who.iter().map(|who| token(*who).expose().into()).collect();
    tokens.sort();
    tokens
}

/// The replica lacks the releases of the readers before her.
#[test]
fn a_writer_replaces_readers_whose_releases_were_lost() {
    let mut node = TestNode::new();
    let (his, carols, hers) = (node.ballot(1), node.ballot(3), node.ballot(4));
    assert_eq!(node.read(BOB, his), Answer::Granted);
    assert_eq!(node.read(CAROL, carols), Answer::Granted);
    node.promoted();
    assert_eq!(node.restore_as(WRITE, ALICE, hers), Answer::Restored);
    assert!(node.entry("x").is_held_by(token(ALICE).expose()));
    assert_eq!(node.readers(), Vec::<String>::new());
    // None of them comes back with a later reader.
    node.rules.grants_from_us = 0;
    node.ask_as(WRITE, ALICE, release(hers));
    let later = node.ballot(9);
    assert_eq!(node.read(4, later), Answer::Granted);
    assert_eq!(node.readers(), tokens(&[4]));
}

#[test]
fn one_reader_with_a_higher_ballot_is_enough_to_refuse_a_writer() {
    let mut node = TestNode::new();
    let (his, hers, carols) = (node.ballot(1), node.ballot(2), node.ballot(3));
    assert_eq!(node.read(BOB, his), Answer::Granted);
    assert_eq!(node.read(CAROL, carols), Answer::Granted);
    node.promoted();
    let before = node.entry("x");
    let answer = node.restore_as(WRITE, ALICE, hers);
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    assert_eq!(node.entry("x"), before, "nothing was written");
}

#[test]
fn readers_are_replaced_only_in_a_quarantine() {
    let mut node = TestNode::new();
    let (his, hers) = (node.ballot(1), node.ballot(2));
    assert_eq!(node.read(BOB, his), Answer::Granted);
    let answer = node.restore_as(WRITE, ALICE, hers);
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
}

#[test]
fn a_reader_replaces_a_writer_whose_release_was_lost() {
    for (his, hers, replaced) in [(1, 2, true), (2, 1, false)] {
        let mut node = TestNode::new();
        let (his, hers) = (node.ballot(his), node.ballot(hers));
        assert_eq!(node.write_lock(BOB, his), Answer::Granted);
        node.promoted();
        let answer = node.restore_as(READ, ALICE, hers);
        match replaced {
            true => {
                assert_eq!(answer, Answer::Restored);
                assert_eq!(node.readers(), tokens(&[ALICE]));
            }
            false => assert!(is_held_by(&answer, BOB), "{answer:?}"),
        }
    }
}

/// A writer that downgraded is a reader beside her. If its downgrade was lost, her restore replaces
/// its seat, and it comes back as a reader under its own, lower ballot.
#[test]
fn a_writer_whose_downgrade_was_lost_comes_back_as_a_reader() {
    for his_first in [false, true] {
        let mut node = TestNode::new();
        let (his, hers) = (node.ballot(1), node.ballot(2));
        assert_eq!(node.write_lock(BOB, his), Answer::Granted);
        node.promoted();
        let mut restores = [(ALICE, hers), (BOB, his)];
        if his_first {
            restores.reverse();
        }
        for (who, ballot) in restores {
            assert_eq!(node.restore_as(READ, who, ballot), Answer::Restored);
        }
        assert_eq!(node.readers(), tokens(&[ALICE, BOB]));
    }
}

#[test]
fn readers_come_back_beside_readers_in_any_order() {
    let mut node = TestNode::new();
    let (his, hers) = (node.ballot(2), node.ballot(1));
    assert_eq!(node.read(BOB, his), Answer::Granted);
    node.promoted();
    assert_eq!(node.restore_as(READ, ALICE, hers), Answer::Restored);
    assert_eq!(node.readers(), tokens(&[ALICE, BOB]));
}

/// The marker of a shared name without readers is the value of another program.
#[test]
fn a_marker_without_readers_is_not_replaced() {
    let mut node = TestNode::new();
    node.set_foreign("x", SHARED, None);
    node.promoted();
    for wanted in [READ, WRITE] {
        let ballot = node.ballot(5);
        let answer = node.restore_as(wanted, ALICE, ballot);
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    }
}
