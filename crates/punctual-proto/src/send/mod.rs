//! The sender's stations, in the order in which a block passes them: the [`store`] of live blocks with its
//! [`graph`] of dependencies, [`packetize`], redundancy in [`groups`], and [`recovery`] of what the network lost.
//! What the application says of blocks comes in by [`intake`], what the peer says by [`answers`].

mod answers;
mod bucket;
mod channels;
mod dropping;
mod families;
mod filling;
pub(crate) mod graph;
pub(crate) mod group;
pub(crate) mod groups;
mod intake;
mod kin;
pub(crate) mod last_chance;
mod late;
mod leeway;
pub(crate) mod live;
mod load;
mod opening;
pub(crate) mod packetize;
mod passed;
mod policer;
mod presumed;
mod protection;
mod put_off;
pub(crate) mod recovery;
mod room;
mod second_try;
pub(crate) mod sources;
pub(crate) mod store;
pub(crate) mod tally;
mod unanswered;
