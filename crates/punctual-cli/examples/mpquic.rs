//! Frames over plain multipath QUIC, to compare with (`make links`): noq with its own defaults (CUBIC, its own path scheduler), one stream for each frame,
//! the earlier the more urgent, and nothing is ever dropped.
//!
//! ```sh
//! mpquic recv CERTIFICATE 0.0.0.0:4433                     writes what arrives to standard output, frame by frame
//! mpquic send CERTIFICATE 10.9.0.2:4433 10.9.1.2:4433      reads frames from standard input; the first address is connected to, the others are paths
//! ```
//!
//! A frame has its length before it, four bytes, most significant first. The receiver writes its certificate to the file, which the sender trusts.

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use noq::{
    ClientConfig, Connection, Endpoint, PathError, PathStatus, ServerConfig, TransportConfig, VarInt,
    rustls::{
        RootCertStore,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    },
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// No frame is larger.
const MAX_FRAME: usize = 16 << 20;
/// Certificates are for a name.
const NAME: &str = "localhost";
const PATIENCE: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["recv", certificate, address] => recv(certificate, address.parse()?).await,
        ["send", certificate, first, ref others @ ..] => {
            let others: Result<Vec<SocketAddr>, _> = others.iter().map(|other| other.parse()).collect();
            send(certificate, first.parse()?, others?).await
        }
        _ => Err("mpquic recv CERTIFICATE ADDRESS, or mpquic send CERTIFICATE ADDRESS [ADDRESS ...]".into()),
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    // One stream for each frame: QUIC's default of 100 at a time would hold the later ones back.
    transport.max_concurrent_uni_streams(VarInt::from_u32(1 << 20));
    transport.max_concurrent_multipath_paths(8);
    Arc::new(transport)
}

async fn recv(file: &str, address: SocketAddr) -> Result<(), Failure> {
    let own = rcgen::generate_simple_self_signed(vec![NAME.into()])?;
    std::fs::write(file, own.cert.der())?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![own.cert.into()], key.into())?;
    config.transport_config(transport());
    let server = Endpoint::server(config, address)?;
    eprintln!("listening on {}", server.local_addr()?);
    let connection = server.accept().await.ok_or("the endpoint is closed")?.await?;
    let (frames, mut arrived) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Ok(mut stream) = connection.accept_uni().await {
            let frames = frames.clone();
            tokio::spawn(async move {
                if let Ok(frame) = stream.read_to_end(MAX_FRAME).await {
                    let _ = frames.send(frame);
                }
            });
        }
    });
    let mut out = tokio::io::stdout();
    while let Some(frame) = arrived.recv().await {
        out.write_u32(u32::try_from(frame.len())?).await?;
        out.write_all(&frame).await?;
        out.flush().await?;
    }
    Ok(())
}

async fn send(file: &str, first: SocketAddr, others: Vec<SocketAddr>) -> Result<(), Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(file)?))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport());
    let client = Endpoint::client(([0, 0, 0, 0], 0).into())?;
    let connection = tokio::time::timeout(PATIENCE, client.connect_with(config, first, NAME)?).await??;
    for other in others {
        tokio::time::timeout(PATIENCE, open_path(&connection, other)).await??;
    }
    eprintln!("connected over all paths");
    let mut input = tokio::io::stdin();
    let mut writing = tokio::task::JoinSet::new();
    let mut number = 0_i32;
    while let Ok(size) = input.read_u32().await {
        if size as usize > MAX_FRAME {
            return Err(format!("a frame of {size} bytes is too large").into());
        }
        let mut frame = vec![0; size as usize];
        input.read_exact(&mut frame).await?;
        let mut stream = connection.open_uni().await?;
        // First in, first out: with equal priority all frames of a backlog would end late together.
        stream.set_priority(-number)?;
        number += 1;
        writing.spawn(async move {
            stream.write_all(&frame).await?;
            stream.finish()?;
            stream.stopped().await?;
            Ok::<_, Failure>(())
        });
        while writing.try_join_next().is_some() {}
    }
    // What is not there a few seconds after the last is not waited for.
    let all = async { while writing.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(PATIENCE, all).await;
    connection.close(VarInt::from_u32(0), b"that was all");
    client.wait_idle().await;
    Ok(())
}

/// Opens another path, once the peer has issued connection identifiers for it, which takes a round trip after the handshake.
async fn open_path(connection: &Connection, remote: SocketAddr) -> Result<(), Failure> {
    loop {
        match connection.open_path_ensure(remote, PathStatus::Available).await {
            Ok(_) => return Ok(()),
            Err(PathError::RemoteCidsExhausted) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => return Err(error.into()),
        }
    }
}
