//! TLS for worlds and tests: a certificate that everyone has the key of, and configurations that use it.
//!
//! The certificate is the same in every run and Ed25519, so that handshakes differ in content only, not in size. **Its
//! private key is public: for tests only.**

use std::sync::Arc;

use punctual_proto::{
    ClientConfig, ServerConfig,
    rustls::{
        self,
        client::Resumption,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// The name the test certificate is for (`localhost` is another).
pub const SERVER_NAME: &str = "punctual.test";

/// The test certificate.
pub fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_slice(include_bytes!("../tls/test-certificate.der"))
}

/// The test certificate's private key.
pub fn private_key() -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(&include_bytes!("../tls/test-key.der")[..]).into()
}

/// A client that trusts the test certificate, and nobody else, with the default session settings.
pub fn client_config() -> ClientConfig {
    ClientConfig::new(rustls_client()).expect("ring has the cipher suite that QUIC begins with")
}

/// A server that shows the test certificate, with the default session settings.
pub fn server_config() -> ServerConfig {
    ServerConfig::new(rustls_server()).expect("ring has the cipher suite that QUIC begins with")
}

/// What [`client_config`] is made from. No resumption: each session is to begin alike.
pub fn rustls_client() -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate()).expect("the embedded certificate is valid");
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config
}

/// What [`server_config`] is made from. It gives out no session tickets.
pub fn rustls_server() -> rustls::ServerConfig {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], private_key())
        .expect("the embedded key belongs to the embedded certificate");
    config.send_tls13_tickets = 0;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_can_be_made() {
        client_config();
        server_config();
    }
}
