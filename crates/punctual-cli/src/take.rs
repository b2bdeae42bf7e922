//! Takes in what the peer sends, and writes it away.

use punctual::{CloseReason, Session};

use crate::{exit::Failure, sink::Sink, stats::Tally};

/// When there is nothing more to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Once the peer has closed the session in peace.
    Closed,
    /// Once the peer has said that it has no more, or has closed the session.
    Finished,
}

/// Takes what is left of a session that has ended, and writes none of it: so many blocks.
pub(crate) fn none(session: &Session, tally: &Tally) -> u64 {
    let mut blocks = 0;
    // Who asks an open one confirms what he is given.
    while session.close_reason().is_some()
        && let Ok(Some(block)) = session.try_recv()
    {
        tally.received(&block);
        blocks += 1;
    }
    blocks
}

/// Takes until then, and has everything written; which of the two it was. The peer is told that it is taken only once that is so.
pub(crate) async fn all(session: &Session, sink: &Sink, tally: &Tally, until: Until) -> Result<Until, Failure> {
    // The peer is told that all is taken when we ask for more with nothing left: all that came before is to be written by then.
    session.confirm_on_next_recv();
    loop {
        let ready = session.try_recv();
        let next = match ready {
            Ok(None) => {
                sink.sync().await?;
                match until {
                    Until::Closed => session.recv().await.map(Some),
                    Until::Finished => session.recv_until_finished().await,
                }
            }
            ready => ready,
        };
        match next {
            Ok(Some(block)) => {
                tally.received(&block);
                sink.put(block.id.0, block.data).await?;
            }
            Ok(None) => return sink.sync().await.map(|()| Until::Finished),
            Err(CloseReason::Peer { code: 0, .. } | CloseReason::Local) => {
                return sink.sync().await.map(|()| Until::Closed);
            }
            Err(reason) => {
                sink.sync().await?;
                return Err(Failure::lost(&reason));
            }
        }
    }
}
