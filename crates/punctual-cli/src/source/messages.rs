//! What is no video: bytes in chunks, lines, messages behind their lengths.

use std::{
    io::{self, BufRead as _, Read as _},
    path::Path,
};

use super::{MAX_PIECE, Piece, Take, header, input::Input, input::READ};
use crate::exit::Failure;

/// Cuts the input into pieces of `size` bytes; the last may be shorter.
pub(super) fn chunks(input: Input, size: usize, take: Take<'_>) -> Result<(), Failure> {
    let name = input.name.clone();
    let mut input = input.timed();
    let mut read = || -> io::Result<_> {
        let begun = input.next_came()?;
        let mut data = Vec::with_capacity(size.min(READ));
        input.by_ref().take(size as u64).read_to_end(&mut data)?;
        Ok((begun, data))
    };
    loop {
        let (begun, data) = read().map_err(|error| Input::unreadable(&name, error))?;
        if data.is_empty() || !take(Piece { begun, ..Piece::plain(data) }) {
            return Ok(());
        }
    }
}

/// A piece for each line, its end included.
pub(super) fn lines(input: Input, take: Take<'_>) -> Result<(), Failure> {
    let name = input.name.clone();
    let mut input = input.timed();
    let mut read = || -> io::Result<_> {
        let begun = input.next_came()?;
        let mut line = Vec::new();
        input.by_ref().take(MAX_PIECE as u64 + 1).read_until(b'\n', &mut line)?;
        if line.len() <= MAX_PIECE {
            return Ok(Piece { begun, ..Piece::plain(line) });
        }
        let rest = if line.ends_with(b"\n") { 0 } else { input.skip_until(b'\n')? };
        Ok(Piece { begun, ..Piece::too_long((line.len() + rest) as u64) })
    };
    loop {
        let piece = read().map_err(|error| Input::unreadable(&name, error))?;
        let is_end = piece.data.is_empty() && piece.too_long.is_none();
        if is_end || !take(piece) {
            return Ok(());
        }
    }
}

/// A piece for each message behind 4 bytes of its length; with `headers`, behind a line of what is to hold for it alone.
pub(super) fn framed(input: Input, headers: bool, take: Take<'_>) -> Result<(), Failure> {
    let name = input.name.clone();
    let unreadable = |error| Input::unreadable(&name, error);
    let mut input = input.timed();
    for number in 0.. {
        let begun = input.next_came().map_err(unreadable)?;
        let header = if headers {
            let mut line = Vec::new();
            input.by_ref().take(header::MAX_LINE as u64 + 1).read_until(b'\n', &mut line).map_err(unreadable)?;
            if line.is_empty() {
                return Ok(());
            }
            let misread = |error| Failure::Usage(format!("{}: message {}: {error}", name.display(), number + 1));
            header::parse(&line, number).map_err(misread)?
        } else {
            header::Header::default()
        };
        let mut head = Vec::new();
        input.by_ref().take(4).read_to_end(&mut head).map_err(unreadable)?;
        let length = match head[..] {
            [] if !headers => return Ok(()),
            [a, b, c, d] => u32::from_be_bytes([a, b, c, d]) as usize,
            _ => return Err(cut_short(&name)),
        };
        let piece = if length > MAX_PIECE {
            let skipped = io::copy(&mut input.by_ref().take(length as u64), &mut io::sink()).map_err(unreadable)?;
            if skipped < length as u64 {
                return Err(beyond(&name, number + 1, length));
            }
            Piece::too_long(skipped)
        } else {
            let mut message = Vec::new();
            input.by_ref().take(length as u64).read_to_end(&mut message).map_err(unreadable)?;
            if message.len() < length {
                return Err(cut_short(&name));
            }
            Piece::plain(message)
        };
        let header::Header { own, dependencies } = header;
        if !take(Piece { begun, own, dependencies, ..piece }) {
            return Ok(());
        }
    }
    Ok(())
}

/// Whoever reads what is no message finds lengths like this.
fn beyond(name: &Path, number: u64, length: usize) -> Failure {
    let (name, most) = (name.display(), MAX_PIECE >> 20);
    Failure::Usage(format!(
        "{name}: message {number} would have {length} bytes, more than {most} MiB and than there are"
    ))
}

fn cut_short(name: &Path) -> Failure {
    Failure::Usage(format!("{}: the input ends in the middle of a message", name.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual::Channel;

    use super::*;
    use crate::source::{Cut, tests::read};

    fn data(pieces: Vec<Piece>) -> Vec<Vec<u8>> {
        pieces.into_iter().map(|piece| piece.data.to_vec()).collect()
    }

    #[test]
    fn chunks_are_of_a_size_but_for_the_last() {
        assert_eq!(data(read(Cut::Chunks(3), b"abcdefgh").unwrap()), [&b"abc"[..], b"def", b"gh"]);
    }

    #[test]
    fn lines_keep_their_ends() {
        assert_eq!(data(read(Cut::Lines, b"one\n\ntwo").unwrap()), [&b"one\n"[..], b"\n", b"two"]);
    }

    #[test]
    fn messages_lose_their_lengths() {
        let input = [&[0, 0, 0, 3][..], b"one", &[0, 0, 0, 0], &[0, 0, 0, 2], b"ab"].concat();
        let framed = |input: &[u8]| read(Cut::Framed { headers: false }, input);
        assert_eq!(data(framed(&input).unwrap()), [&b"one"[..], b"", b"ab"], "an empty one is one, too");
        for bad in [&input[..2], &input[..6]] {
            assert_eq!(framed(bad).unwrap_err().code(), 2);
        }
        let misread = framed(&[255; 8]).unwrap_err().to_string();
        assert!(misread.contains("message 1 would have 4294967295 bytes, more than 16 MiB"), "{misread}");
    }

    #[test]
    fn what_is_too_long_is_skipped_and_counts() {
        let sizes = |pieces: Result<Vec<Piece>, Failure>| {
            let size = |piece: Piece| (piece.data.len(), piece.too_long);
            pieces.unwrap().into_iter().map(size).collect::<Vec<_>>()
        };
        let long = MAX_PIECE + 1;
        let message = |size: usize| [&(size as u32).to_be_bytes()[..], &vec![b'x'; size]].concat();
        let input = [message(3), message(long), message(MAX_PIECE), message(2)].concat();
        let told = [(3, None), (0, Some(long as u64)), (MAX_PIECE, None), (2, None)];
        assert_eq!(sizes(read(Cut::Framed { headers: false }, &input)), told);
        for (before, end) in [(long - 1, &b"\n"[..]), (long - 1, b""), (long, b""), (long + 5_000, b"\n")] {
            let input = [&b"one\n"[..], &vec![b'x'; before], end].concat();
            let size = before + end.len();
            let last = if size < long { (size, None) } else { (0, Some(size as u64)) };
            assert_eq!(sizes(read(Cut::Lines, &input)), [(4, None), last]);
            if end == b"\n" {
                let input = [&input[..], b"two"].concat();
                assert_eq!(sizes(read(Cut::Lines, &input)), [(4, None), last, (3, None)]);
            }
        }
    }

    #[test]
    fn messages_have_their_own_settings() {
        let input = b"priority=3 deadline=50ms\n\0\0\0\x02ab\n\0\0\0\x01cchannel=none needs=1,2\n\0\0\0\x00channel=7\n\0\0\0\x01d";
        let headers = |input: &[u8]| read(Cut::Framed { headers: true }, input);
        let pieces = headers(input).unwrap();
        assert_eq!(data(pieces.clone()), [&b"ab"[..], b"c", b"", b"d"]);
        assert_eq!((pieces[0].own.priority, pieces[0].own.deadline), (Some(3), Some(Some(Duration::from_millis(50)))));
        assert_eq!(pieces[1].own, super::super::Own::default());
        assert_eq!((pieces[2].own.channel, &pieces[2].dependencies[..]), (Some(None), &[1, 0][..]));
        assert_eq!(pieces[3].own.channel, Some(Some(Channel(7))));
        for (bad, word) in [
            (&b"priority=3\n"[..], "in the middle of a message"),
            (b"priority=3\n\0\0\0\x05abc", "in the middle of a message"),
            (b"\n\0\0\0\x01aurgency=3\n", "message 2: there is no field `urgency`"),
            (&[7; 2000], "message 1: "),
        ] {
            let error = headers(bad).unwrap_err();
            assert!(error.code() == 2 && error.to_string().contains(word), "{error}");
        }
    }
}
