//! What has come for a TCP connection, and waits for its program to read it.

use std::{collections::VecDeque, sync::Mutex};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::lock;

/// Fewer bytes than this are copied behind each other: by themselves each lot would hold the block that it came in, so that a connection of single bytes took a hundred
/// times what it was granted.
const FEW: usize = 2_048;
/// But no more than this: they are let go of at once.
const TOGETHER: usize = 65_536;

/// Bytes that have come for a connection, in order, and whether they were all. How many there may be is for whoever grants them to say.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    whole: VecDeque<Bytes>,
    /// What came behind these.
    few: BytesMut,
    finished: bool,
}

impl Inbox {
    /// More has come.
    pub(super) fn push(&self, data: Bytes) {
        let mut waiting = lock(&self.waiting);
        if data.len() >= FEW || waiting.few.len() + data.len() > TOGETHER {
            let few = waiting.few.split().freeze();
            waiting.whole.extend(Some(few).filter(|few| !few.is_empty()));
        }
        if data.len() >= FEW {
            waiting.whole.push_back(data);
        } else {
            waiting.few.extend_from_slice(&data);
        }
        self.more.notify_one();
    }

    /// That was all.
    pub(super) fn finish(&self) {
        lock(&self.waiting).finished = true;
        self.more.notify_one();
    }

    /// What comes next; nothing once it was all. One task only may wait for it.
    pub(super) async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut waiting = lock(&self.waiting);
                if let Some(data) = waiting.whole.pop_front() {
                    return Some(data);
                }
                if !waiting.few.is_empty() {
                    return Some(waiting.few.split().freeze());
                }
                if waiting.finished {
                    return None;
                }
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_bytes_come_in_order_and_then_the_end() {
        let inbox = Inbox::default();
        let all: Vec<u8> = (0..400_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut rest, mut size) = (&all[..], 1);
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(size.min(rest.len()));
            inbox.push(Bytes::copy_from_slice(next));
            (rest, size) = (behind, size * 7 % 5_003);
        }
        inbox.finish();
        let mut came = Vec::new();
        while let Some(data) = inbox.next().await {
            came.extend_from_slice(&data);
        }
        assert!(came == all);
        assert_eq!(inbox.next().await, None);
    }

    #[test]
    fn single_bytes_and_none_take_no_more_than_they_are() {
        let inbox = Inbox::default();
        let block = Bytes::from(vec![7; 100_000]);
        for _ in 0..1_000_000 {
            inbox.push(Bytes::new());
        }
        for n in 0..100_000 {
            inbox.push(block.slice(n..n + 1));
        }
        let waiting = lock(&inbox.waiting);
        let held = waiting.whole.iter().map(Bytes::len).sum::<usize>() + waiting.few.capacity();
        assert!(waiting.whole.len() <= 2 && held <= 300_000, "{} pieces, {held} bytes", waiting.whole.len());
        drop(waiting);
        assert!(block.try_into_mut().is_ok(), "nothing holds what it came in");
    }
}
