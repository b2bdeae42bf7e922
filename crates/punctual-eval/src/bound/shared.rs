//! Through which links all packets must pass, and which policers: paths' own, and those that they share.

use std::time::Duration;

use punctual_sim::LinkSpec;

use super::capacity::{Path, least_delay, survival};

/// All links there are, and when they are dead.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// Of each path its own.
    pub own: Vec<LinkSpec>,
    /// Those that paths pass besides.
    pub shared: Vec<SharedLink>,
    /// Of each path when its own link [dies](punctual_sim::Link::kill), and when it lives again, since the links were shaped. Those without
    /// never die.
    pub dies: Vec<Vec<(Duration, Duration)>>,
}

impl From<&[LinkSpec]> for Links {
    /// Links that no paths share, and that never die.
    fn from(own: &[LinkSpec]) -> Self {
        Self { own: own.to_vec(), ..Self::default() }
    }
}

/// A link that packets of several paths pass, besides each path's own.
#[derive(Debug, Clone)]
pub struct SharedLink {
    /// What it is made of. Its delay comes on top of the paths' own.
    pub link: LinkSpec,
    /// Which of the paths pass it. What is not the index of a path counts for nothing.
    pub paths: Vec<usize>,
    /// Where it is, seen from the paths' own links.
    pub place: Place,
}

/// Where a [`SharedLink`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before the paths' own links: at the sender's side. Of several, a packet passes first what is listed first.
    First,
    /// Behind the paths' own links: at the receiver's side. Of several, a packet passes first what is listed first.
    Last,
}

/// One of a path's links: its own, or one of the shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Own,
    Shared(usize),
}

/// One link of a path among the others.
struct Passage {
    /// Nanoseconds needed on the links before it and on those behind it, at least.
    ahead: u64,
    behind: u64,
    /// The probability, at most, with which a packet survives those behind it. What is lost before it takes none of its capacity.
    survival: f64,
    /// The longest datagram that fits through all of them, this one included.
    datagram: u32,
}

/// All links, and the order in which packets of each path pass them.
struct Network<'a> {
    links: &'a Links,
    chains: Vec<Vec<Hop>>,
}

/// Some choices of links such that every packet must pass one of each choice. For any such choice, no more can be brought in time
/// than over its links alone.
///
/// Where policers let through less than their links, the same links are chosen once more, with those policers in their place.
pub(super) fn cuts(links: &Links) -> Vec<Vec<Path>> {
    let shared = &links.shared;
    let network = Network { links, chains: (0..links.own.len()).map(|path| chain(path, shared)).collect() };
    let mut choices: Vec<Vec<Hop>> = vec![network.choice(|_| Hop::Own)];
    for one in (0..shared.len()).map(Hop::Shared) {
        choices.push(network.choice(|chain| if chain.contains(&one) { one } else { Hop::Own }));
    }
    if shared.len() > 1 {
        let first = |chain: &[Hop]| chain.iter().find(|hop| **hop != Hop::Own).copied();
        choices.push(network.choice(|chain| first(chain).unwrap_or(Hop::Own)));
    }
    let policed = choices.iter().filter(|choice| network.has_policers(choice)).map(|choice| network.cut(choice, true));
    choices.iter().map(|choice| network.cut(choice, false)).chain(policed).collect()
}

/// The links of a path, in the order in which packets pass them.
fn chain(path: usize, shared: &[SharedLink]) -> Vec<Hop> {
    let at = |place| {
        let passed = move |index: &usize| shared[*index].place == place && shared[*index].paths.contains(&path);
        (0..shared.len()).filter(passed).map(Hop::Shared)
    };
    at(Place::First).chain([Hop::Own]).chain(at(Place::Last)).collect()
}

impl Network<'_> {
    /// Of each path, one of its links.
    fn choice(&self, choose: impl Fn(&[Hop]) -> Hop) -> Vec<Hop> {
        self.chains.iter().map(|chain| choose(chain)).collect()
    }

    /// Whether a policer of these links lets through less than its link.
    fn has_policers(&self, chosen: &[Hop]) -> bool {
        chosen.iter().enumerate().any(|(path, hop)| is_held_back(self.spec(*hop, path)))
    }

    /// The links that are chosen, given which one is of each path's; or their policers, where these let through less.
    fn cut(&self, chosen: &[Hop], policed: bool) -> Vec<Path> {
        let of = |hop: Hop| (0..chosen.len()).filter(|path| chosen[*path] == hop).collect::<Vec<_>>();
        let own = of(Hop::Own).into_iter().filter_map(|path| self.link(Hop::Own, &[path], policed));
        let shared = (0..self.links.shared.len()).map(Hop::Shared);
        own.chain(shared.filter_map(|hop| self.link(hop, &of(hop), policed))).collect()
    }

    /// A link as the best of these paths, which pass it, could use it.
    fn link(&self, hop: Hop, paths: &[usize], policed: bool) -> Option<Path> {
        let best = paths.iter().map(|path| self.passage(hop, *path)).reduce(|a, b| Passage {
            ahead: a.ahead.min(b.ahead),
            behind: a.behind.min(b.behind),
            survival: a.survival.max(b.survival),
            datagram: a.datagram.max(b.datagram),
        })?;
        let path = *paths.first()?;
        let spec = self.spec(hop, path);
        let spec = spec.clone().mtu(best.datagram.saturating_add(spec.overhead));
        let link = if policed && is_held_back(&spec) { Path::of_policer(&spec)? } else { Path::new(&spec)? };
        let dies = self.links.dies.get(path).filter(|_| hop == Hop::Own);
        Some(link.dying(dies.map_or(&[], Vec::as_slice)).between(best.ahead, best.behind, best.survival))
    }

    fn passage(&self, hop: Hop, path: usize) -> Passage {
        let chain = &self.chains[path];
        let links: Vec<_> = chain.iter().map(|hop| self.spec(*hop, path)).collect();
        let place = chain.iter().position(|other| *other == hop).unwrap_or(0);
        let (before, behind) = (&links[..place], &links[place + 1..]);
        let delay = |links: &[&LinkSpec]| links.iter().map(|link| least_delay(link)).fold(0, u64::saturating_add);
        // Each copy may survive where others do not.
        let copies = links[place..links.len() - 1].iter().map(|link| 1.0 + link.duplication).product::<f64>();
        let survival = behind.iter().map(|link| survival(link)).product::<f64>();
        Passage {
            ahead: delay(before),
            behind: delay(behind),
            survival: (copies * survival).min(1.0),
            datagram: links.iter().map(|link| link.mtu.saturating_sub(link.overhead)).min().unwrap_or(0),
        }
    }

    fn spec(&self, hop: Hop, path: usize) -> &LinkSpec {
        match hop {
            Hop::Own => &self.links.own[path],
            Hop::Shared(index) => &self.links.shared[index].link,
        }
    }
}

/// Whether a link has a policer that lets through less than the link carries, as a rule. Where it is now less and now more, that is
/// a guess, and either is a bound.
fn is_held_back(spec: &LinkSpec) -> bool {
    spec.policer.is_some_and(|policer| spec.rate.nominal().is_none_or(|rate| (policer.rate as f64) < rate))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_sim::Loss;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const MS: u64 = 1_000_000;

    fn shared(link: LinkSpec, paths: &[usize], place: Place) -> SharedLink {
        SharedLink { link, paths: paths.into(), place }
    }

    fn cuts(own: &[LinkSpec], shared: &[SharedLink]) -> Vec<Vec<Path>> {
        super::cuts(&Links { shared: shared.into(), ..own.into() })
    }

    /// The first departure of what is handed over at 0, and the last for a deadline of 100 ms, in ms.
    fn window(path: &Path) -> (u64, u64) {
        (path.first_departure(0) / MS, path.latest_departure(100 * MS).unwrap() / MS)
    }

    #[test]
    fn every_path_passes_one_link_of_a_cut() {
        let paths = [5, 20, 40].map(|delay| LinkSpec::new(10.0, ms(delay)));
        assert_eq!(cuts(&paths, &[]).iter().map(Vec::len).collect::<Vec<_>>(), [3]);
        let last = shared(LinkSpec::new(8.0, ms(10)), &[1, 2, 9], Place::Last);
        let windows: Vec<Vec<_>> = cuts(&paths, &[last]).iter().map(|cut| cut.iter().map(window).collect()).collect();
        // 20 ms at least before it, 10 ms on it.
        assert_eq!(windows, [vec![(0, 95), (0, 70), (0, 50)], vec![(0, 95), (20, 90)]]);
        let chain = [
            shared(LinkSpec::new(8.0, ms(10)), &[0, 1], Place::First),
            shared(LinkSpec::new(8.0, ms(3)), &[1, 2], Place::Last),
        ];
        let windows: Vec<Vec<_>> = cuts(&paths, &chain).iter().map(|cut| cut.iter().map(window).collect()).collect();
        assert_eq!(
            windows,
            [
                vec![(10, 95), (10, 77), (0, 57)],
                // What passes it need not pass the other.
                vec![(0, 57), (0, 85)],
                vec![(10, 95), (30, 97)],
                vec![(0, 85), (40, 97)],
            ]
        );
    }

    #[test]
    fn only_what_is_lost_behind_a_link_takes_its_capacity() {
        let paths = [0.1, 0.2].map(|loss| LinkSpec::new(10.0, ms(5)).loss(Loss::Bernoulli(loss)));
        let link = LinkSpec::new(10.0, ms(5)).loss(Loss::Bernoulli(0.5));
        let survivals = |place| -> Vec<Vec<i64>> {
            let one = |path: &Path| path.thinned().by(1_000 * i128::from(MS)) * 1000 / path.by(1_000 * i128::from(MS));
            let cuts = cuts(&paths, &[shared(link.clone(), &[0, 1], place)]);
            cuts.iter().map(|cut| cut.iter().map(one).collect()).collect()
        };
        assert_eq!(survivals(Place::First), [vec![900, 800], vec![450]]);
        assert_eq!(survivals(Place::Last), [vec![450, 400], vec![500]]);
    }

    #[test]
    fn policers_stand_in_for_faster_links() {
        let slow = LinkSpec::new(10.0, ms(5)).policer(12_000_000, 9_000);
        let fast = LinkSpec::new(20.0, ms(5)).policer(12_000_000, 9_000);
        // With headers, 12 kbit of a second's first millisecond and a burst of 9,000 bytes.
        let bytes = |own: &[LinkSpec], shared: &[SharedLink]| -> Vec<Vec<i64>> {
            let one = |path: &Path| path.by(i128::from(MS)) / super::super::capacity::UNITS_PER_BYTE * 1500 / 1444;
            cuts(own, shared).iter().map(|cut| cut.iter().map(one).collect()).collect()
        };
        assert_eq!(bytes(std::slice::from_ref(&slow), &[]), [[1_249]]);
        assert_eq!(bytes(&[slow, fast.clone()], &[]), [[1_249, 2_499], [1_249, 10_500]]);
        let modem = shared(LinkSpec::unlimited(ms(0)).policer(6_000_000, 1_500), &[0], Place::First);
        assert_eq!(bytes(&[LinkSpec::new(20.0, ms(5))], std::slice::from_ref(&modem)), [[2_499], [0], [2_250]]);
        assert_eq!(bytes(&[fast], &[modem]), [[2_499], [0], [10_500], [2_250]]);
    }

    #[test]
    fn only_own_links_die() {
        let own = vec![LinkSpec::new(12.0, ms(5)), LinkSpec::new(12.0, ms(5))];
        let all = shared(LinkSpec::new(12.0, ms(10)), &[0, 1], Place::Last);
        let links = Links { own, shared: vec![all], dies: vec![vec![], vec![(ms(20), ms(1_000))]] };
        let bytes = |path: &Path| path.by(100 * i128::from(MS)) / super::super::capacity::UNITS_PER_BYTE;
        let cuts = super::cuts(&links).iter().map(|cut| cut.iter().map(bytes).collect()).collect::<Vec<Vec<_>>>();
        // What leaves its own link by 15 ms; how long the other takes is nothing to it.
        assert_eq!(cuts, [vec![100 * 1_444, 15 * 1_444], vec![100 * 1_444]]);
    }

    #[test]
    fn what_does_not_fit_through_one_link_is_in_no_packet_of_another() {
        let paths = [LinkSpec::new(12.0, ms(5)), LinkSpec::new(12.0, ms(5)).mtu(1_200)];
        let cuts = cuts(&paths, &[shared(LinkSpec::new(12.0, ms(0)).mtu(1_300), &[0, 1], Place::First)]);
        let bytes: Vec<Vec<_>> = cuts
            .iter()
            .map(|cut| {
                cut.iter()
                    .map(|path| path.by(1_000 * i128::from(MS)) / super::super::capacity::UNITS_PER_BYTE)
                    .collect()
            })
            .collect();
        let of = |mtu: i64| 1_500_000 * (mtu - 56) / mtu;
        assert_eq!(bytes, [vec![of(1_300), of(1_200)], vec![of(1_300)]]);
    }
}
