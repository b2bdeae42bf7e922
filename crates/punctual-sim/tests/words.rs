//! What the two sides tell each other of blocks, where there are many small ones.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use punctual_proto::{Block, Event, SessionId};
use punctual_sim::{App, AppContext, HostConfig, HostId, LinkSpec, Loss, Rate, World, tls};

/// Ten blocks each millisecond, and the way back loses a third of what is said of them: were each word sent by itself, the stream on which
/// they are would be in so many pieces that QUIC's receiver gave up.
#[test]
fn many_small_blocks_outlive_a_way_back_that_loses_much() {
    let block = Block::new(Bytes::from_static(&[7; 60])).deadline(ms(200));
    let link = LinkSpec::new(40.0, ms(60)).queue(100_000);
    let setup = Setup { back: |link| link.clone().loss(Loss::Bernoulli(0.33)), ..Setup::new(vec![link]) };
    let mut pair = setup.connect(Source::new(block, Duration::from_micros(100), 60_000));
    pair.world.run_for(ms(8_000));
    // A session that ends panics in the sink. A few blocks are too late while the path is not known.
    let received = pair.sink().received.len();
    assert!(received > 59_000, "{received}");
    assert_eq!(pair.source().outcomes.len(), 60_000);
}

/// Messages of some sensor over a short path, 200 a second. Words that each is complete are packets back, and answers to them packets there, as many as with messages: where
/// they waited for no more than a quarter of the round trip, half of all packets there had nothing else in them.
#[test]
fn what_is_said_of_small_blocks_takes_few_packets() {
    let mut pair = sensor(ms(5), 2_000);
    pair.world.run_for(ms(11_000));
    assert_eq!((pair.sink().received.len(), pair.source().outcomes.len()), (2_000, 2_000));
    let (there, back) = pair.world.path_links(pair.paths[0]);
    let [there, back] = [there, back].map(|links| pair.world.counters(links[0]).offered);
    assert!(there < 2_900 && back < 2_900, "{there} there and {back} back, for 2,000 messages");
}

/// Frames that fill nine tenths of a slow link: what the sender's QUIC answers to what the receiver says of each goes along with the next, as there is no room for a packet of its own.
#[test]
fn on_a_slow_link_answers_go_along_with_data() {
    let link = LinkSpec::new(0.15, ms(30)).queue(8_000);
    let frame = Block::new(vec![7; 480]).deadline(ms(200));
    let mut pair = Setup::new(vec![link]).connect(Source::new(frame, ms(33), 600));
    pair.world.run_for(ms(21_000));
    let (there, _) = pair.world.path_links(pair.paths[0]);
    let there = pair.world.counters(there[0]).offered;
    let late = pair.late().len();
    assert!(there < 900 && late <= 30, "{there} packets there for 600 frames, {late} late");
}

/// The first frames over a slow link, of which nothing is known yet: none is sent twice because it seems to be missing, and no more repair fragments are sent than there is reason for.
#[test]
fn the_first_frames_over_a_slow_link_leave_once() {
    let link = LinkSpec::new(0.15, ms(25)).queue(8_000);
    let frame = Block::new(vec![7; 1_000]).deadline(ms(200));
    let mut pair = Setup::new(vec![link]).connect(Source::new(frame, ms(100), 4));
    pair.world.run_for(ms(1_500));
    let (late, (client, session)) = (pair.late().len(), pair.world.client(pair.connection));
    let stats = pair.world.enter(client, |cx| cx.session(session).expect("it is open").stats());
    assert_eq!((late, stats.resent_bytes, stats.repair_bytes), (0, 0, 0));
}

/// But what comes after a rest, or first of all, when the two have just said what they accept, is told at once: who stops right after it, or has its link cut, is known to have had it.
#[test]
fn what_is_said_of_a_lone_block_is_said_at_once() {
    let mut pair = sensor(ms(100), 2);
    pair.world.run_for(ms(10));
    assert_eq!(pair.source().outcomes.len(), 1);
    pair.world.run_for(ms(100));
    assert_eq!(pair.source().outcomes.len(), 2);
}

/// Who hands over another block only when it knows what became of one is told at once: it would wait for the word, and the word for more blocks, 25 ms each time.
#[test]
fn what_is_said_to_a_sender_that_waits_for_it_is_said_at_once() {
    for under_way in [1, 4] {
        let mut world = World::new(1);
        let client = world.add_host(HostConfig::new().app(OneByOne { under_way, told: 0 }));
        let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Sink::default()));
        let link = LinkSpec::new(20.0, ms(1)).queue(60_000);
        let path = world.add_path(client, server, link.clone(), link);
        world.connect(client, &tls::client_config(), &[path]).expect("a session can be started");
        world.handshake().expect("the handshake succeeds");
        world.run_for(ms(5_000));
        // A round trip of 2.2 ms with the block's own time, and what may pass before an answer.
        let told = world.app::<OneByOne>(client).unwrap().told;
        assert!(told > 1_800 * under_way, "{told} with {under_way} under way");
    }
}

/// Hands over another block each time that it is told what became of one.
struct OneByOne {
    under_way: usize,
    told: usize,
}

impl App for OneByOne {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        let more = match event {
            Event::Connected { .. } => self.under_way,
            Event::Outcome { .. } => 1,
            _ => 0,
        };
        self.told += usize::from(matches!(event, Event::Outcome { .. }));
        for _ in 0..more {
            cx.send(session, Block::new(Bytes::from_static(&[7; 180])).deadline(ms(150))).expect("room for a block");
        }
    }
}

/// A sensor's messages over a short path.
fn sensor(every: Duration, count: u64) -> Pair {
    let block = Block::new(Bytes::from_static(&[7; 180])).deadline(ms(150));
    Setup::new(vec![LinkSpec::new(5.0, ms(2)).queue(15_000)]).connect(Source::new(block, every, count))
}

/// A narrow way back that ACKs nearly fill, and what is said of the blocks besides: words that are lost there may not be said again as fast as that is noticed,
/// for then nothing gets through any more; nor may a thousand pieces of the stream wait for one that was lost, which is more than QUIC puts up with.
#[test]
fn words_fit_a_narrow_way_back() {
    let block = Block::new(Bytes::from_static(&[7; 27])).deadline(ms(100));
    let link = LinkSpec::new(20.0, ms(2)).queue(100_000);
    let setup = Setup {
        back: |_| LinkSpec::new(0.24, ms(2)).queue(6_000).loss(Loss::Bernoulli(0.02)),
        ..Setup::new(vec![link])
    };
    let mut pair = setup.connect(Source::new(block, ms(2), 15_000));
    pair.world.run_for(ms(30_000));
    // A session that ends panics in the sink.
    assert!(pair.sink().received.len() > 14_900);
    let (known, back) = (pair.source().outcomes.len(), pair.world.path_links(pair.paths[0]).1[0]);
    assert!(known > 13_000, "{known}");
    let offered = pair.world.counters(back).offered_bytes;
    assert!(offered < 1_200_000, "{offered} of 900,000 that fit");
}

/// A downlink forty times as fast as the uplink. Were every second packet answered by one of its own, answers would take more than the uplink has, wait for a third of
/// a second, and tell of losses when nothing is to be mended any more.
#[test]
fn answers_do_not_fill_a_narrow_way_back() {
    let block = Block::new(Bytes::from_static(&[7; 14_000])).deadline(ms(43));
    let link = LinkSpec::new(18.0, ms(5)).queue(48_000);
    let setup = Setup { back: |_| LinkSpec::new(0.45, ms(5)).queue(20_000), ..Setup::new(vec![link]) };
    // A fourth more than fits.
    let mut pair = setup.connect(Source::new(block, ms(5), 2_000));
    pair.world.run_for(ms(11_000));
    let sent = &pair.source().sent;
    let in_time = pair.sink().received.iter().filter(|(id, (at, _))| *at - sent[id] <= ms(43)).count();
    assert!(in_time > 1_450, "{in_time} of 2,000, of which 1,500 fit");
}

/// Sends and receives.
struct Both(Source, Sink);

impl App for Both {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        match event {
            Event::Readable | Event::PeerDropped { .. } => self.1.on_event(cx, session, event),
            _ => self.0.on_event(cx, session, event),
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, token: u64) {
        self.0.on_timer(cx, token);
    }
}

/// The same with something to send of one's own on that uplink, for which answers are to leave room: with one for every second packet, 6 of 500 blocks went up in time.
#[test]
fn answers_leave_room_for_what_goes_their_way() {
    let (down, up) = both_ways(&[(18.0, 0.7)], 10_000, 1_000);
    assert!(down > 1_930 && up > 470, "{down} of 2,000, {up} of 500");
}

/// And on two such paths, where it was 9 of 500, and 1,730 of 2,000.
#[test]
fn answers_leave_room_on_two_paths() {
    let (down, up) = both_ways(&[(18.0, 0.7), (9.0, 0.4)], 14_000, 1_500);
    assert!(down > 1_800 && up > 450, "{down} of 2,000, {up} of 500");
}

/// How many of 2,000 blocks down, due in 60 ms, and of 500 up, due in 100, are in time over paths of so many Mbit/s down and up, which send both ways for ten seconds.
fn both_ways(paths: &[(f64, f64)], bytes_down: usize, bytes_up: usize) -> (usize, usize) {
    let down = Source::new(Block::new(vec![7; bytes_down]).deadline(ms(60)), ms(5), 2_000);
    let up = Source::new(Block::new(vec![7; bytes_up]).deadline(ms(100)), ms(20), 500);
    let mut world = World::new(1);
    let client = world.add_host(HostConfig::new().app(Both(down, Sink::default())));
    let server = world.add_host(HostConfig::new().server(tls::server_config()).app(Both(up, Sink::default())));
    let link = |rate, queue| LinkSpec::new(rate, ms(5)).queue(queue);
    let paths: Vec<_> =
        paths.iter().map(|(down, up)| world.add_path(client, server, link(*down, 48_000), link(*up, 20_000))).collect();
    world.connect(client, &tls::client_config(), &paths).expect("a session can be started");
    world.handshake().expect("the handshake succeeds");
    world.run_for(ms(11_000));
    let in_time = |from: HostId, at: HostId, due| {
        let (Both(source, _), Both(_, sink)) = (world.app::<Both>(from).unwrap(), world.app::<Both>(at).unwrap());
        sink.received.iter().filter(|(id, (at, _))| *at - source.sent[id] <= ms(due)).count()
    };
    (in_time(client, server, 60), in_time(server, client, 100))
}

/// Thousands of blocks a second where nearly none fits.
#[test]
fn words_of_what_is_dropped_do_not_end_the_session() {
    let block = Block::new(Bytes::from_static(&[7; 27])).deadline(ms(100));
    let mut pair = Setup::new(vec![LinkSpec::new(0.24, ms(2)).queue(6_000)]).connect(Source::new(
        block,
        Duration::from_micros(250),
        80_000,
    ));
    pair.world.run_for(ms(30_000));
    // A session that ends panics in the sink.
    assert_eq!(pair.source().outcomes.len(), 80_000);
}

/// Nothing comes through for half a minute, while thousands of blocks are handed over each second and given up. What is to be said of them is said in few words
/// afterwards; before, it piled up until the session, which lets no more than a mebibyte of it, ended itself.
#[test]
fn an_outage_leaves_little_to_say() {
    let block = Block::new(Bytes::from_static(&[7; 27])).deadline(ms(100));
    let mut pair =
        Setup::new(vec![LinkSpec::new(8.0, ms(10))]).connect(Source::new(block, Duration::from_micros(200), 200_000));
    let links = pair.world.path_links(pair.paths[0]);
    let (to, back) = (links.0[0], links.1[0]);
    let at = |second: u64| pair.start + ms(1_000 * second);
    pair.world.at(at(1), move |world| [to, back].into_iter().for_each(|link| world.kill_link(link)));
    pair.world.at(at(29), move |world| [to, back].into_iter().for_each(|link| world.revive_link(link)));
    pair.world.run_for(ms(45_000));
    // A session that ends panics in the sink.
    assert_eq!(pair.source().outcomes.len(), 200_000);
    let received = pair.sink().received.len();
    assert!(received > 50_000, "{received} of 5,000 before and 55,000 after it");
}

/// A path becomes slow for two seconds, on which small blocks hardly fit before. Each that is dropped leaves a word, and on a path so slow these left no room for
/// a block that could show that it is fast again.
#[test]
fn words_of_what_is_dropped_leave_room_for_blocks() {
    let in_time = |seed| {
        let link = LinkSpec::new(0.2, ms(11)).queue(74_000).loss(Loss::bursts(0.05, 14.0));
        let block = Block::new(Bytes::from_static(&[7; 31])).deadline(ms(124));
        let vary = |block: Block, number: u64, _| match number % 4 {
            0 => Block { data: Bytes::from_static(&[7; 500]), ..block },
            _ => block,
        };
        let setup = Setup { seed, ..Setup::new(vec![link]) };
        let mut pair = setup.connect(Source::new(block, ms(4), 3_000).vary(vary));
        let link = pair.world.path_links(pair.paths[0]).0[0];
        for (at, mbps) in [(2_000, 0.02), (4_000, 0.2)] {
            pair.world.at(pair.start + ms(at), move |world| {
                world.update_link(link, |spec| spec.rate = Rate::mbps(mbps));
            });
        }
        pair.world.run_for(ms(13_000));
        let late = pair.late().iter().filter(|(_, at, _)| *at > ms(6_000)).count();
        1.0 - late as f64 / 1_500.0
    };
    // Without that room seven of the eight have a twentieth.
    let in_time: Vec<_> = (1..=8).map(in_time).collect();
    assert!(in_time.iter().all(|share| *share > 0.3) && in_time.iter().sum::<f64>() > 8.0 * 0.5, "{in_time:?}");
}

/// Small blocks over a short path and a long one. The short one's way back dies for two seconds, and its sender marks it as backup; then it lives again, and the long
/// one's dies: what comes back has to go where it is distrusted.
#[test]
fn answers_go_where_they_arrive() {
    let links = vec![LinkSpec::new(20.0, ms(5)), LinkSpec::new(20.0, ms(40))];
    let block = Block::new(vec![7; 1_000]).deadline(ms(400));
    let mut pair = Setup::new(links).connect(Source::new(block, ms(5), 4_000));
    let back = |which: usize| pair.world.path_links(pair.paths[which]).1[0];
    let (short, long) = (back(0), back(1));
    let at = |second: u64| pair.start + ms(1_000 * second);
    for (when, link, lives) in [(3, short, false), (5, short, true), (5, long, false)] {
        pair.world.at(at(when), move |world| if lives { world.revive_link(link) } else { world.kill_link(link) });
    }
    pair.world.run_for(ms(21_000));
    assert_eq!(pair.source().outcomes.len(), 4_000);
    let settled =
        |at: Duration| [ms(3_000), ms(5_000)].iter().all(|change| !(*change..*change + ms(1_000)).contains(&at));
    let late: Vec<_> = pair.late().into_iter().filter(|(_, at, _)| settled(*at)).collect();
    assert_eq!(late, [], "a second after each change");
    let slow = pair.source().not_on_time();
    assert!(slow.len() < 300, "by the sender's account: {}", slow.len());
}

/// The shorter of two paths dies for good, both ways or one, with words in flight. QUIC waits for answers there for ever; what becomes of
/// blocks is told all the same, and credit given, of which the blocks need more than there is to begin with.
#[test]
fn words_outlive_the_path_they_were_on() {
    for (to, back) in [(true, true), (true, false), (false, true)] {
        let links = vec![LinkSpec::new(20.0, ms(5)), LinkSpec::new(50.0, ms(40))];
        let block = Block::new(vec![7; 24_000]).deadline(ms(400));
        let mut pair = Setup::new(links).connect(Source::new(block, ms(5), 4_000));
        let links = pair.world.path_links(pair.paths[0]);
        let dying: Vec<_> = [(to, links.0[0]), (back, links.1[0])].into_iter().filter(|(dies, _)| *dies).collect();
        pair.world.at(pair.start + ms(3_000), move |world| dying.iter().for_each(|(_, link)| world.kill_link(*link)));
        pair.world.run_for(ms(21_000));
        assert_eq!(pair.source().outcomes.len(), 4_000, "{to} {back}");
        let late = pair.late();
        assert!(late.iter().all(|(_, at, _)| (ms(2_600)..ms(3_600)).contains(at)), "{late:?}");
    }
}

/// Takes what has come only now and then.
#[derive(Default)]
struct Slow {
    session: Option<SessionId>,
    taken: usize,
}

impl App for Slow {
    fn on_event(&mut self, cx: &mut AppContext<'_>, session: SessionId, event: Event) {
        if matches!(event, Event::Connected { .. }) {
            self.session = Some(session);
            self.on_timer(cx, 0);
        }
    }

    fn on_timer(&mut self, cx: &mut AppContext<'_>, _: u64) {
        while cx.recv(self.session.expect("connected")).is_some() {
            self.taken += 1;
        }
        cx.set_timer(cx.now() + ms(300), 0);
    }
}

/// A receiver with little room, that empties it now and then, and the way back of a path that dies for good. Meanwhile the sender waits, and calls
/// on that path only, which it has lost faith in: what the receiver has to say goes on the other all the same.
#[test]
fn credit_goes_where_it_arrives_though_the_sender_calls_elsewhere() {
    for death in (0..10).map(|step| ms(1_000 + 30 * step)) {
        let mut server = tls::server_config();
        (server.session.limits.receive_bytes, server.session.limits.max_block_size) = (40_000, 40_000);
        let mut world = World::new(1);
        let client = world.add_host(HostConfig::new().app(Source::new(Block::new(vec![7; 20_000]), ms(10), 100)));
        let server = world.add_host(HostConfig::new().server(server).app(Slow::default()));
        let links = [LinkSpec::new(20.0, ms(5)), LinkSpec::new(20.0, ms(40))];
        let paths = links.map(|link| world.add_path(client, server, link.clone(), link));
        world.connect(client, &tls::client_config(), &paths).expect("a session can be started");
        let start = world.handshake().expect("the handshake succeeds");
        let back = world.path_links(paths[0]).1[0];
        world.at(start + death, move |world| world.kill_link(back));
        // Two blocks fit at a time.
        world.run_until(start + ms(300 * 50 + 5_000));
        assert_eq!(world.app::<Slow>(server).map(|slow| slow.taken), Some(100), "{death:?}");
    }
}
