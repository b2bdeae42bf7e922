//! The clip over QUIC as it comes: one unidirectional stream for each frame, on one path or on several.
//!
//! The engine is noq with its own defaults (CUBIC, its own path scheduler), the same that Punctual stands on. Streams have falling
//! priority, so that frames leave first in, first out; with equal priority QUIC would send them in turns, all frames of a
//! backlog would end late together. Nothing is ever dropped: that is what a reliable stream means.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use noq::{
    ClientConfig, Connection, Endpoint, PathError, PathStatus, ServerConfig, TransportConfig, VarInt,
    rustls::{
        RootCertStore,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    },
};

use super::stage::{Recorder, Recording, Stage, both_ends, failed};
use crate::exit::Failure;

/// Which paths a run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paths {
    /// The first alone, which is the better one.
    First,
    /// All of them, by QUIC's multipath extension.
    All,
}

/// Streams the clip once.
pub(crate) async fn run(stage: &Stage, paths: Paths) -> Result<Recording, Failure> {
    let (server_config, client_config) = configs(paths).map_err(|error| failed("prepare QUIC", error))?;
    let server =
        Endpoint::server(server_config, (Ipv4Addr::LOCALHOST, 0).into()).map_err(|error| failed("bind", error))?;
    let address = server.local_addr().map_err(|error| failed("bind", error))?;
    let relay = stage.scenario.relay(address).map_err(|error| failed("bind", error))?;
    let client = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).map_err(|error| failed("bind", error))?;

    let connecting = client
        .connect_with(client_config, relay.entrances()[0], "localhost")
        .map_err(|error| failed("connect over loopback", error))?;
    let connecting = async { connecting.await.map_err(|error| failed("connect over loopback", error)) };
    let (connection, accepted) = both_ends(connecting, async { server.accept().await?.await.ok() }).await?;
    if paths == Paths::All {
        for &entrance in &relay.entrances()[1..] {
            open_path(&connection, entrance).await?;
        }
    }

    let recorder = stage.recorder();
    let receiver = tokio::spawn(receive(accepted, recorder.clone()));
    let sent = stage
        .play(&relay, &recorder, async |index, frame| {
            let mut stream = connection.open_uni().await.map_err(|error| failed("open a stream", error))?;
            stream.set_priority(-(index as i32)).map_err(|error| failed("send", error))?;
            stream.write_all(&frame.data).await.map_err(|error| failed("send", error))?;
            stream.finish().map_err(|error| failed("send", error))
        })
        .await;
    receiver.abort();
    connection.close(VarInt::from_u32(0), b"the clip is over");
    sent.map(|()| recorder.finish(&relay))
}

/// Opens another path, once the server has issued connection identifiers for it, which takes a round trip after the handshake.
async fn open_path(connection: &Connection, remote: SocketAddr) -> Result<(), Failure> {
    const TRIES: u32 = 200;
    for _ in 0..TRIES {
        match connection.open_path_ensure(remote, PathStatus::Available).await {
            Ok(_) => return Ok(()),
            Err(PathError::RemoteCidsExhausted) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => return Err(failed("open a second path", error)),
        }
    }
    Err(failed("open a second path", "the server has issued no connection identifiers"))
}

/// Reads every stream to its end. The number of a stream is the number of its frame.
async fn receive(connection: Connection, recorder: Arc<Recorder>) {
    while let Ok(mut stream) = connection.accept_uni().await {
        let recorder = recorder.clone();
        tokio::spawn(async move {
            let index = stream.id().index() as usize;
            if let Ok(data) = stream.read_to_end(MAX_FRAME).await {
                recorder.arrived(index, &data);
            }
        });
    }
}

/// No frame is larger.
const MAX_FRAME: usize = 16 << 20;

fn configs(paths: Paths) -> Result<(ServerConfig, ClientConfig), io::Error> {
    let mut transport = TransportConfig::default();
    // One stream for each frame: QUIC's default of 100 at a time would hold the later ones back.
    transport.max_concurrent_uni_streams(VarInt::from_u32(1 << 20));
    if paths == Paths::All {
        transport.max_concurrent_multipath_paths(8);
    }
    let transport = Arc::new(transport);

    let own = rcgen::generate_simple_self_signed(vec!["localhost".into()]).map_err(io::Error::other)?;
    let certificate = CertificateDer::from(own.cert);
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).map_err(io::Error::other)?;
    server.transport_config(transport.clone());

    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(io::Error::other)?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
    client.transport_config(transport);
    Ok((server, client))
}
