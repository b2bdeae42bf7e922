//! Who we are and whom we trust.
//!
//! There is no switch that turns checking off. A client trusts what the system trusts, or certificate authorities of
//! its own, or exactly the certificates whose fingerprints it was given. The system's own verifier
//! (`rustls-platform-verifier`) is used rather than a built-in list of roots: it follows what the administrator
//! installed and removed, and does not go stale with our releases.

use std::{
    collections::HashSet,
    fmt,
    net::SocketAddr,
    path::Path,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
};

use punctual_proto::{ClientConfig, ResetSecret, ServerConfig};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use thiserror::Error;

use crate::error::TlsError;

/// The SHA-256 digest of a certificate (of its DER form), as `openssl x509 -fingerprint -sha256` prints it.
///
/// ```
/// use punctual::Fingerprint;
///
/// let identity = punctual::Identity::self_signed(["camera.local"])?;
/// let text = identity.fingerprint().to_string();
/// assert_eq!(text.parse::<Fingerprint>()?, identity.fingerprint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER form.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// The fingerprint that was presented, if that is what `error` is about.
    pub(crate) fn from_mismatch(error: &CertificateError) -> Option<Self> {
        let CertificateError::Other(OtherError(other)) = error else { return None };
        other.downcast_ref::<FingerprintMismatch>().map(|mismatch| mismatch.presented)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The text is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a fingerprint is 64 hexadecimal digits, with or without colons")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let mut digits = text.trim().chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
        let mut digit = || digits.next().flatten().and_then(|d| u8::try_from(d).ok()).ok_or(FingerprintError);
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            *byte = digit()? << 4 | digit()?;
        }
        if digits.next().is_some() { Err(FingerprintError) } else { Ok(Self(bytes)) }
    }
}

/// The certificate is not one of those pinned.
#[derive(Debug, Error)]
#[error("the certificate has fingerprint {presented}, which is not expected")]
struct FingerprintMismatch {
    presented: Fingerprint,
}

/// Whose word one takes for who the peer is: a client's for a server, and that of a server that checks its clients.
///
/// ```
/// use punctual::{Identity, Trust};
///
/// // Whom the system trusts; or one certificate and no other, whoever signed it.
/// let public = Trust::system();
/// let pinned = Trust::from(Identity::self_signed(["sensor-7"])?.fingerprint());
/// # drop((public, pinned));
/// # Ok::<(), punctual::TlsError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Trust(TrustKind);

#[derive(Debug, Clone, Default)]
enum TrustKind {
    #[default]
    System,
    Authorities(Arc<RootCertStore>),
    Pinned(AccessList),
}

/// Certificates that are let in, by their fingerprints: a [`Trust`] that can be changed while endpoints use it.
///
/// What was let in stays: a session does not end because its peer is let in no more. Clones are handles of one list.
///
/// ```
/// use punctual::{AccessList, Endpoint, Identity, Trust};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let (one, other) = (Identity::self_signed(["one"])?, Identity::self_signed(["other"])?);
/// let list = AccessList::new([one.fingerprint()]);
/// let server = Endpoint::server(Identity::self_signed(["localhost"])?).client_ca(Trust::from(&list)).port(0).build()?;
/// // From now on the other comes in, and the one does not.
/// list.replace([other.fingerprint()]);
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct AccessList(Arc<RwLock<HashSet<Fingerprint>>>);

impl AccessList {
    /// These and no others.
    pub fn new(fingerprints: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(Arc::new(RwLock::new(fingerprints.into_iter().collect())))
    }

    /// From now on these and no others.
    pub fn replace(&self, fingerprints: impl IntoIterator<Item = Fingerprint>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fingerprints.into_iter().collect();
    }

    /// Whether the certificate of this fingerprint is let in.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(fingerprint)
    }
}

impl From<&AccessList> for Trust {
    fn from(list: &AccessList) -> Self {
        Self(TrustKind::Pinned(list.clone()))
    }
}

impl Trust {
    /// What the operating system trusts. The default.
    pub fn system() -> Self {
        Self(TrustKind::System)
    }

    /// These certificate authorities and no others; PEM, one or more certificates.
    ///
    /// # Errors
    /// If there is no certificate in `pem`, or one that cannot be an authority.
    pub fn ca_pem(pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        Ok(Self(TrustKind::Authorities(Arc::new(roots(certificates(pem.as_ref())?)?))))
    }

    /// These certificate authorities and no others; DER, one certificate each.
    ///
    /// # Errors
    /// If there is none, or one that cannot be an authority.
    pub fn ca_der<C: Into<Vec<u8>>>(certificates: impl IntoIterator<Item = C>) -> Result<Self, TlsError> {
        let certificates = certificates.into_iter().map(|der| CertificateDer::from(der.into()));
        Ok(Self(TrustKind::Authorities(Arc::new(roots(certificates)?))))
    }

    /// Only the certificates with these fingerprints, whatever names they bear and whoever signed them.
    ///
    /// For self-signed certificates. The peer still has to prove that it holds the key.
    pub fn fingerprints(fingerprints: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(TrustKind::Pinned(AccessList::new(fingerprints)))
    }
}

impl From<Fingerprint> for Trust {
    fn from(fingerprint: Fingerprint) -> Self {
        Self::fingerprints([fingerprint])
    }
}

/// A certificate chain and its private key: what one shows to be believed.
///
/// ```
/// use punctual::Identity;
///
/// // Enough between one's own programs, if the client is told the fingerprint.
/// let identity = Identity::self_signed(["localhost"])?;
/// println!("--fingerprint {}", identity.fingerprint());
/// # Ok::<(), punctual::TlsError>(())
/// ```
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// From PEM: the chain, the end's own certificate first, and the key. The two may be the same text.
    ///
    /// # Errors
    /// If either holds none, or is malformed.
    pub fn from_pem(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => TlsError::NoKey,
            other => TlsError::Pem { what: "a private key", reason: other.to_string() },
        })?;
        Ok(Self { chain: certificates(chain.as_ref())?, key })
    }

    /// As [`from_pem`](Self::from_pem), out of files.
    ///
    /// # Errors
    /// If a file cannot be read, too.
    pub fn from_pem_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, TlsError> {
        let read = |path: &Path| std::fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source });
        Self::from_pem(read(chain.as_ref())?, read(key.as_ref())?)
    }

    /// What an endpoint with this identity answers peers by that it knows nothing of, because it was started anew: the same for each on this host that listens on
    /// these addresses, and for no other.
    pub(crate) fn reset_secret(&self, mut listens: Vec<SocketAddr>) -> ResetSecret {
        /// Tells hosts apart that have the same identity and listen on the same port of all their addresses. Where there is none they are not told apart.
        const MACHINE: &str = "/etc/machine-id";
        listens.sort_unstable();
        let mut context = std::fs::read(MACHINE).unwrap_or_default();
        for address in listens {
            context.extend_from_slice(format!(" {address}").as_bytes());
        }
        ResetSecret::derive(self.key.secret_der(), &context)
    }

    /// From DER: the chain, the end's own certificate first, and the key (PKCS#8, PKCS#1 or SEC1).
    ///
    /// # Errors
    /// If the chain is empty or the key of no known form.
    pub fn from_der<C: Into<Vec<u8>>>(
        chain: impl IntoIterator<Item = C>,
        key: impl Into<Vec<u8>>,
    ) -> Result<Self, TlsError> {
        let chain: Vec<_> = chain.into_iter().map(|der| CertificateDer::from(der.into())).collect();
        if chain.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        Ok(Self { chain, key: PrivateKeyDer::try_from(key.into()).map_err(|_| TlsError::NoKey)? })
    }

    /// A new certificate that vouches for itself (ECDSA P-256, which browsers and every TLS library know), for DNS names or IP
    /// addresses. Give its [`fingerprint`](Self::fingerprint) to the clients.
    ///
    /// # Errors
    /// If a name is not valid.
    pub fn self_signed(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, TlsError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| TlsError::SelfSigned(e.to_string()))?;
        Self::from_der([made.cert.der().to_vec()], made.signing_key.serialize_der())
    }

    /// The fingerprint of the end's own certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.chain[0])
    }

    /// The chain and the key as PEM, for [`from_pem`](Self::from_pem) to read back. Keep it secret: the key is in it.
    pub fn to_pem(&self) -> String {
        let key_tag = match &self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        let chain = self.chain.iter().map(|der| pem::Pem::new("CERTIFICATE", der.to_vec()));
        let all: Vec<_> = chain.chain([pem::Pem::new(key_tag, self.key.secret_der())]).collect();
        pem::encode_many(&all)
    }

    /// The chain in DER form, the end's own certificate first.
    pub fn chain_der(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(AsRef::as_ref)
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// Shows the certificate's fingerprint, never the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| TlsError::Pem { what: "a certificate", reason: e.to_string() })?;
    if all.is_empty() { Err(TlsError::NoCertificate) } else { Ok(all) }
}

fn roots(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|e| TlsError::Authority(e.to_string()))?;
    }
    if roots.is_empty() { Err(TlsError::NoCertificate) } else { Ok(roots) }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The client's half of TLS.
pub(crate) fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
    fallback: &[Vec<u8>],
) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| TlsError::Setup(e.to_string()))?;
    let builder = match &trust.0 {
        TrustKind::System => {
            let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(TlsError::NoSystemRoots)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        TrustKind::Authorities(roots) => builder.with_root_certificates(roots.clone()),
        TrustKind::Pinned(accepted) => {
            let verifier = PinnedVerifier { accepted: accepted.clone(), provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let mut tls = match identity {
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(TlsError::Identity)?,
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = fallback.to_vec();
    ClientConfig::new(tls).map_err(|e| TlsError::Setup(e.to_string()))
}

/// The server's half of TLS; with `client_ca`, clients must show a certificate signed by it, or one of those pinned.
pub(crate) fn server_config(
    identity: &Identity,
    client_ca: Option<&Trust>,
    fallback: &[Vec<u8>],
) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| TlsError::Setup(e.to_string()))?;
    let builder = match client_ca.map(|trust| &trust.0) {
        None => builder.with_no_client_auth(),
        Some(TrustKind::Authorities(roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider)
                .build()
                .map_err(|e| TlsError::Authority(e.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        Some(TrustKind::Pinned(accepted)) => {
            let verifier = PinnedVerifier { accepted: accepted.clone(), provider };
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
        // Its authorities vouch for the names of servers; of a client there is no name to check.
        Some(TrustKind::System) => {
            return Err(TlsError::Authority(
                "clients are checked against authorities or fingerprints of one's own".into(),
            ));
        }
    };
    let mut tls =
        builder.with_single_cert(identity.chain.clone(), identity.key.clone_key()).map_err(TlsError::Identity)?;
    tls.alpn_protocols = fallback.to_vec();
    ServerConfig::new(tls).map_err(|e| TlsError::Setup(e.to_string()))
}

/// Accepts exactly the certificates with the given fingerprints. That the peer holds the key is checked as ever, by its
/// signature over the handshake; names and dates mean nothing for a certificate that was pinned by its contents.
#[derive(Debug)]
struct PinnedVerifier {
    accepted: AccessList,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let presented = Fingerprint::of(certificate);
        if self.accepted.contains(&presented) {
            return Ok(());
        }
        let mismatch = OtherError(Arc::new(FingerprintMismatch { presented }));
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(mismatch)))
    }

    fn check_tls12(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn check_tls13(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for PinnedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Whoever signed it does not matter, so there is nobody to hint at.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_openssl_prints_them() {
        let plain = "ab".repeat(32);
        let colons = ["AB"; 32].join(":");
        assert_eq!(plain.parse::<Fingerprint>(), colons.parse());
        assert_eq!(plain.parse::<Fingerprint>().map(|f| f.to_string()), Ok(plain.clone()));
        for bad in ["", "ab", &plain[1..], &format!("{plain}0"), &plain.replace('a', "g")] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(FingerprintError));
        }
    }

    #[test]
    fn an_identity_survives_pem() {
        let made = Identity::self_signed(["localhost"]).expect("a valid name");
        let pem = made.to_pem();
        let read = Identity::from_pem(&pem, &pem).expect("our own PEM");
        assert_eq!(read.fingerprint(), made.fingerprint());
        server_config(&read, None, &[]).expect("usable");
    }

    #[test]
    fn what_is_missing_is_named() {
        let made = Identity::self_signed(["localhost"]).expect("a valid name");
        assert!(matches!(Identity::from_pem("", made.to_pem()), Err(TlsError::NoCertificate)));
        assert!(matches!(Identity::from_pem(made.to_pem(), ""), Err(TlsError::NoKey)));
        assert!(matches!(Identity::from_pem_files("/no/such", "/file"), Err(TlsError::File { .. })));
        assert!(matches!(Trust::ca_pem("nothing"), Err(TlsError::NoCertificate)));
        let other = Identity::self_signed(["localhost"]).expect("a valid name");
        let mixed = Identity { chain: made.chain, key: other.key };
        assert!(matches!(server_config(&mixed, None, &[]), Err(TlsError::Identity(_))));
    }
}
