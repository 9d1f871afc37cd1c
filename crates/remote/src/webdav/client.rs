//! Requests to a WebDAV server, with the user's password.

use strongroom_backend::Refusal;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::http::{Answer, Http, MESSAGE_BYTES_MAX, Request};

/// What every request of one user has.
pub(super) struct Client {
    pub(super) http: Http,
    pub(super) user: Option<String>,
    /// The header of this name.
    pub(super) authorization: Option<Zeroizing<String>>,
}

impl Client {
    /// Makes one attempt. An answer has at most `max` bytes.
    pub(super) fn call(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, String)],
        body: &[u8],
        max: usize,
    ) -> Result<Answer, Failure> {
        let mut all = headers.to_vec();
        if let Some(authorization) = &self.authorization {
            all.push(("authorization", authorization.to_string()));
        }
        let answer_bytes_max = max.max(MESSAGE_BYTES_MAX);
        let request = Request { method, url, headers: &all, body, answer_bytes_max };
        let answer = self.http.call(&request)?;
        match answer.status.as_u16() {
            300..=399 => Err(redirected(&answer)),
            401 => Err(self.unauthorized(&answer)),
            _ => Ok(answer),
        }
    }

    fn unauthorized(&self, answer: &Answer) -> Failure {
        let wants_basic = answer.headers.get_all("www-authenticate").iter().any(|value| {
            value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("basic"))
        });
        let (refusal, text) = match &self.user {
            None => (
                Refusal::NoCredentials,
                "the server wants a user: write the name into the address, as in \
                 webdavs://USER@HOST/PATH, and set WEBDAV_PASSWORD"
                    .to_owned(),
            ),
            Some(user) if wants_basic => {
                (Refusal::Credentials, format!("the server refuses the password of {user}"))
            }
            Some(_) => (
                Refusal::Credentials,
                "the server takes no passwords of the kind `Basic`, and this program knows no other"
                    .to_owned(),
            ),
        };
        Failure::Refused { refusal, answer: text }
    }
}

/// A redirection is not followed: it could lead the password elsewhere, and cost each request twice.
fn redirected(answer: &Answer) -> Failure {
    let text = match answer.header("location") {
        Some(location) => format!("the server says that it is at {location}: use that address"),
        None => answer.message(),
    };
    Failure::Refused { refusal: Refusal::NoSuchPlace, answer: text }
}
