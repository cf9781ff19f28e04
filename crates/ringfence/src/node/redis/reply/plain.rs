//! Reads the replies to plain operations.

use redis::Value;

use crate::message::{Answer, Holder, Op};

use super::MalformedReply;

/// A plain reply does not name the holder, so `Held` has the default one.
pub(super) fn read(op: &Op, value: &Value) -> Result<Answer, MalformedReply> {
    let answer = match value {
        Value::Okay => Answer::Granted,
        Value::Nil => Answer::Held(Holder::default()),
        Value::BulkString(word) => match word.as_slice() {
            b"extended" => Answer::Extended,
            b"released" => Answer::Released,
            b"gone" => Answer::Gone,
            b"held" => Answer::Held(Holder::default()),
            _ => return Err(MalformedReply),
        },
        _ => return Err(MalformedReply),
    };
    let fits = match answer {
        Answer::Granted => matches!(op, Op::PlainAcquire { .. }),
        Answer::Extended => matches!(op, Op::PlainExtend { .. }),
        Answer::Released => matches!(op, Op::PlainRelease),
        Answer::Gone => !matches!(op, Op::PlainAcquire { .. }),
        _ => true,
    };
    if fits {
        Ok(answer)
    } else {
        Err(MalformedReply)
    }
}
