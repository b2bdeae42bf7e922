//! What the application is to be told.

use std::collections::VecDeque;

use crate::event::Event;

/// Events in their order. [`Event::Closed`] is the last: what becomes known of packets and paths while the end is being told to the peer concerns nobody any more.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    is_closed: bool,
}

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        if !self.is_closed {
            self.is_closed = matches!(event, Event::Closed(_));
            self.queue.push_back(event);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    /// Has what was pushed last told first.
    pub(super) fn last_first(&mut self) {
        if !self.queue.is_empty() {
            self.queue.rotate_right(1);
        }
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::PathId, error::CloseReason, event::PathEvent};

    #[test]
    fn nothing_is_told_of_what_is_over() {
        let mut events = Events::default();
        events.push(Event::Readable);
        events.push(Event::Closed(CloseReason::Local));
        events.push(Event::Path { id: PathId(0), event: PathEvent::Recovered });
        assert_eq!(events.pop(), Some(Event::Readable));
        assert_eq!(events.pop(), Some(Event::Closed(CloseReason::Local)));
        events.push(Event::Path { id: PathId(0), event: PathEvent::Recovered });
        assert!(events.is_empty());
    }
}
