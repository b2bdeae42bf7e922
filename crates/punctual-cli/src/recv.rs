//! `punctual recv`.

use std::{fs, io::Write as _, path::Path, time::Duration};

use punctual::{CloseReason, Endpoint, Identity, Session, SessionEvent};

use crate::{
    cli::{Listen, RecvArgs},
    config::endpoint_config,
    exit::Failure,
    sink::Sink,
    stats::{self, Display, Figures, Tally},
};

/// Receives from one sender, or from one after the other.
pub(crate) async fn run(args: &RecvArgs) -> Result<(), Failure> {
    let to_stdout = args.dir.is_none() && args.out.as_deref().is_none_or(|path| path == Path::new("-"));
    if args.common.json && to_stdout {
        return Err(Failure::Usage(
            "--json writes to standard output; put the blocks elsewhere with --out or --dir".into(),
        ));
    }
    let identity = identity(args)?;
    let sink = Sink::open(args)?;
    let endpoint = listen(args, identity)?;
    loop {
        let session = tokio::select! {
            session = endpoint.accept() => session,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(session) = session else { return Ok(()) };
        let ended = serve(&session, &sink, args).await;
        if !args.keep_going {
            endpoint.close(0, "");
            let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
            return ended;
        }
        if let Err(failure) = ended {
            // The next sender may do better; but what cannot be written will not be writable for it either.
            if matches!(failure, Failure::File(_)) {
                return Err(failure);
            }
            eprintln!("punctual: {failure}");
        }
    }
}

/// The certificate to show: from the file, or a new one, which goes into the file if one is named.
fn identity(args: &RecvArgs) -> Result<Identity, Failure> {
    let usage = |error: punctual::TlsError| Failure::Usage(error.to_string());
    let Some(path) = &args.identity else { return Identity::self_signed(args.name.iter()).map_err(usage) };
    if path.exists() {
        let pem = fs::read(path).map_err(|error| Failure::file("read", path, error))?;
        return Identity::from_pem(&pem, &pem).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())));
    }
    let made = Identity::self_signed(args.name.iter()).map_err(usage)?;
    keep_secret(path, &made.to_pem()).map_err(|error| Failure::file("write", path, error))?;
    Ok(made)
}

/// Writes a new file that only its owner can read.
fn keep_secret(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Opens the endpoint, and says how to reach it.
fn listen(args: &RecvArgs, identity: Identity) -> Result<Endpoint, Failure> {
    let fingerprint = identity.fingerprint();
    let mut builder = Endpoint::server(identity).config(endpoint_config(args.common.qlog.as_deref()));
    for listen in &args.listen {
        builder = match *listen {
            Listen::Port(port) => builder.port(port),
            Listen::Address(address) => builder.bind(address.into()),
        };
    }
    let endpoint = builder.build()?;
    if !args.common.quiet {
        for local in endpoint.locals() {
            eprintln!("listening on {}", local.address);
        }
        eprintln!("fingerprint {fingerprint}");
    }
    Ok(endpoint)
}

/// Receives from one sender until it is done.
async fn serve(session: &Session, sink: &Sink, args: &RecvArgs) -> Result<(), Failure> {
    if let Some(peer) = session.remote_address().filter(|_| !args.common.quiet) {
        eprintln!("receiving from {peer}");
    }
    let tally = Tally::default();
    let figures = || figures(&tally, session);
    let display = Display::new(&args.common);
    let ended = tokio::select! {
        ended = take_in(session, sink, &tally) => ended,
        () = display.run(figures) => Ok(()),
        _ = tokio::signal::ctrl_c() => {
            session.close(0, "interrupted");
            // A reader of our pipe that has stopped reading is not waited for.
            tokio::time::timeout(Duration::from_secs(1), sink.sync()).await.unwrap_or(Ok(()))
        }
    };
    drop(display);
    if ended.is_err() {
        session.close(1, "the receiver cannot go on");
    }
    let figures = figures();
    stats::conclude(&args.common, &figures);
    ended?;
    if args.common.strict && figures.missed() > 0 {
        return Err(Failure::NotDelivered(figures.counts()));
    }
    Ok(())
}

async fn take_in(session: &Session, sink: &Sink, tally: &Tally) -> Result<(), Failure> {
    let mut events = session.events();
    let mut watching = true;
    loop {
        tokio::select! {
            // What is being dropped while the session ends is to be counted before its end is.
            biased;
            event = events.next(), if watching => match event {
                Some(SessionEvent::PeerDropped { .. }) => tally.peer_dropped(),
                Some(_) => {}
                None => watching = false,
            },
            block = session.recv() => match block {
                Ok(block) => {
                    tally.received(&block);
                    sink.put(block.id.0, block.data).await?;
                }
                Err(CloseReason::Peer { code: 0, .. } | CloseReason::Local) => return sink.sync().await,
                Err(reason) => {
                    sink.sync().await?;
                    return Err(Failure::SessionLost(format!("the session was lost: {reason}")));
                }
            },
        }
    }
}

fn figures(tally: &Tally, session: &Session) -> Figures {
    tally.figures(None, &session.path_stats(), |path| path.id.to_string())
}
