//! Certificates of authorities that only this user trusts, for every place over TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore, SupportedProtocolVersion};
use strongroom_backend::Refusal;
use ureq::tls::{PemItem, parse_pem};

use crate::failure::Failure;
use crate::settings::{Settings, Variables};

/// The variable that names a file of certificates for all kinds of places.
pub(crate) const CA_FILE: &str = "STRONGROOM_CA_FILE";

impl Variables {
    /// The certificates (PEM) of authorities that only this user trusts: the content of the file
    /// that `STRONGROOM_CA_FILE` names.
    ///
    /// # Errors
    ///
    /// If there is no certificate in it: in words for people.
    pub fn authorities(&self) -> Result<Vec<Vec<u8>>, String> {
        read(self, &[]).map_err(|failure| failure.answer())
    }
}

/// The files (PEM) that `STRONGROOM_CA_FILE` and these variables name. What they hold is trusted
/// beside the certificates that the machine trusts.
pub(crate) fn read(variables: &Variables, others: &[&str]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut files = Vec::new();
    for name in [CA_FILE].iter().chain(others) {
        let Some(path) = variables.get(name) else { continue };
        let refused = |reason: String| Failure::Refused {
            refusal: Refusal::Identity,
            answer: format!("{} ({name}): {reason}", path.display()),
        };
        let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
        if !parse_pem(&pem).any(|item| matches!(item, Ok(PemItem::Certificate(_)))) {
            return Err(refused("there is no certificate in PEM form in it".to_owned()));
        }
        files.push(pem);
    }
    Ok(files)
}

/// TLS for a client, of these versions.
pub(crate) fn client(
    settings: &Settings,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for pem in read(&settings.variables, &[])? {
        for item in parse_pem(&pem) {
            let Ok(PemItem::Certificate(certificate)) = item else { continue };
            let der = CertificateDer::from(certificate.der().to_vec());
            roots.add(der).map_err(|error| Failure::Refused {
                refusal: Refusal::Identity,
                answer: format!("a certificate in {CA_FILE}: {error}"),
            })?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions);
    let builder = builder.map_err(Failure::lost)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The name that a server's certificate must have.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, Failure> {
    ServerName::try_from(host.to_owned()).map_err(|error| Failure::Refused {
        refusal: Refusal::NoSuchPlace,
        answer: error.to_string(),
    })
}

/// Whether a failed handshake says that the server is not who it should be.
pub(crate) fn of_handshake(error: io::Error) -> Failure {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let refusal = match of_tls {
        Some(rustls::Error::InvalidCertificate(_)) => Refusal::Identity,
        Some(
            rustls::Error::AlertReceived(_)
            | rustls::Error::NoApplicationProtocol
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::PeerIncompatible(_),
        ) => Refusal::Version,
        _ => return Failure::Lost(error),
    };
    let answer = of_tls.map_or_else(|| error.to_string(), distrust);
    Failure::Refused { refusal, answer }
}

/// An error of TLS in words. If this machine trusts no certificate at all, that is the reason.
pub(crate) fn distrust(error: &rustls::Error) -> String {
    let is_unknown = *error == rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    if is_unknown && rustls_native_certs::load_native_certs().certs.is_empty() {
        return format!(
            "{error}: this machine has no list of trusted certificates (package ca-certificates); \
             {CA_FILE} may name one"
        );
    }
    error.to_string()
}
