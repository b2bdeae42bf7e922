//! Tells Prometheus what a gateway carries.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{exit::Failure, gateway::Carrier};

/// Connections at once: more wait.
const CONNECTIONS: usize = 16;
/// How long a request's head may take.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may last. Prometheus opens another.
const LASTS: Duration = Duration::from_secs(60);
/// How long to wait when no connection can be accepted: there may be no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The media type of the text format (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where Prometheus is to ask.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| Failure::Path(format!("--metrics {address}: {error}")))
}

/// Answers `GET /metrics`, and never returns.
pub(crate) async fn serve<Never>(listener: TcpListener, gateway: Arc<impl Carrier>) -> Never {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Nobody closes it.
        let Ok(permit) = room.clone().acquire_owned().await else { std::future::pending().await };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "metrics: cannot accept");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = answer(&request, &*gateway);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .serve_connection(TokioIo::new(stream), answer);
            // Whoever goes away or speaks nonsense has nothing to be told.
            let _ = tokio::time::timeout(LASTS, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, gateway: &impl Carrier) -> Response<Full<Bytes>> {
    let plain = |status, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut response = Response::new(Full::from(gateway.metrics()));
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(OPEN_METRICS));
            response
        }
        (_, "/metrics") => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
        _ => plain(StatusCode::NOT_FOUND, "there is /metrics\n"),
    }
}
