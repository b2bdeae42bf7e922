use punctual_eval::{carry, experiment::*, files::Files};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let mut e = Experiment::parse("x", &text).unwrap();
    for kv in &args[2..] {
        let (k, v) = kv.split_once('=').unwrap();
        e = e.with(k, v).unwrap();
    }
    let files = Files::new(["/work/shared/data"]);
    for cell in e.cells().unwrap() {
        let t = std::time::Instant::now();
        let mut sum = 0.0;
        for seed in 1..=e.head.seeds {
            let stage = carry::Stage::new(&cell.setup, &files, seed.into()).unwrap();
            let r = carry::run(&stage, &cell.contender, seed.into()).unwrap();
            let n = r.blocks.len().max(1);
            let mut prios: Vec<u8> = r.blocks.iter().map(|b| b.priority).collect();
            prios.sort();
            prios.dedup();
            let on: Vec<String> = prios
                .iter()
                .map(|&p| {
                    let b: Vec<_> = r.blocks.iter().filter(|b| b.priority == p).collect();
                    format!("{p}:{:.3}", b.iter().filter(|b| b.on_time()).count() as f64 / b.len() as f64)
                })
                .collect();
            let sent: u64 = r.blocks.iter().map(|b| (b.source_bytes + b.resent_bytes) as u64).sum();
            let good: u64 = r.blocks.iter().filter(|b| b.on_time()).map(|b| b.size as u64).sum();
            let ot = r.blocks.iter().filter(|b| b.on_time()).count() as f64 / n as f64;
            sum += ot;
            let q: u64 = {
                let mut q = r.queue.clone();
                q.sort();
                q[q.len() * 95 / 100] as u64
            };
            println!(
                "{:?} {} seed {seed}: on time {:.4} {on:?} sent {:.2} MB/s useful {:.3} lost {} over {} qmax {} q95 {q} bulk {:.2} flows {:?} {:.2}s",
                cell.points.iter().map(|p| &p.label).collect::<Vec<_>>(),
                cell.contender.name,
                ot,
                sent as f64 / 1e6 / (r.duration as f64 / 1e9),
                good as f64 / sent as f64,
                r.paths[0].lost,
                r.paths[0].overflowed,
                r.paths[0].queue_max,
                r.bulk_bytes as f64 * 8e-6 / (r.duration as f64 / 1e9),
                r.flows.iter().map(|f| f.delivered_bytes / 1000).collect::<Vec<_>>(),
                t.elapsed().as_secs_f64()
            );
            if std::env::var("LATE").is_ok() {
                for b in r.blocks.iter().filter(|b| !b.on_time()) {
                    println!(
                        "  {} p{} size {} first {:?} last {:?} complete {:?} {:?} good {} sent {} resent {}",
                        b.handed_over as f64 / 1e6,
                        b.priority,
                        b.size,
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
        if e.head.seeds > 1 {
            println!("== mean {:.4}", sum / e.head.seeds as f64);
        }
    }
}
