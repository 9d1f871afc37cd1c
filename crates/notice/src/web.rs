//! Requests that carry a notice: webhooks, ntfy, Healthchecks.

use std::sync::Arc;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use url::Url;

use crate::{ATTEMPT, Notice, NoticeError, Verdict};

/// Healthchecks keeps at most this much of a text, by default.
const CHECK_BYTES_MAX: usize = 10_000;
/// ntfy makes a file of a longer message.
const TOPIC_BYTES_MAX: usize = 3_800;

pub(crate) struct Web {
    agent: Agent,
}

impl Web {
    /// Trusts what the machine trusts, and these certificates (PEM).
    pub(crate) fn new(authorities: &[Vec<u8>]) -> Self {
        let machine = rustls_native_certs::load_native_certs().certs;
        let mut roots: Vec<Certificate<'static>> = machine
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        for pem in authorities {
            roots.extend(parse_pem(pem).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            }));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // A notice that is followed elsewhere arrives there without its text.
            .max_redirects(0)
            .user_agent(concat!("strongroom/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(ATTEMPT))
            .build()
            .new_agent();
        Self { agent }
    }

    /// The notice as JSON, with its subject and text.
    pub(crate) fn post_details(&self, url: &Url, notice: &Notice) -> Result<(), NoticeError> {
        let mut body = notice.details.clone();
        if let Value::Object(fields) = &mut body {
            fields.insert("verdict".to_owned(), json!(notice.verdict.name()));
            fields.insert("subject".to_owned(), json!(notice.subject));
            // What Slack and Mattermost show.
            fields.insert("text".to_owned(), json!(format!("{}\n{}", notice.subject, notice.text)));
        }
        let headers = [("content-type", "application/json".to_owned())];
        self.post(url, &headers, body.to_string().as_bytes())
    }

    pub(crate) fn post_to_topic(
        &self,
        url: &Url,
        notice: &Notice,
        token: Option<&str>,
    ) -> Result<(), NoticeError> {
        let (priority, tag) = match notice.verdict {
            Verdict::Good => ("low", "white_check_mark"),
            Verdict::Warning => ("default", "warning"),
            Verdict::Failed => ("high", "rotating_light"),
        };
        // Headers are ASCII; the query is anything.
        let mut url = url.clone();
        url.query_pairs_mut()
            .append_pair("title", &notice.subject)
            .append_pair("priority", priority)
            .append_pair("tags", tag);
        let token = token.map(|token| ("authorization", format!("Bearer {token}")));
        let headers: Vec<(&str, String)> = token.into_iter().collect();
        self.post(&url, &headers, beginning(&notice.text, TOPIC_BYTES_MAX).as_bytes())
    }

    pub(crate) fn begin_check(&self, url: &Url) -> Result<(), NoticeError> {
        self.post(&below(url, "start"), &[], b"")
    }

    pub(crate) fn end_check(&self, url: &Url, notice: &Notice) -> Result<(), NoticeError> {
        let text = format!("{}\n\n{}", notice.subject, notice.text);
        let url = match notice.verdict {
            Verdict::Good | Verdict::Warning => url.clone(),
            Verdict::Failed => below(url, "fail"),
        };
        self.post(&url, &[], beginning(&text, CHECK_BYTES_MAX).as_bytes())
    }

    fn post(&self, url: &Url, headers: &[(&str, String)], body: &[u8]) -> Result<(), NoticeError> {
        let mut request = self.agent.post(url.as_str());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let answer = request.send(body).map_err(|error| match error {
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::BadUri(_) => {
                NoticeError::Refused(error.to_string())
            }
            error => NoticeError::Away(error.to_string()),
        })?;
        let status = answer.status();
        let said = format!("the server answers {status}");
        match status.as_u16() {
            200..300 => Ok(()),
            300..400 => {
                Err(NoticeError::Refused(format!("{said}: it has moved to another address")))
            }
            408 | 425 | 429 | 500.. => Err(NoticeError::Away(said)),
            _ => Err(NoticeError::Refused(said)),
        }
    }
}

/// The address with a further part of its path.
fn below(url: &Url, part: &str) -> Url {
    let mut url = url.clone();
    let path = format!("{}/{part}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// The beginning of a text, up to a whole character.
fn beginning(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_go_before_the_query() {
        let url = Url::parse("https://hc.example/ping/id/?x=1").unwrap();
        assert_eq!(below(&url, "fail").as_str(), "https://hc.example/ping/id/fail?x=1");
        assert_eq!(beginning("aä", 2), "a");
        assert_eq!(beginning("aä", 9), "aä");
    }
}
