//! One server behind two nodes has one vote. An address may be pointed to another node's server at
//! any time (DNS, a virtual IP), so every reply says which server gave it, and every round compares.
//!
//! The earlier node of the list votes for the server, the later one does not. Which reply comes first
//! does not matter: a later node's vote is taken back when the earlier node answers. As long as the
//! earlier node does not answer, the later one speaks for the server.

use super::Vote;

/// Whether two nodes are one server, by the numbers of their servers. Zero is no server.
pub(super) fn is_same(one: u64, other: u64) -> bool {
    one != 0 && one == other
}

/// A reply came from `server`: of all `nodes` of this round that it answered for, each with its server
/// and its vote, the first keeps its vote.
pub(super) fn count_once<'a>(server: u64, nodes: impl Iterator<Item = (u64, &'a mut Vote)>) {
    let nodes = nodes.enumerate();
    let mut same = nodes.filter(|(_, (other, _))| is_same(*other, server));
    if let Some((of, _)) = same.next() {
        same.for_each(|(_, (_, vote))| *vote = Vote::Duplicate { of });
    }
}

/// For each of `servers` in node order, the earlier node that is the same server, if there is one.
pub fn duplicates(servers: &[u64]) -> Vec<Option<usize>> {
    let earlier = |node: usize| {
        let mut others = servers[..node].iter();
        others.position(|&other| is_same(other, servers[node]))
    };
    (0..servers.len()).map(earlier).collect()
}
