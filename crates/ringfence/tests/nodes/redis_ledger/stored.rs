//! What a server has stored, parsed as the documentation describes it.

use super::*;

/// The documented key of a name's record, written independently of the library.
pub(crate) fn record_key(name: &str) -> String {
    match name {
        // A part of a semaphore, or a latch.
        part if part.starts_with("ringfence:{s}") => format!("ringfence:{{s}}:record:{part}"),
        "{a}" => "ringfence:{a}:record:{a}".to_owned(),
        "b}{" => "ringfence:{b{}:record:b}{".to_owned(),
        plain => format!("ringfence:{{{plain}}}:record:{plain}"),
    }
}

/// The documented keys of a name's queue: mark, order, leases.
pub(crate) fn line_keys(name: &str) -> [String; 3] {
    ["queue", "queue-order", "queue-leases"]
        .map(|word| record_key(name).replacen("record", word, 1))
}

/// The documented keys of a name's readers: leases, and ballots with labels.
pub(crate) fn reader_keys(name: &str) -> [String; 2] {
    ["readers", "reader-labels"].map(|word| record_key(name).replacen("record", word, 1))
}

/// The documented key of a name's broken holds.
pub(crate) fn broken_key(name: &str) -> String {
    record_key(name).replacen("record", "broken", 1)
}

/// The broken holds of a name, from their lines.
pub(crate) fn parse_breaks(text: &str, until_ms: u64) -> Breaks {
    let notes = text.split('\n').map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [at_us, fence, ballot, id, by, label, reason] = fields[..] else {
            panic!("{line:?}");
        };
        BreakNote {
            at_us: at_us.parse().unwrap(),
            fence: Ballot::new(fence.parse().unwrap()),
            ballot: Ballot::new(ballot.parse().unwrap()),
            id: id.trim_start_matches('-').to_owned(),
            label: label.to_owned(),
            by: by.to_owned(),
            reason: reason.to_owned(),
        }
    });
    Breaks {
        notes: notes.collect(),
        until_us: until_ms * 1000,
    }
}

pub(super) fn parse_record(text: &str, until_ms: u64) -> Record {
    let (version, fields) = text.split_once(':').unwrap();
    let has_read_fence = match version {
        "2" => false,
        "3" => true,
        _ => panic!("{text}"),
    };
    let mut fields = fields.splitn(8 + usize::from(has_read_fence), ':');
    let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
    let fence = number();
    let read_fence = if has_read_fence { number() } else { 0 };
    let closed = number();
    let (free_since_ms, stranger) = (number(), number());
    let seat = fields.next().map(|ballot| Seat {
        ballot: Ballot::new(ballot.parse().unwrap()),
        until_ms: fields.next().unwrap().parse().unwrap(),
        token: fields.next().unwrap().to_owned(),
        label: fields.next().unwrap().to_owned(),
    });
    Record {
        fence: Ballot::new(fence),
        read_fence: Ballot::new(read_fence),
        closed: Ballot::new(closed),
        seat,
        stranger: stranger == 1,
        free_since_ms,
        until_ms,
    }
}

/// A queue from its mark and its two sets, with their expiries, which must fit each other.
pub(super) fn parse_line(
    mark: Option<String>,
    mark_until: i64,
    (order, leases, order_until, lease_until): (Vec<String>, Vec<(String, u64)>, i64, i64),
) -> WaitQueue {
    let (counted, order): (Vec<String>, Vec<String>) = order
        .into_iter()
        .partition(|ticket| ticket.starts_with('p'));
    let (twice, order): (Vec<String>, Vec<String>) = order
        .into_iter()
        .partition(|ticket| ticket.starts_with('e'));
    let (shared, order): (Vec<String>, Vec<String>) = order
        .into_iter()
        .partition(|ticket| ticket.starts_with('s'));
    let leases: BTreeMap<String, u64> = leases.into_iter().collect();
    assert!(order.iter().eq(leases.keys()), "{order:?} {leases:?}");
    let twice: Vec<&str> = twice.iter().map(|ticket| &ticket[1..]).collect();
    let shared: Vec<&str> = shared.iter().map(|ticket| &ticket[1..]).collect();
    let mut marked = twice.iter().chain(&shared);
    assert!(marked.all(|ticket| leases.contains_key(*ticket)));
    if let Some(last) = leases.values().max() {
        let mark = mark.as_deref().expect("a queue has a mark");
        let flags = mark.trim_start_matches(|digit: char| digit.is_ascii_digit());
        assert!(twice.is_empty() || flags.contains('e'), "{mark} {twice:?}");
        assert!(
            shared.is_empty() || flags.contains('s'),
            "{mark} {shared:?}"
        );
        for until in [mark_until, order_until, lease_until] {
            assert!(until > *last as i64, "{until} {last}");
        }
    }
    let permits = permits_by_ticket(mark.as_deref(), &counted, leases.keys());
    let tickets = leases.into_iter().map(|(ticket, until_ms)| {
        let (id, label) = ticket[20..].split_once('\n').unwrap();
        QueueEntry {
            since_us: ticket[..20].parse().unwrap(),
            id: id.to_owned(),
            until_ms,
            refreshed_ms: until_ms - TICKET_MS,
            elsewhere: twice.contains(&ticket.as_str()),
            shared: shared.contains(&ticket.as_str()),
            permits: permits[&ticket],
            label: label.to_owned(),
        }
    });
    tickets.collect()
}

/// How many permits the client of each ticket assumes. If all assume the same, the mark says it;
/// otherwise each ticket is in `counted`, behind `p` and the number.
fn permits_by_ticket<'a>(
    mark: Option<&str>,
    counted: &[String],
    tickets: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, u32> {
    let mut numbers = mark.unwrap_or_default().split('p').skip(1);
    let numbers: Vec<u32> = numbers.by_ref().map(|n| n.parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "{mark:?}");
    let tickets: Vec<&String> = tickets.collect();
    if numbers.len() < 2 {
        assert!(counted.is_empty(), "{mark:?} {counted:?}");
        let number = numbers.first().copied().unwrap_or(0);
        return tickets.into_iter().map(|t| (t.clone(), number)).collect();
    }
    let read = |member: &String| (member[4..].to_owned(), member[1..4].parse().unwrap());
    let found: BTreeMap<String, u32> = counted.iter().map(read).collect();
    assert_eq!(found.len(), counted.len(), "each ticket once: {counted:?}");
    assert!(found.keys().eq(tickets), "{counted:?}");
    assert!(
        found.values().all(|number| numbers.contains(number)),
        "{mark:?}"
    );
    found
}
