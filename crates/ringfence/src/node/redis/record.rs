//! The stored text of a name's record, as the scripts write and read it.
//!
//! `2:fence:closed:free since:stranger`, followed by `:ballot:until:token:label` if the record has a
//! seat. The label comes last because it may contain anything. A record with a read fence begins
//! with `3:fence:read fence:closed`; the rest is the same.

/// The placeholders of the scripts for the record: its version, and the patterns for its fields.
pub(super) const RECORD_CONSTANTS: [(&str, &str); 10] = [
    ("$RECORD_VERSION", "2"),
    ("$VERSION_BYTE", "50"),
    // Fence and closed ballot.
    ("$RECORD_FENCES", "^2:(%d+):(%d+):"),
    // Fence, closed ballot, free since; of a record without a seat.
    ("$RECORD_FREE", "^2:(%d+):(%d+):(%d+):0$"),
    // Fence, closed ballot, ballot of the seat.
    (
        "$RECORD_BALLOTS",
        "^2:(%d+):(%d+):%d+:[01]:(%d+):%d+:[^:]+:",
    ),
    // Fence, token, label.
    (
        "$RECORD_HOLDER",
        "^2:(%d+):%d+:%d+:[01]:%d+:%d+:([^:]+):(.*)$",
    ),
    // Fence, closed ballot, free since, stranger, and the seat or nothing.
    ("$RECORD_PARTS", "^2:(%d+):(%d+):(%d+):([01])(.*)$"),
    // Ballot, until, token, label.
    ("$RECORD_SEAT", "^:(%d+):(%d+):([^:]+):(.*)$"),
    // With a read fence: the part before it, and the read fence.
    ("$RECORD_READERS", "^3:(%d+):(%d+):"),
    ("$RECORD_ALONE", "2:%1:"),
];
