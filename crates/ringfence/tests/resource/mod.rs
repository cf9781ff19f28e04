//! Resources that check the fence, on real servers, used by real processes that are stopped at the
//! worst moment.

mod holder;
mod stores;

mod guide;
mod keys;
mod kinds;
mod late_replies;
mod pauses;
mod races;
mod rows;
mod sequences;
