//! Who depends on whom among the live blocks.
//!
//! An edge leads from a block to one it depends on. A block is *free* when none of those has bytes to send, or only such as wait for a better
//! path: only free blocks compete (DTP III-B). Blocks that depend on each other in a circle are merged into one *cluster*, which is
//! scheduled as one big block: edges inside it bind nobody, those that leave it bind all its members.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::block::BlockId;

/// The dependency graph of the live blocks. Holds only blocks that have an edge.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<BlockId, Node>,
    clusters: BTreeMap<BlockId, BTreeSet<BlockId>>,
    edges: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// What it depends on.
    needs: BTreeSet<BlockId>,
    /// What depends on it.
    needed_by: BTreeSet<BlockId>,
    /// Those of `needs`, outside its cluster, that [bind](Self::binds) it.
    blockers: usize,
    /// Whether it has bytes to send itself.
    unsent: bool,
    /// It is passed over for now: those that depend on it need not wait. Forgotten with its last edge.
    passed_over: bool,
    /// The smallest member of its cluster, if it is in one.
    cluster: Option<BlockId>,
}

impl Node {
    /// Whether those that depend on it have to wait for it.
    fn binds(&self) -> bool {
        self.unsent && !self.passed_over
    }
}

impl Graph {
    /// Number of edges.
    pub(crate) fn edges(&self) -> usize {
        self.edges
    }

    /// Whether the block (or its cluster) depends on nothing that has to be sent before.
    pub(crate) fn is_free(&self, id: BlockId) -> bool {
        self.members(id).all(|member| self.nodes.get(&member).is_none_or(|node| node.blockers == 0))
    }

    /// The blocks of `id`'s cluster, in order; `id` alone if it is in none.
    pub(crate) fn members(&self, id: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let cluster = self.nodes.get(&id).and_then(|node| node.cluster).and_then(|name| self.clusters.get(&name));
        let alone = cluster.is_none().then_some(id);
        cluster.into_iter().flatten().copied().chain(alone)
    }

    /// Whether the block is in a cluster of several.
    pub(crate) fn is_clustered(&self, id: BlockId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.cluster.is_some())
    }

    /// The blocks that depend on `id` directly.
    pub(crate) fn dependants(&self, id: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        self.nodes.get(&id).into_iter().flat_map(|node| node.needed_by.iter().copied())
    }

    /// The blocks that `id` depends on directly.
    pub(crate) fn needs(&self, id: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        self.nodes.get(&id).into_iter().flat_map(|node| node.needs.iter().copied())
    }

    /// Those of them outside its cluster that have bytes to send.
    pub(crate) fn blockers(&self, id: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let cluster = self.nodes.get(&id).and_then(|node| node.cluster);
        let binds = move |need: &BlockId| {
            self.nodes.get(need).is_some_and(|node| node.unsent && (cluster.is_none() || node.cluster != cluster))
        };
        self.needs(id).filter(binds)
    }

    /// The blocks that depend on `id` over any number of steps, in order; the nearest `most` of them, if there are more.
    pub(crate) fn followers(&self, id: BlockId, most: usize) -> BTreeSet<BlockId> {
        let mut found = BTreeSet::new();
        let mut todo = VecDeque::from([id]);
        while let Some(next) = todo.pop_front() {
            for dependant in self.dependants(next) {
                if found.len() == most {
                    return found;
                }
                if dependant != id && found.insert(dependant) {
                    todo.push_back(dependant);
                }
            }
        }
        found
    }

    /// Replaces what `id` depends on. `unsent` tells of any live block whether it has bytes to send.
    ///
    /// Returns the blocks whose freedom may have changed besides `id`.
    pub(crate) fn set_needs(
        &mut self,
        id: BlockId,
        needs: impl IntoIterator<Item = BlockId>,
        unsent: impl Fn(BlockId) -> bool,
    ) -> Vec<BlockId> {
        self.clear_needs(id);
        let needs: BTreeSet<_> = needs.into_iter().filter(|&need| need != id).collect();
        if needs.is_empty() && !self.nodes.contains_key(&id) {
            return Vec::new();
        }
        for &need in &needs {
            let node = self.nodes.entry(need).or_default();
            node.needed_by.insert(id);
            node.unsent = unsent(need);
        }
        self.edges += needs.len();
        let node = self.nodes.entry(id).or_default();
        node.unsent = unsent(id);
        node.needs = needs;
        let circle = self.circle_through(id);
        let touched = if circle.len() > 1 { self.merge(circle) } else { Vec::new() };
        self.recount(id);
        touched
    }

    /// The block has (or no longer has) bytes to send. Returns those whose freedom that may change.
    pub(crate) fn set_unsent(&mut self, id: BlockId, unsent: bool) -> Vec<BlockId> {
        self.change(id, |node| node.unsent = unsent)
    }

    /// The block is passed over by those that depend on it, or no longer. Returns those whose freedom that may change.
    pub(crate) fn set_passed_over(&mut self, id: BlockId, passed_over: bool) -> Vec<BlockId> {
        self.change(id, |node| node.passed_over = passed_over)
    }

    fn change(&mut self, id: BlockId, change: impl FnOnce(&mut Node)) -> Vec<BlockId> {
        let Some(node) = self.nodes.get_mut(&id) else { return Vec::new() };
        let before = node.binds();
        change(node);
        let binds = node.binds();
        if binds == before || node.needed_by.is_empty() {
            return Vec::new();
        }
        let cluster = node.cluster;
        let dependants: Vec<_> = node.needed_by.iter().copied().collect();
        let mut touched = Vec::new();
        for dependant in dependants {
            let node = self.nodes.get_mut(&dependant).expect("edges have two ends");
            if cluster.is_some() && node.cluster == cluster {
                continue;
            }
            if binds {
                node.blockers += 1;
            } else {
                node.blockers -= 1;
            }
            touched.extend(self.members(dependant));
        }
        touched
    }

    /// Forgets a block that has ended. Returns those whose freedom that may change.
    pub(crate) fn remove(&mut self, id: BlockId) -> Vec<BlockId> {
        let mut touched = self.set_unsent(id, false);
        // What bound this member bound the whole cluster.
        touched.extend(self.members(id).filter(|&member| member != id));
        self.clear_needs(id);
        if let Some(node) = self.nodes.remove(&id) {
            for dependant in node.needed_by {
                let other = self.nodes.get_mut(&dependant).expect("edges have two ends");
                other.needs.remove(&id);
                self.edges -= 1;
                self.prune(dependant);
            }
            if let Some(name) = node.cluster {
                self.leave_cluster(name, id);
            }
        }
        touched
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.clusters.is_empty() && self.edges == 0
    }

    fn clear_needs(&mut self, id: BlockId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.blockers = 0;
        for need in std::mem::take(&mut node.needs) {
            self.edges -= 1;
            self.nodes.get_mut(&need).expect("edges have two ends").needed_by.remove(&id);
            self.prune(need);
        }
        self.prune(id);
    }

    /// Drops a node without edges or cluster.
    fn prune(&mut self, id: BlockId) {
        if self.nodes.get(&id).is_some_and(|n| n.needs.is_empty() && n.needed_by.is_empty() && n.cluster.is_none()) {
            self.nodes.remove(&id);
        }
    }

    fn recount(&mut self, id: BlockId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let blockers = node
            .needs
            .iter()
            .filter_map(|need| self.nodes.get(need))
            .filter(|need| need.binds() && (need.cluster.is_none() || need.cluster != node.cluster))
            .count();
        self.nodes.get_mut(&id).expect("just seen").blockers = blockers;
    }

    /// The blocks that both depend on `id` and are depended on by it, over any number of steps.
    fn circle_through(&self, id: BlockId) -> BTreeSet<BlockId> {
        // Whatever nobody depends on, as all new blocks, is in none.
        if self.nodes.get(&id).is_none_or(|node| node.needed_by.is_empty()) {
            return BTreeSet::new();
        }
        let below = self.reach(id, |node| &node.needs);
        if !below.contains(&id) {
            return BTreeSet::new();
        }
        let above = self.reach(id, |node| &node.needed_by);
        below.intersection(&above).copied().collect()
    }

    /// Every block reachable from `id` in one or more steps.
    fn reach(&self, id: BlockId, edges: impl Fn(&Node) -> &BTreeSet<BlockId>) -> BTreeSet<BlockId> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![id];
        while let Some(next) = todo.pop() {
            for &other in self.nodes.get(&next).into_iter().flat_map(&edges) {
                if seen.insert(other) {
                    todo.push(other);
                }
            }
        }
        seen
    }

    fn merge(&mut self, circle: BTreeSet<BlockId>) -> Vec<BlockId> {
        let mut members = BTreeSet::new();
        for id in circle {
            match self.nodes[&id].cluster.and_then(|name| self.clusters.remove(&name)) {
                Some(cluster) => members.extend(cluster),
                None => drop(members.insert(id)),
            }
        }
        let name = *members.first().expect("a circle has members");
        for id in &members {
            if let Some(node) = self.nodes.get_mut(id) {
                node.cluster = Some(name);
            }
        }
        let touched: Vec<_> = members.iter().copied().collect();
        self.clusters.insert(name, members);
        for &id in &touched {
            self.recount(id);
        }
        touched
    }

    fn leave_cluster(&mut self, name: BlockId, id: BlockId) {
        let Some(mut members) = self.clusters.remove(&name) else { return };
        members.remove(&id);
        let left: Vec<_> = members.iter().copied().collect();
        let new_name = left.first().copied().filter(|_| left.len() > 1);
        for member in &left {
            if let Some(node) = self.nodes.get_mut(member) {
                node.cluster = new_name;
            }
        }
        match new_name {
            Some(new_name) => drop(self.clusters.insert(new_name, members)),
            None => left.into_iter().for_each(|member| self.prune(member)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(list: &[u64]) -> Vec<BlockId> {
        list.iter().map(|&n| BlockId(n)).collect()
    }

    #[test]
    fn a_block_is_free_once_its_needs_are_sent() {
        let mut g = Graph::default();
        g.set_needs(BlockId(2), ids(&[0, 1]), |_| true);
        assert!(g.is_free(BlockId(0)) && !g.is_free(BlockId(2)));
        assert_eq!(g.set_unsent(BlockId(0), false), ids(&[2]));
        assert!(!g.is_free(BlockId(2)));
        g.remove(BlockId(1));
        assert!(g.is_free(BlockId(2)));
        g.set_unsent(BlockId(0), true);
        assert!(!g.is_free(BlockId(2)), "a lost dependency binds again");
        g.remove(BlockId(0));
        g.remove(BlockId(2));
        assert!(g.is_empty());
    }

    #[test]
    fn a_circle_is_one_cluster_bound_by_what_leaves_it() {
        let mut g = Graph::default();
        g.set_needs(BlockId(2), ids(&[1]), |_| true);
        g.set_needs(BlockId(3), ids(&[2, 0]), |_| true);
        let touched = g.set_needs(BlockId(1), ids(&[3]), |_| true);
        assert_eq!(touched, ids(&[1, 2, 3]));
        assert_eq!(g.members(BlockId(2)).collect::<Vec<_>>(), ids(&[1, 2, 3]));
        assert!(!g.is_free(BlockId(1)), "0 binds them all");
        g.set_unsent(BlockId(0), false);
        assert!([1, 2, 3].iter().all(|&n| g.is_free(BlockId(n))));
        for n in 0..4 {
            g.remove(BlockId(n));
        }
        assert!(g.is_empty());
    }

    #[test]
    fn a_member_that_ends_binds_its_cluster_no_longer() {
        let mut g = Graph::default();
        g.set_needs(BlockId(2), ids(&[1]), |_| true);
        g.set_needs(BlockId(1), ids(&[2, 0]), |_| true);
        g.set_unsent(BlockId(1), false);
        assert!(!g.is_free(BlockId(2)));
        assert_eq!(g.remove(BlockId(1)), ids(&[2]));
        assert!(g.is_free(BlockId(2)));
    }

    #[test]
    fn update_replaces_needs_and_frees() {
        let mut g = Graph::default();
        g.set_needs(BlockId(1), ids(&[0]), |_| true);
        g.set_needs(BlockId(1), ids(&[]), |_| true);
        assert!(g.is_free(BlockId(1)));
        assert!(g.is_empty());
    }

    /// What was said last of each block.
    #[derive(Debug, Default, Clone)]
    struct Naive(BTreeMap<BlockId, (BTreeSet<BlockId>, bool)>);

    impl Naive {
        fn needs(&self, id: BlockId) -> BTreeSet<BlockId> {
            self.0.get(&id).map(|block| block.0.clone()).unwrap_or_default()
        }

        fn reach(&self, id: BlockId, step: impl Fn(BlockId) -> BTreeSet<BlockId>) -> BTreeSet<BlockId> {
            let mut seen = BTreeSet::new();
            let mut todo = vec![id];
            while let Some(next) = todo.pop() {
                todo.extend(step(next).into_iter().filter(|&other| seen.insert(other)));
            }
            seen
        }

        fn dependants(&self, id: BlockId) -> BTreeSet<BlockId> {
            self.0.iter().filter(|(_, block)| block.0.contains(&id)).map(|(&id, _)| id).collect()
        }

        fn below(&self, id: BlockId) -> BTreeSet<BlockId> {
            self.reach(id, |next| self.needs(next))
        }

        fn above(&self, id: BlockId) -> BTreeSet<BlockId> {
            self.reach(id, |next| self.dependants(next))
        }

        /// What a block has to wait for: unsent bytes of what it depends on directly, unless that waits for it in turn.
        fn blockers(&self, id: BlockId) -> BTreeSet<BlockId> {
            let binds = |need: &BlockId| self.0[need].1 && !self.below(*need).contains(&id);
            self.needs(id).into_iter().filter(binds).collect()
        }
    }

    proptest! {
        // Without circles, which stay clusters after one of their edges has gone.
        #[test]
        fn it_is_as_the_edges_say(steps in prop::collection::vec((0u8..8, 0u64..12, prop::collection::btree_set(0u64..12, 0..4)), 1..80)) {
            let mut graph = Graph::default();
            let mut naive = Naive::default();
            for (kind, id, needs) in steps {
                let needs: BTreeSet<_> = needs.into_iter().filter(|&need| need < id).map(BlockId).collect();
                let id = BlockId(id);
                match kind {
                    0..3 => {
                        let needs: BTreeSet<_> = needs.into_iter().filter(|need| naive.0.contains_key(need)).collect();
                        let unsent = naive.0.get(&id).is_none_or(|block| block.1);
                        naive.0.insert(id, (needs.clone(), unsent));
                        graph.set_needs(id, needs, |id| naive.0[&id].1);
                    }
                    3..5 if naive.0.contains_key(&id) => {
                        let unsent = kind == 3;
                        naive.0.get_mut(&id).unwrap().1 = unsent;
                        graph.set_unsent(id, unsent);
                    }
                    5 => {
                        naive.0.remove(&id);
                        for block in naive.0.values_mut() {
                            block.0.remove(&id);
                        }
                        graph.remove(id);
                    }
                    6 | 7 => drop(graph.set_passed_over(id, kind == 6)),
                    _ => {}
                }
                prop_assert_eq!(graph.edges(), naive.0.values().map(|block| block.0.len()).sum::<usize>());
                for &id in naive.0.keys() {
                    prop_assert_eq!(graph.needs(id).collect::<BTreeSet<_>>(), naive.needs(id));
                    prop_assert_eq!(graph.dependants(id).collect::<BTreeSet<_>>(), naive.dependants(id));
                    prop_assert_eq!(graph.followers(id, 100), naive.above(id));
                    prop_assert_eq!(graph.followers(id, 2).len(), naive.above(id).len().min(2));
                    prop_assert_eq!(graph.blockers(id).collect::<BTreeSet<_>>(), naive.blockers(id));
                    let waits = |need: &BlockId| !graph.nodes[need].passed_over;
                    prop_assert_eq!(graph.is_free(id), !naive.blockers(id).iter().any(waits));
                }
            }
            for id in 0..12 {
                graph.remove(BlockId(id));
            }
            prop_assert!(graph.is_empty());
        }
    }

    #[test]
    fn those_in_a_circle_follow_each_other_and_do_not_wait() {
        let mut g = Graph::default();
        g.set_needs(BlockId(2), ids(&[1, 0]), |_| true);
        g.set_needs(BlockId(1), ids(&[2]), |_| true);
        assert_eq!(g.followers(BlockId(1), 10), BTreeSet::from([BlockId(2)]));
        assert_eq!(g.blockers(BlockId(1)).count(), 0);
        assert_eq!(g.blockers(BlockId(2)).collect::<Vec<_>>(), ids(&[0]));
    }
}
