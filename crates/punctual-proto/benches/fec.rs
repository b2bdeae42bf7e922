//! What redundancy costs: a group of `m` symbols of 1,200 bytes and `n` repairs, coded and restored, beside the library that does the sums,
//! called directly. Throughput is that of the symbols.
//!
//! `restore k` is with k of the symbols lost.
//!
//! `cargo bench -p punctual-proto --features fuzzing --bench fec`

#![allow(missing_docs)] // of what criterion's macros make

use std::{hint::black_box, time::Duration};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use punctual_proto::fuzzing::CodedGroup;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Bytes of a symbol.
const SYMBOL: usize = 1_200;
/// Bytes of its shard.
const SHARD: usize = SYMBOL + 2;

fn groups(criterion: &mut Criterion) {
    for (m, n) in [(1, 1), (4, 1), (8, 3), (20, 4), (64, 16)] {
        let mut group = criterion.benchmark_group(format!("{m}+{n}"));
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(1_000)).sample_size(20);
        group.throughput(Throughput::Bytes((m * SYMBOL) as u64));
        let symbols: Vec<_> = (0..m).map(|i| Bytes::from(vec![i as u8 ^ 0x5a; SYMBOL])).collect();
        let mut coded = CodedGroup::new(symbols, n);
        group.bench_function("encode", |bencher| bencher.iter(|| black_box(coded.encode())));
        for lost in [1, n] {
            group.bench_function(format!("restore {lost}"), |bencher| bencher.iter(|| black_box(coded.restore(lost))));
            if n == 1 {
                break;
            }
        }

        let shards: Vec<_> = (0..m).map(|i| vec![i as u8 ^ 0x5a; SHARD]).collect();
        let mut encoder = ReedSolomonEncoder::new(m, n, SHARD).expect("the library has this size");
        let mut encode = || -> Vec<Vec<u8>> {
            shards.iter().for_each(|shard| encoder.add_original_shard(shard).expect("it is of this size"));
            encoder.encode().expect("all are there").recovery_iter().map(<[u8]>::to_vec).collect()
        };
        let repairs = encode();
        group.bench_function("encode, library", |bencher| bencher.iter(|| black_box(encode())));
        let mut decoder = ReedSolomonDecoder::new(m, n, SHARD).expect("the library has this size");
        for lost in [1, n] {
            let mut restore = || -> Vec<Vec<u8>> {
                let sources = shards.iter().enumerate().skip(lost);
                sources.for_each(|(i, shard)| decoder.add_original_shard(i, shard).expect("it is of this size"));
                let repairs = repairs.iter().enumerate().take(lost);
                repairs.for_each(|(i, shard)| decoder.add_recovery_shard(i, shard).expect("it is of this size"));
                let restored = decoder.decode().expect("there are enough");
                restored.restored_original_iter().map(|(_, shard)| shard.to_vec()).collect()
            };
            group.bench_function(format!("restore {lost}, library"), |bencher| bencher.iter(|| black_box(restore())));
            if n == 1 {
                break;
            }
        }
        group.finish();
    }
}

criterion_group!(benches, groups);
criterion_main!(benches);
