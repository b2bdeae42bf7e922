//! Measures how long blocks take over loopback: `cargo run --release --example latency [blocks] [size] [interval in µs]`.
//!
//! An echo: the server sends every block back, so that one clock sees both ends.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use punctual::{Block, Endpoint, Identity};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let blocks = arguments.next().transpose()?.unwrap_or(2_000);
    let size = arguments.next().transpose()?.unwrap_or(1_000);
    let interval = Duration::from_micros(arguments.next().transpose()?.unwrap_or(2_000));

    let identity = Identity::self_signed(["localhost"])?;
    let fingerprint = identity.fingerprint();
    let server = Endpoint::server(identity).bind("127.0.0.1".parse()?).build()?;
    let address = server.local_address();
    tokio::spawn(async move {
        while let Some(session) = server.accept().await {
            tokio::spawn(async move {
                while let Ok(block) = session.recv().await {
                    if session.send(Block::new(block.data)).await.is_err() {
                        break;
                    }
                }
            });
        }
    });

    let client = Endpoint::client().trust(fingerprint).bind("127.0.0.1".parse()?).build()?;
    let session = client.connect(address, "localhost").await?;
    let start = Instant::now();
    let sender = async {
        for n in 0..blocks {
            let due = start + interval * u32::try_from(n)?;
            tokio::time::sleep_until(due.into()).await;
            let mut data = vec![0; usize::try_from(size)?.max(8)];
            data[..8].copy_from_slice(&u64::try_from(start.elapsed().as_nanos())?.to_be_bytes());
            // The outcome is seen by the echo.
            drop(session.send(Block::new(data).deadline(Duration::from_secs(1))).await?);
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let receiver = async {
        let mut trips = Vec::new();
        while (trips.len() as u64) < blocks {
            let block = session.recv().await?;
            let sent = block.data.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).ok_or("a short block")?;
            trips.push(start.elapsed().saturating_sub(Duration::from_nanos(sent)));
        }
        Ok::<_, Box<dyn Error>>(trips)
    };
    let ((), mut trips) = tokio::try_join!(sender, receiver)?;
    let elapsed = start.elapsed();
    trips.sort_unstable();
    let at = |share: f64| trips[((trips.len() - 1) as f64 * share) as usize];
    println!("{blocks} blocks of {size} bytes there and back in {elapsed:.2?}");
    println!("p50 {:.1?}  p90 {:.1?}  p99 {:.1?}  max {:.1?}", at(0.5), at(0.9), at(0.99), at(1.0));
    session.finish(Duration::from_secs(1)).await;
    client.wait_idle().await;
    Ok(())
}
