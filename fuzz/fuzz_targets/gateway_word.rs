//! What a far gateway says: whatever is read can be said again, and means the same.

#![no_main]

use punctual_gateway::tunnel::wire::Word;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(word)) = Word::decode(bytes::Bytes::copy_from_slice(bytes)) {
        assert_eq!(Word::decode(word.encode()), Ok(Some(word)));
    }
});
