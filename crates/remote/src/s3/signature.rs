//! Google's signature of a request in its URL: `GOOG4-HMAC-SHA256`.
//!
//! It is Amazon's version 4 with other words in a few places. So the words are parameters, and a
//! test signs with Amazon's and compares the result with that of `rusty-s3`. Google wants its own
//! words for requests with its own conditions (`x-goog-if-generation-match`).

use aws_lc_rs::{digest, hmac};

use crate::address::percent_encode;

/// The words in which the two signatures differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    algorithm: &'static str,
    key_prefix: &'static str,
    service: &'static str,
    terminator: &'static str,
    parameter_prefix: &'static str,
}

/// Google's words.
pub(crate) const GOOGLE: Words = Words {
    algorithm: "GOOG4-HMAC-SHA256",
    key_prefix: "GOOG4",
    service: "storage",
    terminator: "goog4_request",
    parameter_prefix: "X-Goog-",
};

/// A request that is to be signed.
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'a str,
    /// With its port if that is not the scheme's.
    pub(crate) host: &'a str,
    /// The path with %XX, as it is sent.
    pub(crate) path: &'a str,
    /// Without %XX.
    pub(crate) query: Vec<(String, String)>,
    /// With names in lower case, without `host`.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) region: &'a str,
    pub(crate) time: jiff::Timestamp,
    pub(crate) seconds: u64,
}

impl Unsigned<'_> {
    /// The signed query, to be sent after `?`.
    pub(crate) fn sign(mut self, words: Words, key: &str, secret: &str) -> String {
        self.headers.push(("host".to_owned(), self.host.to_owned()));
        self.headers.sort();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let day = self.time.strftime("%Y%m%d").to_string();
        let time = self.time.strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!("{day}/{}/{}/{}", self.region, words.service, words.terminator);
        let mut parameter = |name: &str, value: String| {
            self.query.push((format!("{}{name}", words.parameter_prefix), value));
        };
        parameter("Algorithm", words.algorithm.to_owned());
        parameter("Credential", format!("{key}/{scope}"));
        parameter("Date", time.clone());
        parameter("Expires", self.seconds.to_string());
        parameter("SignedHeaders", names.clone());
        self.query.sort();
        let pairs: Vec<String> = self
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        let query = pairs.join("&");
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let request = format!(
            "{}\n{}\n{query}\n{headers}\n{names}\nUNSIGNED-PAYLOAD",
            self.method, self.path
        );
        let hash = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let text = format!("{}\n{time}\n{scope}\n{hash}", words.algorithm);
        let mut chained = format!("{}{secret}", words.key_prefix).into_bytes();
        for part in [day.as_str(), self.region, words.service, words.terminator, &text] {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &chained);
            chained = hmac::sign(&key, part.as_bytes()).as_ref().to_vec();
        }
        format!("{query}&{}Signature={}", words.parameter_prefix, hex(&chained))
    }
}

fn encode(text: &str) -> String {
    percent_encode(text).replace('/', "%2F")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusty_s3::{Method, signing};

    const AMAZON: Words = Words {
        algorithm: "AWS4-HMAC-SHA256",
        key_prefix: "AWS4",
        service: "s3",
        terminator: "aws4_request",
        parameter_prefix: "X-Amz-",
    };

    #[test]
    fn with_amazons_words_it_is_amazons_signature() {
        let time: jiff::Timestamp = "2026-11-24T04:05:06Z".parse().unwrap();
        let query = [("list-type", "2"), ("prefix", "a b/ü+&")];
        let headers = [("x-a-b", "c d"), ("x-b", "*")];
        let theirs = signing::sign(
            &time,
            Method::Get,
            "http://127.0.0.1:8080/bucket/a%20b/c".parse().unwrap(),
            "key",
            "secret",
            None,
            "auto",
            900,
            query.into_iter(),
            headers.into_iter(),
        );
        let owned = |pairs: [(&str, &str); 2]| pairs.map(|(n, v)| (n.to_owned(), v.to_owned()));
        let ours = Unsigned {
            method: "GET",
            host: "127.0.0.1:8080",
            path: "/bucket/a%20b/c",
            query: owned(query).to_vec(),
            headers: owned(headers).to_vec(),
            region: "auto",
            time,
            seconds: 900,
        };
        let ours = ours.sign(AMAZON, "key", "secret");
        let sorted = |query: &str| {
            let mut pairs: Vec<_> = query.split('&').map(str::to_owned).collect();
            pairs.sort();
            pairs
        };
        assert_eq!(sorted(&ours), sorted(theirs.query().unwrap()));
    }
}
