//! QUIC renews its keys after 10 to 1,000 packets, as chance will have it.

mod common;

use std::time::Duration;

use common::*;
use punctual_proto::Block;
use punctual_sim::LinkSpec;

/// Over a long path and a short one what is under way on the long one when keys change is from before, though later numbers were seen on the short one. Nothing is lost for
/// that, in whichever order the paths are opened.
#[test]
fn new_keys_cost_nothing_where_paths_are_unequal() {
    for seed in 1..=12 {
        let mut links = vec![LinkSpec::new(50.0, ms(50)).queue(500_000), LinkSpec::new(2.0, ms(2)).queue(500_000)];
        if seed % 2 == 0 {
            links.reverse();
        }
        // The long path carries most, so that its packet numbers are ahead.
        let block = Block::new(vec![7; 6_000]).deadline(ms(400));
        let source = Source::new(block, Duration::from_micros(2_500), 800);
        let mut pair = Setup { seed, ..Setup::new(links) }.connect(source);
        pair.world.run_for(ms(5_000));
        let (client, session) = pair.world.client(pair.connection);
        let paths = pair.world.enter(client, |cx| {
            let now = cx.instant();
            cx.session(session).expect("it is open").path_stats(now)
        });
        let lost: Vec<_> = paths.iter().map(|path| path.packets_lost).collect();
        // What was under way before there was a second path may be; that is no data.
        assert!(lost.iter().all(|lost| *lost <= 3), "seed {seed}: lost {lost:?}");
    }
}
