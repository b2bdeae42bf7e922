//! Blocks over plain QUIC streams.

use punctual_sim::{HostId, PathHandle, World};

use super::{
    CarryError,
    ledger::{Entries, Ledger, nanos},
};
use crate::{
    plan::Plan,
    quic::{ClientNode, Config, Message, ServerNode},
    record::{Ending, RunRecord, SentBytes},
};

/// A client and a server that speak plain QUIC.
pub(super) struct Pair {
    pub(super) client: HostId,
    pub(super) server: HostId,
}

impl Pair {
    pub(super) fn add(world: &mut World, mut config: Config, plan: Plan) -> Self {
        // One socket buffer for all: the smallest any source asks for.
        config.queue = plan.sources.iter().filter_map(|source| source.hand_over.queue).min();
        config.bulk = plan.sources.iter().find_map(|source| source.bulk);
        let messages: Vec<Message> = plan.blocks.iter().map(Message::from).collect();
        let client = world.add_node(ClientNode::new(&config, messages));
        let server = world.add_node(ServerNode::new(&config));
        Self { client, server }
    }

    pub(super) fn connect(&mut self, world: &mut World, paths: &[PathHandle]) -> Result<(), CarryError> {
        let networks = paths.iter().map(|path| world.network_path(*path, self.client)).collect();
        let gone = || CarryError::Setting("the client is gone".into());
        world.node_mut::<ClientNode>(self.client).ok_or_else(gone)?.connect(networks);
        Ok(())
    }

    /// Enters what both ends have noted.
    ///
    /// The server hears of bytes in order only, and not when each came, so the good bytes of a block that was not on time are not
    /// known; they count as none.
    pub(super) fn collect(&self, world: &mut World, ledger: &Ledger) {
        let mut entries = ledger.lock();
        if let Some(client) = world.node_mut::<ClientNode>(self.client) {
            if let Some((at, why)) = client.closed() {
                entries.over("sender", nanos(at), &why);
            }
            for (row, sent) in entries.rows.iter_mut().zip(client.sent()) {
                row.first_sent = sent.first_sent.map(nanos);
                row.last_sent = sent.last_sent.map(nanos);
                row.resent_bytes = u32::try_from(sent.resent_bytes).unwrap_or(u32::MAX);
                row.ending = if sent.taken.is_some() { Ending::Unfinished } else { Ending::NotTaken };
                // Of a block that was begun and not finished, what had left is not known exactly.
                row.source_bytes = if row.last_sent.is_some() { row.size } else { 0 };
            }
            let first = entries.first_path;
            for (index, path) in client.paths().iter().enumerate() {
                if let Some(sent) = entries.path_bytes.get_mut(first + index) {
                    *sent = SentBytes { source: path.new_bytes, resent: path.resent_bytes, ..SentBytes::default() };
                }
            }
        }
        if let Some(server) = world.node::<ServerNode>(self.server) {
            if let Some((at, why)) = server.closed() {
                entries.over("receiver", nanos(at), &why);
            }
            collect_received(&mut entries, server);
        }
    }
}

fn collect_received(entries: &mut Entries, server: &ServerNode) {
    for (index, row) in entries.rows.iter_mut().enumerate() {
        let Some(received) = server.received(index) else { continue };
        row.first_arrived = Some(nanos(received.first));
        row.complete = received.complete.map(nanos);
        row.delivered = row.complete;
        row.arrived_bytes = received.bytes;
        row.source_bytes = row.source_bytes.max(received.bytes);
        if row.delivered.is_some() {
            row.ending = Ending::Delivered;
        }
        let in_time = |at| row.deadline.is_none_or(|deadline| at <= row.handed_over.saturating_add(deadline));
        if row.delivered.map_or(row.deadline.is_none(), in_time) {
            row.good_bytes = received.bytes;
        }
    }
    let bin = nanos(RunRecord::BIN);
    let messages = server.message_bytes().iter().copied();
    let bulk = server.bulk_bytes().iter().copied();
    entries.bulk_bytes = bulk.clone().sum();
    for (index, bytes) in messages.enumerate() {
        if let Some(entry) = entries.arrivals.get_mut(index) {
            *entry += u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        entries.compare((index as u64) * bin, bytes);
    }
    for (index, bytes) in bulk.enumerate() {
        if let Some(entry) = entries.arrivals.get_mut(index) {
            *entry += u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        entries.compare((index as u64) * bin, bytes);
    }
}
