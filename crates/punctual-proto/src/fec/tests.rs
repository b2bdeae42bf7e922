use proptest::{collection::vec, prelude::*, sample::subsequence};

use super::*;

/// The code as `docs/protocol.md` describes it, with nothing of the library's.
mod reference {
    /// The coordinates in which a field element is written: bit i stands for this polynomial over GF(2).
    const BASIS: [u16; 16] = [
        0x0001, 0xacca, 0x3c0e, 0x163e, 0xc582, 0xed2e, 0x914c, 0x4012, 0x6c98, 0x10d8, 0x6a72, 0xb900, 0xfdb8, 0xfb34,
        0xff38, 0x991e,
    ];
    /// x^16 + x^5 + x^3 + x^2 + 1.
    const MODULUS: u32 = 0x1002d;

    fn to_polynomial(element: u16) -> u32 {
        (0..16).filter(|bit| element >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u32::from(BASIS[bit]))
    }

    fn polynomial_product(a: u32, b: u32) -> u32 {
        let product = (0..16).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ a << bit);
        (16..32).rev().fold(product, |rest, bit| if rest >> bit & 1 == 1 { rest ^ MODULUS << (bit - 16) } else { rest })
    }

    /// Logarithms and powers of the polynomial x, by element.
    pub(super) struct Field {
        log: Vec<u32>,
        exp: Vec<u16>,
    }

    impl Field {
        pub(super) fn new() -> Self {
            let mut element_of = vec![0; 1 << 16];
            for element in 0..=u16::MAX {
                element_of[to_polynomial(element) as usize] = element;
            }
            let (mut log, mut exp) = (vec![0; 1 << 16], Vec::new());
            let mut power = 1;
            for exponent in 0..65_535 {
                log[usize::from(element_of[power as usize])] = exponent;
                exp.push(element_of[power as usize]);
                power = reduce(power << 1);
            }
            Self { log, exp }
        }

        pub(super) fn product(&self, a: u16, b: u16) -> u16 {
            if a == 0 || b == 0 {
                return 0;
            }
            self.exp[((self.log[usize::from(a)] + self.log[usize::from(b)]) % 65_535) as usize]
        }

        fn quotient(&self, a: u16, b: u16) -> u16 {
            assert_ne!(b, 0);
            if a == 0 {
                return 0;
            }
            self.exp[((self.log[usize::from(a)] + 65_535 - self.log[usize::from(b)]) % 65_535) as usize]
        }

        /// What source `i` of `m` counts for in repair `j` of `n`.
        pub(super) fn weight(&self, m: u16, n: u16, i: u16, j: u16) -> u16 {
            let (p, q) = (m.next_power_of_two(), n.next_power_of_two());
            let (block, source, repair) = if p < q || p == q && m > n { (p, i, p + j) } else { (q, q + i, j) };
            let first = source / block * block;
            (first..first + block)
                .filter(|&point| point != source)
                .fold(1, |weight, point| self.product(weight, self.quotient(repair ^ point, source ^ point)))
        }
    }

    fn reduce(value: u32) -> u32 {
        if value >> 16 == 1 { value ^ MODULUS } else { value }
    }

    /// The elements of a shard.
    pub(super) fn elements(shard: &[u8]) -> Vec<u16> {
        let pairs = |part: &[u8]| -> Vec<u16> {
            let (low, high) = part.split_at(part.len() / 2);
            low.iter().zip(high).map(|(&low, &high)| u16::from_le_bytes([low, high])).collect()
        };
        shard.chunks(64).flat_map(pairs).collect()
    }

    #[test]
    fn the_field_is_one() {
        let field = Field::new();
        for (a, b) in [(2, 3), (0xacca, 0x163e), (u16::MAX, 0x8001)] {
            let product = polynomial_product(to_polynomial(a), to_polynomial(b));
            assert_eq!(to_polynomial(field.product(a, b)), product);
        }
    }
}

fn bytes(symbols: &[Vec<u8>]) -> Vec<Bytes> {
    symbols.iter().map(|symbol| Bytes::copy_from_slice(symbol)).collect()
}

fn any_symbols(max: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 0..150), 1..=max)
}

/// Symbols, how many repairs, and which m of the m + n shards come, in which order.
fn any_loss() -> impl Strategy<Value = (Vec<Vec<u8>>, usize, Vec<usize>)> {
    let sizes = prop_oneof![4 => (1..12_usize, 1..12_usize), 1 => (1..=MAX_SOURCES, 1..=MAX_REPAIRS)];
    sizes.prop_flat_map(|(m, n)| {
        let come = subsequence((0..m + n).collect::<Vec<_>>(), m).prop_shuffle();
        (vec(vec(any::<u8>(), 0..150), m), Just(n), come)
    })
}

#[test]
fn shards_are_even_and_hold_the_length() {
    assert_eq!([0, 1, 2, 1_199].map(shard_len), [2, 4, 4, 1_202]);
    assert!(is_shard_len(2) && !is_shard_len(0) && !is_shard_len(3));
    let mut shard = Vec::new();
    put_shard(&mut shard, b"abc", 6);
    assert_eq!(shard, [0, 3, b'a', b'b', b'c', 0]);
    assert_eq!(symbol_of(&shard), Ok(&b"abc"[..]));
    for bad in [&[][..], &[0], &[0, 1], &[0, 3, 1, 2], &[0xff, 0xff, 0, 0], &[0, 1, 7, 1]] {
        assert_eq!(symbol_of(bad), Err(ProtocolError::Repair), "{bad:02x?}");
    }
}

#[test]
fn one_symbol_is_sent_again_and_one_repair_is_the_sum() {
    let mut encoder = Encoder::new();
    for repairs in encoder.encode(&[Bytes::from_static(b"abc")], 3) {
        assert_eq!(repairs, [0, 3, b'a', b'b', b'c', 0][..]);
    }
    let sum = encoder.encode(&[Bytes::from_static(b"abc"), Bytes::from_static(b"d")], 1);
    assert_eq!(sum, [&[0, 3 ^ 1, b'a' ^ b'd', b'b', b'c', 0][..]]);
}

#[test]
fn the_largest_groups() {
    let symbols: Vec<_> = (0..MAX_SOURCES).map(|i| Bytes::from(vec![i as u8; 9])).collect();
    let repairs = Encoder::new().encode(&symbols, MAX_REPAIRS);
    let code = Code { sources: MAX_SOURCES, repairs: MAX_REPAIRS, shard_len: shard_len(9) };
    // All repairs and the last source.
    let source = std::iter::once((MAX_SOURCES - 1, &symbols[MAX_SOURCES - 1][..]));
    let restored = code.restore(source, repairs.iter().map(|shard| &shard[..]).enumerate()).unwrap();
    assert_eq!(restored, symbols[..MAX_SOURCES - 1]);
}

#[test]
fn nonsense_is_refused() {
    let none = || std::iter::empty::<(usize, &[u8])>();
    let code = Code { sources: 2, repairs: 2, shard_len: 4 };
    let refused = Err(ProtocolError::Repair);
    let shard = &[0, 1, 7, 0][..];
    assert_eq!(code.restore(none(), none()), refused, "nothing");
    assert_eq!(code.restore(none(), [(0, shard)].into_iter()), refused, "not enough");
    assert_eq!(code.restore(none(), [(0, shard), (0, shard)].into_iter()), refused, "twice the same");
    assert_eq!(code.restore(none(), [(0, shard), (2, shard)].into_iter()), refused, "one too many");
    assert_eq!(code.restore(none(), [(0, shard), (1, &[0, 0][..])].into_iter()), refused, "shorter");
    assert_eq!(code.restore([(2, &[][..])].into_iter(), [(0, shard)].into_iter()), refused, "no such source");
    assert_eq!(code.restore([(0, &[1, 2, 3][..])].into_iter(), [(0, shard)].into_iter()), refused, "longer");
    for (sources, repairs, shard_len) in [(0, 1, 4), (1, 0, 4), (2, 1, 0), (2, 1, 5), (70_000, 2, 4)] {
        let code = Code { sources, repairs, shard_len };
        assert_eq!(code.restore(none(), none()), refused, "{code:?}");
    }
}

#[test]
fn repairs_are_what_the_protocol_says() {
    let field = reference::Field::new();
    for (m, n) in
        [(1, 1), (1, 4), (2, 1), (5, 1), (2, 2), (3, 2), (2, 3), (3, 3), (3, 4), (4, 3), (9, 5), (5, 9), (20, 4)]
    {
        // Longer than a chunk of 64 bytes, with a rest.
        let symbols: Vec<_> = (0..m).map(|i| Bytes::from(vec![11 * i as u8 + 1; 60 + 5 * i])).collect();
        let len = shard_len(60 + 5 * (m - 1));
        let shards = symbols.iter().map(|symbol| {
            let mut shard = Vec::new();
            put_shard(&mut shard, symbol, len);
            reference::elements(&shard)
        });
        let shards: Vec<_> = shards.collect();
        for (j, repair) in Encoder::new().encode(&symbols, n).iter().enumerate() {
            let mut expected = vec![0; len / 2];
            for (i, shard) in shards.iter().enumerate() {
                let weight = field.weight(m as u16, n as u16, i as u16, j as u16);
                expected.iter_mut().zip(shard).for_each(|(sum, &x)| *sum ^= field.product(weight, x));
            }
            assert_eq!(reference::elements(repair), expected, "repair {j} of {n} for {m}");
        }
    }
}

proptest! {
    #[test]
    fn any_m_of_the_shards_restore_all((symbols, n, come) in any_loss()) {
        let m = symbols.len();
        let symbols = bytes(&symbols);
        let repairs = Encoder::new().encode(&symbols, n);
        prop_assert_eq!(repairs.len(), n);
        let shard_len = repairs[0].len();
        let code = Code { sources: m, repairs: n, shard_len };
        let sources = come.iter().filter(|&&at| at < m).map(|&at| (at, &symbols[at][..]));
        let shards = come.iter().filter(|&&at| at >= m).map(|&at| (at - m, &repairs[at - m][..]));
        let restored = code.restore(sources, shards).unwrap();
        let missing: Vec<_> = (0..m).filter(|at| !come.contains(at)).map(|at| symbols[at].clone()).collect();
        prop_assert_eq!(restored, missing);
    }

    #[test]
    fn an_encoder_serves_any_group_after_any_other(groups in vec((any_symbols(20), 1..20_usize), 1..6)) {
        let mut encoder = Encoder::new();
        for (symbols, n) in groups {
            let symbols = bytes(&symbols);
            prop_assert_eq!(encoder.encode(&symbols, n), Encoder::new().encode(&symbols, n));
        }
    }

    #[test]
    fn arbitrary_shards_do_no_harm(
        (m, n) in (1..=MAX_SOURCES, 1..=MAX_REPAIRS),
        len in (1..40_usize).prop_map(|half| 2 * half),
        byte: u8,
        seed in vec(any::<u8>(), 1..100),
    ) {
        let shard: Vec<u8> = seed.iter().copied().cycle().take(len).collect();
        let sources = (n..m).map(|at| (at, &shard[..(len - 2).min(byte.into())]));
        let repairs = (0..n).map(|at| (at, &shard[..]));
        if let Ok(symbols) = (Code { sources: m, repairs: n, shard_len: len }).restore(sources, repairs) {
            prop_assert_eq!(symbols.len(), m.min(n));
            prop_assert!(symbols.iter().all(|symbol| symbol.len() + LENGTH_PREFIX <= len));
        }
    }
}
