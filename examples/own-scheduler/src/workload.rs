//! `kind = "sensors"`: readings at regular intervals, and with some of them a picture of what is going on.

use std::error::Error;

use punctual_eval::{
    units::{Share, Size, Time},
    workload::{Asked, OwnBlock},
};
use serde::Deserialize;

/// The kind's own keys in a `[[workload]]` table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Keys {
    /// From one reading to the next.
    every: Time,
    /// Of a reading.
    reading: Size,
    /// Of a picture.
    picture: Size,
    /// How many readings have one.
    share: Share,
}

/// Readings have the source's priority, pictures the one below. A picture is of no use without its reading.
pub fn sensors(asked: &Asked<'_>) -> Result<Vec<OwnBlock>, Box<dyn Error + Send + Sync>> {
    let keys: Keys = asked.keys()?;
    if keys.every.0.is_zero() {
        return Err("`every` has to be above zero".into());
    }
    let mut random = asked.seed;
    let mut blocks = Vec::new();
    let mut at = std::time::Duration::ZERO;
    while at < asked.length {
        let reading = blocks.len() as u32;
        blocks.push(OwnBlock::new(at, keys.reading.0.try_into()?));
        if uniform(&mut random) < keys.share.0 {
            let size = keys.picture.0.try_into()?;
            blocks.push(OwnBlock { priority: Some(1), depends_on: vec![reading], ..OwnBlock::new(at, size) });
        }
        at += keys.every.0;
    }
    Ok(blocks)
}

/// A number from 0 to 1 (SplitMix64): the same seed gives the same blocks, on every machine.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as f64 / 2f64.powi(64)
}
