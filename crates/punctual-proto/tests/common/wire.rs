//! Punctual's frames, written by hand from `docs/protocol.md`: nothing here is shared with the crate under test.

use bytes::Buf;

/// A QUIC variable-length integer (RFC 9000, section 16), in its shortest form.
pub(crate) fn varint(value: u64) -> Vec<u8> {
    match value {
        0..=63 => vec![value as u8],
        64..=16_383 => (0x4000 | value as u16).to_be_bytes().to_vec(),
        16_384..=1_073_741_823 => (0x8000_0000 | value as u32).to_be_bytes().to_vec(),
        _ => (0xc000_0000_0000_0000 | value).to_be_bytes().to_vec(),
    }
}

fn read_varint(input: &mut &[u8]) -> u64 {
    let len = 1 << (input[0] >> 6);
    let value = input.get_uint(len);
    value & (u64::MAX >> (66 - 8 * len))
}

/// Frames one after the other.
pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// TIMESTAMP.
pub(crate) fn timestamp(sent: u32) -> Vec<u8> {
    join(&[&[0x01], &sent.to_be_bytes()])
}

/// ARRIVALS, of a single datagram.
pub(crate) fn arrival(path: u64, stamp: u32, received: u32) -> Vec<u8> {
    arrivals(path, &[(stamp, received)])
}

/// ARRIVALS of these stamps at these times, without marks.
pub(crate) fn arrivals(path: u64, list: &[(u32, u32)]) -> Vec<u8> {
    let (stamp, received) = list[0];
    let more = varint((list.len() as u64 - 1) << 1);
    let mut out = join(&[&[0x02], &varint(path), &stamp.to_be_bytes(), &received.to_be_bytes(), &more]);
    for pair in list.windows(2) {
        out.extend(zigzag(i64::from(pair[1].0.wrapping_sub(pair[0].0) as i32)));
        out.extend(varint(u64::from(pair[1].1.wrapping_sub(pair[0].1)) << 1));
    }
    out
}

/// BLOCK_INFO.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Info {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) age: u64,
    pub(crate) priority: u8,
    pub(crate) deadline: Option<u64>,
    pub(crate) place: Option<(u64, u64)>,
}

impl Info {
    pub(crate) fn new(id: u64, size: u64) -> Self {
        Self { id, size, age: 0, priority: 128, deadline: None, place: None }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let flags = u8::from(self.deadline.is_some()) | u8::from(self.place.is_some()) << 1;
        let mut out =
            join(&[&[0x10], &varint(self.id), &varint(self.size), &varint(self.age), &[flags, self.priority]]);
        out.extend(self.deadline.map(varint).unwrap_or_default());
        out.extend(self.place.map(|(channel, at)| join(&[&varint(channel), &varint(at)])).unwrap_or_default());
        out
    }
}

/// A number as zigzag has it.
fn zigzag(number: i64) -> Vec<u8> {
    varint(((number << 1) ^ (number >> 63)) as u64)
}

/// BLOCK, of which all but the place is like the block before, `ahead` and `older` than that.
pub(crate) fn block_alike(ahead: i64, older: i64, data: &[u8]) -> Vec<u8> {
    join(&[&[0x18], &zigzag(ahead), &zigzag(older), data])
}

/// FRAGMENT with a length.
pub(crate) fn fragment(id: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    join(&[&[0x13], &varint(id), &varint(offset), &varint(data.len() as u64), data])
}

/// FRAGMENT to the end of the datagram.
pub(crate) fn last_fragment(id: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    join(&[&[0x12], &varint(id), &varint(offset), data])
}

/// SOURCE.
pub(crate) fn source(group: u64, index: u8, life: u64) -> Vec<u8> {
    join(&[&[0x20], &varint(group), &[index], &varint(life)])
}

/// REPAIR; `code` is how many sources and repairs there are.
pub(crate) fn repair(group: u64, life: u64, code: (u8, u8), index: u8, shard: &[u8]) -> Vec<u8> {
    join(&[&[0x21], &varint(group), &varint(life), &[code.0, code.1, index], shard])
}

/// A symbol as a shard.
pub(crate) fn shard(symbol: &[u8], len: usize) -> Vec<u8> {
    let mut shard = join(&[&(symbol.len() as u16).to_be_bytes(), symbol]);
    shard.resize(len, 0);
    shard
}

/// The one repair of a group: the sum of its shards. It has the least length they may have.
pub(crate) fn sum_of(symbols: &[Vec<u8>]) -> Vec<u8> {
    let longest = symbols.iter().map(Vec::len).max().expect("a group has a symbol");
    let mut sum = vec![0; (2 + longest).next_multiple_of(2)];
    for symbol in symbols {
        let shard = shard(symbol, sum.len());
        sum.iter_mut().zip(shard).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// A frame of the control stream.
pub(crate) fn frame(frame_type: u64, payload: &[u8]) -> Vec<u8> {
    join(&[&varint(frame_type), &varint(payload.len() as u64), payload])
}

/// SETTINGS of any version, with any (id, value).
pub(crate) fn settings(version: u64, values: &[(u64, u64)]) -> Vec<u8> {
    let mut payload = varint(version);
    for &(id, value) in values {
        payload.extend(varint(id));
        payload.extend(varint(value));
    }
    frame(0x00, &payload)
}

/// How a control stream begins: its type, and SETTINGS.
pub(crate) fn hello(max_block_size: u64, receive_bytes: u64, receive_blocks: u64, channels: u64) -> Vec<u8> {
    let values = [(1, max_block_size), (2, receive_bytes), (3, receive_blocks), (4, channels)];
    join(&[&varint(0x50), &settings(1, &values)])
}

pub(crate) fn credit(bytes: u64, blocks: u64) -> Vec<u8> {
    frame(0x01, &join(&[&varint(bytes), &varint(blocks)]))
}

pub(crate) fn dropped(id: u64, reason: u8, size: u64, place: Option<(u64, u64)>) -> Vec<u8> {
    let mut payload = join(&[&varint(id), &[reason], &varint(size), &[u8::from(place.is_some())]]);
    if let Some((channel, position)) = place {
        payload.extend(varint(channel));
        payload.extend(varint(position));
    }
    frame(0x02, &payload)
}

/// DROPPED_LIST: for each run, how far it begins behind the end of the one before it, and how many blocks it has.
pub(crate) fn dropped_list(reason: u8, runs: &[(u64, u64)]) -> Vec<u8> {
    let runs: Vec<_> = runs.iter().map(|(ahead, count)| join(&[&varint(*ahead), &varint(*count)])).collect();
    frame(0x0a, &join(&[&[reason][..], &runs.concat()]))
}

pub(crate) fn completed(id: u64, at: u32, good_bytes: u64) -> Vec<u8> {
    frame(0x03, &join(&[&varint(id), &at.to_be_bytes(), &varint(good_bytes)]))
}

/// COMPLETED_LIST of these, at the same time.
pub(crate) fn completed_list(first: u64, at: u32, ahead: &[i64]) -> Vec<u8> {
    let mut payload = join(&[&varint(first), &at.to_be_bytes()]);
    ahead.iter().for_each(|&ahead| payload.extend(join(&[&zigzag(ahead), &zigzag(0)])));
    frame(0x08, &payload)
}

pub(crate) fn freed(id: u64, good_bytes: u64) -> Vec<u8> {
    frame(0x04, &join(&[&varint(id), &varint(good_bytes)]))
}

pub(crate) fn heard(bytes: u64) -> Vec<u8> {
    frame(0x09, &varint(bytes))
}

pub(crate) fn refused(id: u64) -> Vec<u8> {
    frame(0x05, &varint(id))
}

pub(crate) fn expect(id: u64, zigzag: u64) -> Vec<u8> {
    frame(0x06, &join(&[&varint(id), &varint(zigzag)]))
}

pub(crate) fn update(id: u64, priority: u8, deadline: u64) -> Vec<u8> {
    frame(0x07, &join(&[&varint(id), &[priority], &varint(deadline)]))
}

/// The frames of a control stream so far, behind its type: types and payloads.
pub(crate) fn read_control(mut stream: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let input = &mut stream;
    if input.is_empty() {
        return Vec::new();
    }
    assert_eq!(read_varint(input), 0x50, "the type of the control stream");
    let mut frames = Vec::new();
    while !input.is_empty() {
        let frame_type = read_varint(input);
        let len = read_varint(input) as usize;
        frames.push((frame_type, input[..len].to_vec()));
        input.advance(len);
    }
    frames
}

/// The numbers a payload is made of, where all of them are varints.
pub(crate) fn numbers(mut payload: &[u8]) -> Vec<u64> {
    let input = &mut payload;
    let mut numbers = Vec::new();
    while !input.is_empty() {
        numbers.push(read_varint(input));
    }
    numbers
}

/// A frame of a datagram that carries blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Timestamp(u32),
    /// Of so many datagrams.
    Arrivals(usize),
    Info {
        id: u64,
        size: u64,
    },
    Fragment {
        id: u64,
        offset: u64,
        len: usize,
    },
    Source {
        group: u64,
        index: u8,
    },
    Repair {
        group: u64,
        index: u8,
    },
}

/// Reads a datagram as `docs/protocol.md` says; panics at what it does not allow.
pub(crate) fn read_datagram(mut payload: &[u8]) -> Vec<Said> {
    let input = &mut payload;
    let mut said = Vec::new();
    while !input.is_empty() {
        match read_varint(input) {
            0x00 => {}
            0x01 => said.push(Said::Timestamp(input.get_u32())),
            0x02 => {
                let _path = read_varint(input);
                input.advance(8);
                let more = read_varint(input) >> 1;
                for _ in 0..more * 2 {
                    read_varint(input);
                }
                said.push(Said::Arrivals(more as usize + 1));
            }
            0x10 => {
                assert!(said.iter().any(|said| matches!(said, Said::Timestamp(_))), "an age needs a TIMESTAMP");
                let (id, size, _age) = (read_varint(input), read_varint(input), read_varint(input));
                let (flags, _priority) = (input.get_u8(), input.get_u8());
                for _ in 0..flags & 1 {
                    assert_ne!(read_varint(input), 0, "a deadline of nothing");
                }
                for _ in 0..(flags >> 1 & 1) * 2 {
                    read_varint(input);
                }
                said.push(Said::Info { id, size });
            }
            frame_type @ 0x18..=0x1f => {
                assert!(said.iter().any(|said| matches!(said, Said::Timestamp(_))), "an age needs a TIMESTAMP");
                let before = said.iter().rev().find_map(|said| match said {
                    Said::Info { id, size } => Some((*id, *size)),
                    _ => None,
                });
                let difference = read_varint(input);
                let difference = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
                let id = before.map_or(0, |(id, _)| id).checked_add_signed(difference).expect("an id");
                let _age = read_varint(input);
                let size = match frame_type & 1 {
                    0 => before.expect("a block to be alike").1,
                    _ => read_varint(input),
                };
                if frame_type & 2 != 0 {
                    let (_priority, _deadline) = (input.get_u8(), read_varint(input));
                } else {
                    assert!(before.is_some(), "a block to be alike");
                }
                for _ in 0..(frame_type >> 2 & 1) * 2 {
                    read_varint(input);
                }
                input.advance(size as usize);
                said.push(Said::Info { id, size });
                said.push(Said::Fragment { id, offset: 0, len: size as usize });
            }
            frame_type @ (0x12 | 0x13) => {
                let (id, offset) = (read_varint(input), read_varint(input));
                let len = if frame_type == 0x13 { read_varint(input) as usize } else { input.len() };
                input.advance(len);
                said.push(Said::Fragment { id, offset, len });
            }
            0x20 => {
                assert_eq!(said, [], "SOURCE comes first");
                let (group, index) = (read_varint(input), input.get_u8());
                let _life = read_varint(input);
                said.push(Said::Source { group, index });
            }
            0x21 => {
                let (group, _life) = (read_varint(input), read_varint(input));
                let (sources, repairs, index) = (input.get_u8(), input.get_u8(), input.get_u8());
                assert!(
                    (1..=128).contains(&sources) && index < repairs && repairs <= 127 && input.len().is_multiple_of(2)
                );
                input.advance(input.len());
                said.push(Said::Repair { group, index });
            }
            other => panic!("frame type {other:#x}"),
        }
    }
    said
}
