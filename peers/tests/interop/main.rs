//! ringfence in one fleet with other people's clients, on real servers: its exclusive lock is the
//! plain key they use, so that a fleet can move one service at a time.

mod contention;
mod foreign;
mod stage;
mod turns;
