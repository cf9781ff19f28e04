//! ringfence together with clients of other projects, on real servers. Its exclusive lock is the
//! plain key that they use, so a deployment can move one service at a time.

mod contention;
mod foreign;
mod migrating;
mod stage;
mod turns;
