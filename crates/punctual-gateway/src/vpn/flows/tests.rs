use etherparse::PacketBuilder;

use super::*;

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_millis(200);
const TIMES: Times = Times { patience: PATIENCE, target: Duration::from_millis(5) };

fn tcp(port: u16, size: usize, ect: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(port, 80, 0, 0);
    packet.write(&mut bytes, &vec![0; size - 60]).unwrap();
    if ect {
        bytes[1] |= 0x20;
    }
    bytes
}

fn udp(port: u16, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(port, 80).write(&mut bytes, &vec![0; size - 48]).unwrap();
    bytes
}

impl Flows {
    /// All that is kept twice is the same.
    fn check(&self) {
        let queued = |of: fn(&Flow) -> usize| self.all.iter().map(|(_, flow)| of(flow)).sum::<usize>();
        assert_eq!((self.waiting, self.packets), (queued(|flow| flow.bytes), queued(|flow| flow.queue.len())));
        assert!(self.waiting <= self.most_bytes && self.all.len() <= self.most_flows);
        let silent = self.all.iter().filter(|(_, flow)| flow.turn == Turn::Idle);
        let silent: BTreeMap<_, _> = silent.map(|(index, flow)| (flow.silent, index)).collect();
        assert_eq!(silent, self.idle);
        let taken = self.all.iter().filter(|(_, flow)| flow.channel.is_some()).count();
        assert_eq!(taken + self.channels.free.len(), self.channels.used as usize);
        assert_eq!(self.known.len(), self.all.len());
    }
}

struct Test {
    flows: Flows,
    classes: Classes,
    now: Instant,
    dropped: Vec<Dropped>,
}

impl Test {
    fn new() -> Self {
        let (flows, classes) = (Flows::new(100, 1 << 20), Classes::default());
        Self { flows, classes, now: Instant::now(), dropped: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        let Self { flows, classes, now, dropped } = self;
        flows.push(&packet, bytes, Rest::Nothing, classes, *now, |why| dropped.push(why));
    }

    /// The port and the size of what comes next.
    fn pop(&mut self, room: bool) -> Option<(u16, Next)> {
        let Self { flows, now, dropped, .. } = self;
        let next = flows.pop(room, TIMES, *now, |_, why| dropped.push(why))?;
        let packet = Packet::parse(&next.word[next.at..]).unwrap();
        Some((packet.ports.unwrap().0, next))
    }

    fn ports(&mut self, room: bool) -> Vec<u16> {
        std::iter::from_fn(|| self.pop(room).map(|(port, _)| port)).collect()
    }
}

#[test]
fn flows_take_turns_and_each_keeps_its_order() {
    let mut test = Test::new();
    for size in 0..4 {
        test.push(&tcp(1, 1_500 - size, false));
    }
    test.push(&tcp(2, 1_000, false));
    test.push(&tcp(3, 100, false));
    let mut sizes = Vec::new();
    let order: Vec<u16> = std::iter::from_fn(|| {
        let (port, next) = test.pop(true)?;
        sizes.extend((port == 1).then_some(next.word.len() - next.at));
        Some(port)
    })
    .collect();
    assert_eq!(sizes, [1_500, 1_499, 1_498, 1_497]);
    let last_of_1 = order.iter().rposition(|port| *port == 1).unwrap();
    assert_eq!((order.len(), last_of_1), (6, 5), "{order:?}: others do not wait for a long queue");
    assert!(test.flows.is_idle() && test.flows.waiting == 0);
}

#[test]
fn each_tcp_flow_has_a_channel_and_datagrams_have_none() {
    let mut test = Test::new();
    for packet in [tcp(1, 100, false), tcp(2, 100, false), tcp(1, 100, false), udp(3, 100)] {
        test.push(&packet);
    }
    let mut channels = HashMap::<u16, Vec<_>>::new();
    while let Some((port, next)) = test.pop(true) {
        channels.entry(port).or_default().push(next.channel);
    }
    assert_eq!(channels[&1].len(), 2);
    assert!(channels[&1][0].is_some() && channels[&1][0] == channels[&1][1] && channels[&1] != channels[&2]);
    assert_eq!(channels[&3], [None]);
}

#[test]
fn who_sends_little_does_not_wait_for_room() {
    let mut test = Test::new();
    for _ in 0..20 {
        test.push(&tcp(1, 1_500, false));
    }
    assert_eq!(test.ports(false), [1, 1], "what a new flow has before it is known for what it is");
    test.push(&udp(2, 84));
    assert_eq!(test.ports(false), [2]);
    test.push(&tcp(3, 30_000, false));
    assert_eq!(test.ports(false), Vec::<u16>::new(), "a large packet is no little");
    assert_eq!(test.ports(true).len(), 19);
}

#[test]
fn a_queue_that_stands_is_told_of_by_marks_where_they_are_known_and_by_losses_elsewhere() {
    let run = |ect| {
        let mut test = Test::new();
        let (mut marked, mut came) = (0, 0);
        for _ in 0..20 {
            test.push(&tcp(1, 1_500, ect));
        }
        for _ in 0..1_000 {
            test.push(&tcp(1, 1_500, ect));
            test.now += MS;
            if let Some((_, next)) = test.pop(true) {
                marked += usize::from(next.marked);
                came += 1;
            }
        }
        (marked, test.dropped.iter().filter(|why| **why == Dropped::Congestion).count(), came)
    };
    let (marked, lost, _) = run(true);
    assert!(marked > 10 && lost == 0, "{marked}, {lost}");
    let (marked, lost, came) = run(false);
    assert!(marked == 0 && lost >= 5 && came > 900, "{marked}, {lost}, {came}");
}

#[test]
fn what_waited_for_too_long_is_dropped_and_so_is_what_is_too_much() {
    let mut test = Test::new();
    test.push(&tcp(1, 1_500, true));
    test.now += PATIENCE;
    assert!(test.pop(true).is_none());
    assert_eq!(test.dropped, [Dropped::Expired]);
    test.flows.limit(2, 10_000);
    test.dropped.clear();
    for _ in 0..9 {
        test.push(&tcp(1, 1_500, false));
    }
    test.push(&udp(2, 1_500));
    assert_eq!(test.dropped, [Dropped::Overflow; 4], "of the longest queue");
    test.push(&udp(3, 100));
    assert_eq!(test.dropped[4..], [Dropped::Flows], "two there are, and both are busy");
    assert_eq!(test.ports(true).iter().filter(|port| **port == 2).count(), 1);
    test.push(&udp(3, 100));
    assert_eq!((test.ports(true), test.flows.len()), (vec![3], 2), "in the place of one that is idle");
}

#[test]
fn silent_flows_are_forgotten_and_their_channels_used_again() {
    let mut test = Test::new();
    for port in 1..=5 {
        test.push(&tcp(port, 100, false));
        test.ports(true);
        test.now += FORGOTTEN_AFTER / 10;
    }
    // The first is heard of again, and so is not the oldest.
    test.push(&tcp(1, 100, false));
    test.ports(true);
    test.now += FORGOTTEN_AFTER * 9 / 10;
    test.push(&tcp(6, 100, false));
    let (_, next) = test.pop(true).unwrap();
    assert_eq!((test.flows.len(), next.channel), (4, Some(Channel(3))), "two are forgotten at once");
    test.push(&tcp(6, 100, false));
    assert_eq!((test.flows.len(), test.flows.channels.used), (2, 5), "but for the first and the last");
    test.flows.check();
}

#[test]
fn the_books_are_right_whatever_comes() {
    let mut test = Test::new();
    test.flows.limit(20, 20_000);
    let mut draw = 1u32;
    for _ in 0..20_000 {
        // Numerical Recipes' generator: what comes when is arbitrary, and always the same.
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [what, port, size, _] = draw.to_be_bytes();
        match what % 8 {
            0..4 => test.push(&tcp(u16::from(port % 32), 100 + 8 * usize::from(size), what > 127)),
            4 | 5 => test.push(&udp(u16::from(port % 64), 60 + usize::from(size))),
            6 => drop(test.pop(size > 20)),
            _ => test.now += MS * u32::from(size),
        }
        test.flows.check();
    }
    test.now += FORGOTTEN_AFTER;
    while !test.flows.is_idle() {
        test.pop(true);
    }
    assert!(test.pop(true).is_none());
    test.flows.check();
    assert_eq!((test.flows.waiting, test.flows.idle.len()), (0, test.flows.len()));
}

#[test]
fn higher_priorities_go_first() {
    let mut test = Test::new();
    let config = super::super::Config {
        classes: [("first".to_owned(), toml::from_str("priority = 1").unwrap())].into(),
        rules: vec![toml::from_str("class = 'first'\nport = 9").unwrap()],
        ..Default::default()
    };
    test.classes = Classes::of(&config);
    for port in [1, 1, 1, 9, 9, 9] {
        test.push(&udp(port, 1_500));
    }
    assert_eq!(test.ports(true), [9, 9, 9, 1, 1, 1]);
}
