//! `SharedKey`: how a request to Azure's blobs is signed by the account's key.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use strongroom_base::Timestamp;

/// What is signed.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    pub(crate) account: &'a str,
    /// The path of the URL as it is sent, with %XX.
    pub(crate) path: &'a str,
    /// The query without %XX, in any order.
    pub(crate) query: &'a [(&'a str, String)],
    /// All headers but `content-length` and `authorization`, with names in lower case.
    pub(crate) headers: &'a [(&'a str, String)],
    pub(crate) body_bytes: usize,
}

impl Signed<'_> {
    /// The value of the header `authorization`.
    pub(crate) fn authorization(&self, key: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let signature = hmac::sign(&key, self.text().as_bytes());
        format!("SharedKey {}:{}", self.account, BASE64.encode(signature))
    }

    fn text(&self) -> String {
        let header = |wanted: &str| {
            let found = self.headers.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let length = if self.body_bytes == 0 { String::new() } else { self.body_bytes.to_string() };
        let mut lines = vec![
            self.method.to_owned(),
            header("content-encoding").to_owned(),
            header("content-language").to_owned(),
            length,
        ];
        let others = [
            "content-md5",
            "content-type",
            "date",
            "if-modified-since",
            "if-match",
            "if-none-match",
            "if-unmodified-since",
            "range",
        ];
        lines.extend(others.map(|name| header(name).to_owned()));
        let sorted = |pairs: &[(&str, String)]| {
            let mut sorted: Vec<_> =
                pairs.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            sorted.sort();
            sorted
        };
        let own: Vec<_> =
            self.headers.iter().filter(|(name, _)| name.starts_with("x-ms-")).cloned().collect();
        lines.extend(sorted(&own));
        lines.push(format!("/{}{}", self.account, self.path));
        lines.extend(sorted(self.query));
        lines.join("\n")
    }
}

/// A time as the header `x-ms-date` wants it.
pub(crate) fn date(now: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(now.0))
        .expect("a clock's years are within those of a calendar");
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Microsoft's "Authorize with Shared Key", with its parameters in our order.
    #[test]
    fn the_signed_text_is_that_of_the_documentation() {
        let headers = [
            ("x-ms-version", "2015-02-21".to_owned()),
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT".to_owned()),
        ];
        let query = [
            ("restype", "container".to_owned()),
            ("comp", "metadata".to_owned()),
            ("timeout", "20".to_owned()),
        ];
        let signed = Signed {
            method: "GET",
            account: "myaccount",
            path: "/mycontainer",
            query: &query,
            headers: &headers,
            body_bytes: 0,
        };
        assert_eq!(
            signed.text(),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n\
             x-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\n\
             timeout:20"
        );
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(date(Timestamp(1_435_361_952_000_000_000)), "Fri, 26 Jun 2015 23:39:12 GMT");
    }
}
