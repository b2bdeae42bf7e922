//! Blocks that no session takes as they are: larger than the receiver allows, say.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual::SendError;

use crate::{exit::Failure, say::say};

/// Those so far. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftOut(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    blocks: u64,
    /// Why the first of them was.
    first: Option<String>,
}

/// Blocks of which each is told with a line. Of an input without end in which none can be sent, all would be.
const TOLD: u64 = 10;

impl LeftOut {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block at this position of the input, from 0, is left out.
    pub(crate) fn note(&self, position: u64, why: &SendError) {
        let why = match why {
            SendError::TooManyChannels => {
                "its channel is one more than the session may have (channel=NUMBER; `punctual recv` takes 256)"
                    .to_owned()
            }
            why => why.to_string(),
        };
        let words = format!("block {} is left out: {why}", position + 1);
        let mut books = self.lock();
        books.blocks += 1;
        if books.blocks <= TOLD {
            say!("punctual: {words}");
        }
        if books.blocks == TOLD {
            say!("punctual: of more that are left out nothing is said before the end");
        }
        books.first.get_or_insert(words);
    }

    /// How many.
    pub(crate) fn blocks(&self) -> u64 {
        self.lock().blocks
    }

    /// That there were any, at the end.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let books = self.lock();
        let first = books.first.as_ref()?;
        Some(Failure::Usage(match books.blocks {
            1 => first.clone(),
            blocks => format!("{blocks} blocks are left out; {first}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_is_named() {
        let left_out = LeftOut::default();
        assert!(left_out.failure().is_none());
        left_out.note(6, &SendError::TooLarge { size: 2_000, limit: 1_000 });
        let told = |left_out: &LeftOut| left_out.failure().map(|failure| (failure.code(), failure.to_string()));
        let first = "block 7 is left out: a block of 2000 bytes exceeds the limit of 1000";
        assert_eq!(told(&left_out), Some((2, first.to_owned())));
        left_out.note(9, &SendError::TooManyChannels);
        assert_eq!(told(&left_out), Some((2, format!("2 blocks are left out; {first}"))));
        assert_eq!(left_out.blocks(), 2);
    }
}
