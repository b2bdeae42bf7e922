use punctual_eval::{carry, experiment::*, files::Files};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let mut e = Experiment::parse("x", &text).unwrap();
    for kv in &args[2..] {
        let (k, v) = kv.split_once('=').unwrap();
        e = e.with(k, v).unwrap();
    }
    for cell in e.cells().unwrap() {
        let t = std::time::Instant::now();
        for seed in 1..=e.head.seeds {
            let stage = carry::Stage::new(&cell.setup, &Files::default(), seed.into()).unwrap();
            let r = carry::run(&stage, &cell.contender, seed.into()).unwrap();
            let n = r.blocks.len();
            let on: Vec<String> = (0..3)
                .map(|p| {
                    let b: Vec<_> = r.blocks.iter().filter(|b| b.priority == p).collect();
                    format!("{:.3}", b.iter().filter(|b| b.on_time()).count() as f64 / b.len() as f64)
                })
                .collect();
            let sent: u64 = r.blocks.iter().map(|b| (b.source_bytes + b.resent_bytes) as u64).sum();
            let good: u64 = r.blocks.iter().filter(|b| b.on_time()).map(|b| b.size as u64).sum();
            println!(
                "{:?} {} seed {seed}: on time {:.4} {on:?} sent {:.2} MB/s useful {:.3} lost {} over {} qmax {} {:.2}s",
                cell.points.iter().map(|p| &p.label).collect::<Vec<_>>(),
                cell.contender.name,
                r.blocks.iter().filter(|b| b.on_time()).count() as f64 / n as f64,
                sent as f64 / 1e6 / (r.duration as f64 / 1e9),
                good as f64 / sent as f64,
                r.paths[0].lost,
                r.paths[0].overflowed,
                r.paths[0].queue_max,
                t.elapsed().as_secs_f64()
            );
            if std::env::var("LATE").is_ok() {
                for b in r.blocks.iter().filter(|b| !b.on_time()) {
                    println!(
                        "  {} p{} first {:?} last {:?} complete {:?} {:?} good {} sent {} resent {}",
                        b.handed_over as f64 / 1e6,
                        b.priority,
                        b.first_sent.map(|t| (t - b.handed_over) as f64 / 1e6),
                        b.last_sent.map(|t| (t - b.handed_over) as f64 / 1e6),
                        b.complete.map(|t| (t - b.handed_over) as f64 / 1e6),
                        b.ending,
                        b.good_bytes,
                        b.source_bytes,
                        b.resent_bytes
                    );
                }
            }
        }
    }
}
