//! How the stores that speak S3 differ: names of headers, signatures, and where they are.

use rusty_s3::{Bucket, Credentials, UrlStyle};
use serde_json::Value;
use strongroom_backend::Refusal;

use crate::address::Address;
use crate::failure::Failure;
use crate::http::{Http, MESSAGE_BYTES_MAX, Request};
use crate::s3::credentials::Provider;
use crate::s3::profile::Profile;
use crate::secret;
use crate::settings::{Settings, Variables};

/// Where Google's store is.
const GOOGLE: &str = "https://storage.googleapis.com";
/// Where Backblaze says which of its stores has an account's buckets.
const BACKBLAZE: &str = "https://api.backblazeb2.com/b2api/v3/b2_authorize_account";
/// How often Backblaze is asked before its failure is reported.
const BACKBLAZE_ATTEMPTS: usize = 3;

/// Whose words are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Those of Amazon, which most others speak too.
    Amazon,
    /// Google's: its conditions are its own, and need its own signature.
    Google,
    /// Amazon's, without conditions.
    Backblaze,
}

impl Dialect {
    /// The header that makes a PUT fail if the name is taken.
    pub(crate) fn only_if_new(self) -> (&'static str, String) {
        match self {
            Self::Google => ("x-goog-if-generation-match", "0".to_owned()),
            Self::Amazon | Self::Backblaze => ("if-none-match", "*".to_owned()),
        }
    }

    /// The header with the CRC-32C of a body, in base64.
    pub(crate) fn checksum(self, sum: &str) -> (&'static str, String) {
        match self {
            Self::Google => ("x-goog-hash", format!("crc32c={sum}")),
            Self::Amazon | Self::Backblaze => ("x-amz-checksum-crc32c", sum.to_owned()),
        }
    }

    /// The header that names what is copied.
    pub(crate) fn copy_source(self) -> &'static str {
        match self {
            Self::Google => "x-goog-copy-source",
            Self::Amazon | Self::Backblaze => "x-amz-copy-source",
        }
    }

    /// The header with an object's storage class.
    pub(crate) fn storage_class(self) -> &'static str {
        match self {
            Self::Google => "x-goog-storage-class",
            Self::Amazon | Self::Backblaze => "x-amz-storage-class",
        }
    }

    /// Whether long objects go in parts. Google's conditions are not for those.
    pub(crate) fn has_parts(self) -> bool {
        self != Self::Google
    }
}

/// A store, and what lets us in.
pub(crate) struct Store {
    pub(crate) dialect: Dialect,
    pub(crate) bucket: Bucket,
    pub(crate) provider: Provider,
    /// Whether it is a service that promises to show at once what was written.
    pub(crate) is_known: bool,
}

impl Store {
    /// Amazon's, or the one that its variables and files name.
    pub(crate) fn amazon(address: &Address, settings: &Settings) -> Result<Self, Failure> {
        let variables = &settings.variables;
        let profile = Profile::read(variables);
        let region = ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .iter()
            .find_map(|name| variables.text(name))
            .or_else(|| profile.get("region"))
            .unwrap_or("us-east-1");
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .iter()
            .find_map(|name| variables.text(name))
            .or_else(|| profile.get("endpoint_url"));
        // A bucket with a dot in its name has no certificate of its own.
        let style = match endpoint {
            None if !address.host.contains('.') => UrlStyle::VirtualHost,
            _ => UrlStyle::Path,
        };
        let amazon = format!("https://s3.{region}.amazonaws.com");
        Ok(Self {
            dialect: Dialect::Amazon,
            bucket: bucket(endpoint.unwrap_or(&amazon), style, address, region)?,
            provider: Provider::new(&profile, settings),
            is_known: endpoint.is_none(),
        })
    }

    /// Google's, with keys for its interface that speaks XML ("HMAC keys").
    pub(crate) fn google(address: &Address, settings: &Settings) -> Result<Self, Failure> {
        let variables = &settings.variables;
        let keys = keys(variables, "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY")?;
        let endpoint = variables.text("GS_ENDPOINT");
        Ok(Self {
            dialect: Dialect::Google,
            bucket: bucket(endpoint.unwrap_or(GOOGLE), UrlStyle::Path, address, "auto")?,
            provider: Provider::fixed(keys),
            is_known: endpoint.is_none(),
        })
    }

    /// Backblaze's. Which of its stores has the account's buckets, it says itself.
    pub(crate) fn backblaze(
        address: &Address,
        settings: &Settings,
        http: &Http,
    ) -> Result<Self, Failure> {
        let variables = &settings.variables;
        let keys = keys(variables, "B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY")?;
        let given = variables.text("B2_ENDPOINT");
        let endpoint = match given {
            Some(endpoint) => endpoint.to_owned(),
            None => ask_backblaze(&keys, http)?,
        };
        // Such as https://s3.us-west-004.backblazeb2.com
        let region = endpoint
            .split_once("://s3.")
            .and_then(|(_, rest)| rest.split('.').next())
            .unwrap_or("us-east-1");
        Ok(Self {
            dialect: Dialect::Backblaze,
            bucket: bucket(&endpoint, UrlStyle::Path, address, region)?,
            provider: Provider::fixed(keys),
            is_known: given.is_none(),
        })
    }
}

fn bucket(
    endpoint: &str,
    style: UrlStyle,
    address: &Address,
    region: &str,
) -> Result<Bucket, Failure> {
    let refused = |answer| Failure::Refused { refusal: Refusal::NoSuchPlace, answer };
    let url = endpoint
        .parse()
        .map_err(|error| refused(format!("the end point {endpoint:?} is no URL: {error}")))?;
    Bucket::new(url, style, address.host.clone(), region.to_owned())
        .map_err(|error| refused(error.to_string()))
}

/// A pair of keys: the first in a variable, the second a secret.
fn keys(variables: &Variables, public: &str, hidden: &str) -> Result<Credentials, Failure> {
    let missing = |name: &str| Failure::Refused {
        refusal: Refusal::NoCredentials,
        answer: format!("{name} is not set"),
    };
    let key = variables.text(public).ok_or_else(|| missing(public))?;
    let secret = secret::find(variables, hidden)?.ok_or_else(|| missing(hidden))?;
    Ok(Credentials::new(key, secret.as_str()))
}

fn ask_backblaze(keys: &Credentials, http: &Http) -> Result<String, Failure> {
    let pair = zeroize::Zeroizing::new(format!("{}:{}", keys.key(), keys.secret()));
    let headers = [("authorization", format!("Basic {}", crate::s3::base64(pair.as_bytes())))];
    let request = Request {
        method: "GET",
        url: BACKBLAZE,
        headers: &headers,
        body: &[],
        answer_bytes_max: MESSAGE_BYTES_MAX,
    };
    let mut attempt = 1;
    let answer = loop {
        match http.call(&request) {
            Err(Failure::Lost(_)) if attempt < BACKBLAZE_ATTEMPTS => attempt += 1,
            other => break other?,
        }
    };
    if !answer.status.is_success() {
        return Err(answer.failure());
    }
    let value: Value = serde_json::from_slice(&answer.body).map_err(Failure::lost)?;
    store_of(&value).ok_or_else(|| Failure::lost("Backblaze did not say where its store is"))
}

/// The URL in the answer of `b2_authorize_account`: version 3, or those before it.
fn store_of(value: &Value) -> Option<String> {
    let url = value["apiInfo"]["storageApi"]["s3ApiUrl"].as_str().or(value["s3ApiUrl"].as_str());
    url.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backblaze_says_where_its_store_is() {
        for text in [
            r#"{"apiInfo": {"storageApi": {"s3ApiUrl": "https://s3.eu.example"}}}"#,
            r#"{"s3ApiUrl": "https://s3.eu.example"}"#,
        ] {
            let value = serde_json::from_str(text).unwrap();
            assert_eq!(store_of(&value).as_deref(), Some("https://s3.eu.example"));
        }
        assert_eq!(store_of(&Value::Null), None);
    }
}
