//! Makes the certificate and key in `tls/`, which are for tests only. It was run once; there is no need to run it
//! again.
//!
//! `cargo run -p punctual-sim --example make_test_certificate`

use std::{error::Error, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tls");
    // Ed25519, for its signatures have a fixed size: runs of the simulator must not differ by a byte.
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let mut params =
        rcgen::CertificateParams::new([punctual_sim::tls::SERVER_NAME.to_owned(), "localhost".to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "Punctual test certificate, not for use");
    let certificate = params.self_signed(&key)?;
    std::fs::write(directory.join("test-certificate.der"), certificate.der())?;
    std::fs::write(directory.join("test-key.der"), key.serialize_der())?;
    Ok(())
}
