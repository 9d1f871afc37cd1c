//! Certificates of authorities that only this user trusts, for every place over TLS.

use strongroom_backend::Refusal;
use ureq::tls::{PemItem, parse_pem};

use crate::failure::Failure;
use crate::settings::Variables;

/// The variable that names a file of certificates for all kinds of places.
pub(crate) const CA_FILE: &str = "STRONGROOM_CA_FILE";

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
