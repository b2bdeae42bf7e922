//! The clip as blocks: each frame with its deadline, its priority and the frames it refers to, over all paths at once.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use punctual::{Block, BlockId, Endpoint, Identity, Session, SessionEvent};

use super::stage::{Recorder, Recording, Stage, both_ends, failed};
use crate::exit::Failure;

/// Streams the clip once.
pub(crate) async fn run(stage: &Stage) -> Result<Recording, Failure> {
    let identity = Identity::self_signed(["localhost"]).map_err(|error| failed("make a certificate", error))?;
    let fingerprint = identity.fingerprint();
    let here = || IpAddr::from(Ipv4Addr::LOCALHOST).into();
    let server = Endpoint::server(identity).bind(here()).build().map_err(|error| failed("bind", error))?;
    let relay = stage.scenario.relay(server.local_address()).map_err(|error| failed("bind", error))?;
    let client = Endpoint::client().trust(fingerprint).bind(here()).build().map_err(|error| failed("bind", error))?;
    let local = client.locals()[0].id;

    let (first, others) = relay.entrances().split_first().ok_or_else(|| failed("start", "there are no paths"))?;
    let connecting = client.connect(*first, "localhost");
    let connecting = async { connecting.await.map_err(|error| failed("connect over loopback", error)) };
    let (session, accepted) = both_ends(connecting, server.accept()).await?;
    for &remote in others {
        session.open_path(local, remote).await.map_err(|error| failed("open a second path", error))?;
    }

    let recorder = stage.recorder();
    let receiver = tokio::spawn(receive(accepted, recorder.clone()));
    let sent = stage
        .play(&relay, &recorder, async |index, frame| {
            let mut block = Block::new(frame.data.clone())
                .deadline(frame.kind.deadline(stage.scenario.deadline))
                .priority(frame.kind.priority());
            // Blocks are counted as frames are.
            block.dependencies = frame.dependencies.iter().map(|&on| BlockId(on)).collect();
            let sent = session.try_send(block).map_err(|error| failed("send", error))?;
            debug_assert_eq!(sent.id().0, index as u64);
            Ok(())
        })
        .await;
    let recording = sent.map(|()| recorder.finish(&relay));
    session.close(0, "the clip is over");
    receiver.abort();
    recording
}

/// Takes in blocks, and word of those that will not come.
async fn receive(session: Session, recorder: Arc<Recorder>) {
    let mut events = session.events();
    loop {
        tokio::select! {
            block = session.recv() => match block {
                Ok(block) => recorder.arrived(block.id.0 as usize, &block.data),
                Err(_) => return,
            },
            event = events.next() => match event {
                Some(SessionEvent::PeerDropped { id, .. }) => recorder.dropped(id.0 as usize),
                Some(_) => {}
                None => return,
            },
        }
    }
}
