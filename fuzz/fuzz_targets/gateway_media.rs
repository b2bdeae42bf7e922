//! What programs send, as RTP and as an MPEG transport stream: the first byte says in how many datagrams.

#![no_main]

use punctual_gateway::media::{Codec, FrameSet, Packet, TransportStream};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&size, rest)) = bytes.split_first() else { return };
    let (mut stream, mut frames) = (TransportStream::default(), FrameSet::default());
    for (number, datagram) in rest.chunks(usize::from(size).max(1)).enumerate() {
        for codec in [None, Some(Codec::H264), Some(Codec::H265)] {
            if let Some(packet) = Packet::parse(datagram) {
                let (_, before) = frames.next(&packet, codec);
                assert!(before.is_none_or(|before| before <= number));
                frames.named(number);
            }
        }
    }
    // Packets of a stream have one size.
    for packets in rest.chunks(7 * 188) {
        let mut whole = packets.to_vec();
        whole.resize(whole.len().next_multiple_of(188), 0xff);
        whole.iter_mut().step_by(188).for_each(|sync| *sync = 0x47);
        assert!(stream.weigh(&whole).is_some());
        let _ = stream.weigh(packets);
    }
});
