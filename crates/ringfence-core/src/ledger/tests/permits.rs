//! Clients that disagree on the number of permits of a semaphore, as during a rolling deploy: a
//! waiter counts, and is woken, only as far as it can use a free slot.

use super::slots::{acquire_slot, granted, release_slots, wake_for};
use super::*;
use crate::message::{Permit, RefreshSlots, Slots};

const PARTS: [&str; 5] = ["gate", "slot0", "slot1", "slot2", "slot3"];

/// A semaphore with four slots, all of them held: slot n by holder n.
fn full() -> TestNode {
    let mut node = TestNode::new();
    for slot in 0..4 {
        let permit = ask(&mut node, 4, slot as u8, None);
        assert!(granted(&permit, slot), "{permit:?}");
    }
    node
}

/// `who` asks for any slot of a semaphore with so many permits.
fn ask(node: &mut TestNode, permits: usize, who: u8, ticket: Option<&Ticket>) -> Permit {
    node.clock_us += 1;
    let op = acquire_slot(node.ballot(0), None, ticket);
    match node.ask_for(&PARTS[..=permits], who, op).0 {
        Answer::Permit(permit) => permit,
        other => panic!("{other:?}"),
    }
}

/// Tickets enter the queue in this order, each with its number of permits.
fn enter(node: &mut TestNode, permits: &[usize]) -> Vec<Ticket> {
    let tickets = permits.iter().enumerate().map(|(number, permits)| {
        let ticket = Ticket {
            since_us: START_US + number as u64,
            id: Arc::from(format!("t.{number}")),
            first: false,
            label: Arc::from("waiter"),
        };
        ask(node, *permits, 100 + number as u8, Some(&ticket));
        ticket
    });
    tickets.collect()
}

/// The holder of `slot` releases it; it assumes so many permits.
fn free(node: &mut TestNode, permits: usize, slot: u32) {
    node.clock_us += 1;
    let only = Slots::Only(slot);
    let op = release_slots(only, node.ballot(0), ReleaseKind::Final, None, false);
    let (answer, _) = node.ask_for(&PARTS[..=permits], slot as u8, op);
    assert_eq!(answer, Answer::Released);
}

fn turn(node: &mut TestNode, permits: usize, ticket: &Ticket) -> Turn {
    let tickets = Arc::from([ticket.clone()]);
    let op = Op::RefreshSlots(RefreshSlots { tickets });
    match node.ask_for(&PARTS[..=permits], 0, op).0 {
        Answer::Turns(turns) => turns[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiters_that_cannot_use_a_free_slot_do_not_keep_it_from_others() {
    let mut node = full();
    let tickets = enter(&mut node, &[2, 2, 2, 4, 4]);
    free(&mut node, 4, 3);
    assert_eq!(node.wakes, [wake_for("t.3", 3), wake("t.4", GRACE_MS)]);
    let entitled = Turn {
        ahead: 0,
        free: true,
    };
    assert_eq!(turn(&mut node, 4, &tickets[3]), entitled);
    assert_eq!(turn(&mut node, 4, &tickets[4]).ahead, 1);
    assert!(!turn(&mut node, 2, &tickets[0]).free);
    let second = ask(&mut node, 4, 104, Some(&tickets[4]));
    assert!(is_behind(&second.answer, 1), "{second:?}");
    let first = ask(&mut node, 4, 103, Some(&tickets[3]));
    assert!(granted(&first, 3), "{first:?}");
    assert_eq!((first.free, first.ahead), (vec![3], 0));
}

#[test]
fn waiters_with_fewer_permits_count_for_the_slots_that_they_can_use() {
    let mut node = full();
    let tickets = enter(&mut node, &[2, 2, 4]);
    free(&mut node, 4, 1);
    assert_eq!(node.wakes, [wake_for("t.0", 1), wake("t.1", GRACE_MS)]);
    let behind = ask(&mut node, 4, 102, Some(&tickets[2]));
    assert!(is_behind(&behind.answer, 1), "{behind:?}");
    // Slot 1 is for the first waiter, and slot 2 for the only one that can use it.
    free(&mut node, 4, 2);
    assert_eq!(node.wakes, [wake_for("t.2", 2), wake("t.1", GRACE_MS)]);
    let third = ask(&mut node, 4, 102, Some(&tickets[2]));
    assert!(granted(&third, 2), "{third:?}");
    let first = ask(&mut node, 2, 100, Some(&tickets[0]));
    assert!(granted(&first, 1), "{first:?}");
}

#[test]
fn waiters_with_more_permits_count_for_every_slot_of_the_caller() {
    let mut node = full();
    let tickets = enter(&mut node, &[4, 2]);
    // The holder that releases knows of two slots only.
    free(&mut node, 2, 0);
    assert_eq!(node.wakes, [wake_for("t.0", 0), wake("t.1", GRACE_MS)]);
    let second = ask(&mut node, 2, 101, Some(&tickets[1]));
    assert!(is_behind(&second.answer, 1), "{second:?}");
    let without_ticket = ask(&mut node, 2, 110, None);
    assert!(is_behind(&without_ticket.answer, 2), "{without_ticket:?}");
    free(&mut node, 2, 1);
    assert_eq!(node.wakes, [wake_for("t.1", 1)]);
    let second = ask(&mut node, 2, 101, Some(&tickets[1]));
    assert!(granted(&second, 1), "{second:?}");
}

#[test]
fn a_slot_that_no_waiter_can_use_wakes_none() {
    let mut node = full();
    enter(&mut node, &[2, 2]);
    free(&mut node, 4, 2);
    assert_eq!(node.wakes, []);
    let newcomer = ask(&mut node, 4, 110, None);
    assert!(granted(&newcomer, 2), "{newcomer:?}");
}

/// A rolling deploy: half of the clients say 2, half 4. Every freed slot goes to a waiter at once,
/// without the grace, as long as one is in the queue that can use it.
#[test]
fn no_slot_is_idle_while_a_waiter_can_use_it() {
    let mut node = full();
    let permits: Vec<usize> = (0..40).map(|n| if n % 2 == 0 { 2 } else { 4 }).collect();
    let tickets = enter(&mut node, &permits);
    let mut holders: Vec<(u32, usize, u8)> = (0..4).map(|slot| (slot, 4, slot as u8)).collect();
    let mut grants = 0;
    for turn in 0..40 {
        let (slot, known, who) = holders.remove(turn * 7 % holders.len());
        node.clock_us += 1;
        let only = Slots::Only(slot);
        let op = release_slots(only, node.ballot(0), ReleaseKind::Final, None, false);
        node.ask_for(&PARTS[..=known], who, op);
        let woken: Vec<Wake> = node
            .wakes
            .iter()
            .filter(|w| w.after_ms == 0)
            .cloned()
            .collect();
        for wake in &woken {
            let number: usize = wake.ticket[2..].parse().unwrap();
            let permit = ask(
                &mut node,
                permits[number],
                100 + number as u8,
                Some(&tickets[number]),
            );
            assert!(granted(&permit, slot), "{wake:?}: {permit:?}");
            holders.push((slot, permits[number], 100 + number as u8));
            grants += 1;
        }
        let left = node.entry("gate").queue.entries;
        let usable = left.iter().any(|entry| entry.permits > slot);
        assert!(
            woken.len() == 1 || !usable,
            "slot {slot} is idle beside {left:?}"
        );
        if holders.is_empty() {
            break;
        }
    }
    assert!(grants >= 20, "{grants} grants");
}
