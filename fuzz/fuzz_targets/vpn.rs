//! What comes to a VPN from a far side: the words, and the headers of the packets in them. What is read can be said again; what is to be cut is cut into packets that
//! can be read; and a mark keeps a packet one.

#![no_main]

use punctual_gateway::vpn::{
    packet::{LARGEST, Packet, mark_ce},
    segment::{Rest, finish, is_sound},
    wire::Word,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(word)) = Word::decode(bytes::Bytes::copy_from_slice(bytes)) else { return };
    assert_eq!(Word::decode(word.encode()), Ok(Some(word.clone())));
    let Word::Packet { packet: bytes, rest } = word else { return };
    let Ok(packet) = Packet::parse(&bytes) else { return };
    assert!(packet.payload_at() <= bytes.len() && bytes.len() <= LARGEST + 40);
    let mut marked = bytes.to_vec();
    mark_ce(&mut marked);
    assert_eq!(Packet::parse(&marked).map(|marked| marked.payload_at()), Ok(packet.payload_at()));
    let mut count = 0;
    finish(&bytes, &packet, rest, |segment| {
        count += 1;
        let Ok(of) = Packet::parse(&segment) else { panic!("{segment:?} of {bytes:?}") };
        assert_eq!((of.source, of.destination, of.ports), (packet.source, packet.destination, packet.ports));
    });
    assert_eq!(count > 0, is_sound(&packet, bytes.len(), rest), "{rest:?}");
    assert!(rest != Rest::Nothing || count == 1);
});
