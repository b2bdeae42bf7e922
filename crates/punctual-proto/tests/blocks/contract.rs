//! What a caller owes an endpoint.

use std::time::Instant;

use bytes::BytesMut;
use punctual_proto::{Endpoint, EndpointConfig, LocalId, NetworkPath, SessionConfig};

use crate::common::{HostId, address, client_config, ms};

fn lone_endpoint() -> (Endpoint, Instant) {
    let now = Instant::now();
    let mut endpoint = Endpoint::new(EndpointConfig::new(now), None);
    let path = NetworkPath { local: LocalId(0), remote: address(0 as HostId) };
    endpoint.connect(now, &client_config(SessionConfig::default()), path, "punctual.test").expect("it can begin");
    (endpoint, now)
}

#[test]
fn a_drained_endpoint_may_be_asked() {
    let (mut endpoint, now) = lone_endpoint();
    let mut buf = Vec::new();
    while endpoint.poll_transmit(now, &mut buf).is_some() {
        buf.clear();
    }
    while endpoint.poll_event().is_some() {}
    assert!(endpoint.poll_timeout().is_some_and(|at| at > now));
    endpoint.handle_datagram(
        now,
        NetworkPath { local: LocalId(0), remote: address(0) },
        None,
        BytesMut::from(&b"noise"[..]),
    );
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "must be drained"))]
fn an_endpoint_must_be_drained_before_it_is_asked() {
    let (endpoint, _) = lone_endpoint();
    endpoint.poll_timeout();
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "time must not run backwards"))]
fn time_must_not_run_backwards() {
    let (mut endpoint, now) = lone_endpoint();
    endpoint.handle_timeout(now + ms(2));
    endpoint.handle_timeout(now + ms(1));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "the buffer must be empty"))]
fn the_buffer_must_be_empty() {
    let (mut endpoint, now) = lone_endpoint();
    endpoint.poll_transmit(now, &mut vec![0]);
}
