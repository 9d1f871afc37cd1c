//! Which account of Azure, where it is, and what lets us in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use strongroom_backend::Refusal;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::secret;
use crate::settings::Variables;

/// An account and what lets us in.
pub(crate) struct Access {
    pub(crate) account: String,
    /// The beginning of each URL, without a slash at its end.
    pub(crate) origin: String,
    /// The path before the container: empty, or the account's name at Azurite.
    pub(crate) path: String,
    pub(crate) keys: Keys,
}

/// What lets us in.
pub(crate) enum Keys {
    /// The account's key.
    Shared(Zeroizing<Vec<u8>>),
    /// A shared access signature: a part of a URL's query.
    Token(Zeroizing<String>),
}

impl Access {
    /// From `AZURE_STORAGE_CONNECTION_STRING`, or from the variables for its parts.
    pub(crate) fn find(variables: &Variables) -> Result<Self, Failure> {
        let whole = secret::find(variables, "AZURE_STORAGE_CONNECTION_STRING")?;
        let part = |wanted: &str| {
            let parts = whole.as_deref().map(String::as_str).unwrap_or_default().split(';');
            let found = parts
                .filter_map(|part| part.split_once('='))
                .find(|(name, value)| name.trim() == wanted && !value.trim().is_empty());
            found.map(|(_, value)| value.trim().to_owned())
        };
        let variable = |name: &str| variables.text(name).map(str::to_owned);
        let key = match part("AccountKey") {
            Some(key) => Some(Zeroizing::new(key)),
            None => secret::find(variables, "AZURE_STORAGE_KEY")?,
        };
        let token = match part("SharedAccessSignature") {
            Some(token) => Some(Zeroizing::new(token)),
            None => secret::find(variables, "AZURE_STORAGE_SAS_TOKEN")?,
        };
        let endpoint = variable("AZURE_STORAGE_ENDPOINT").or_else(|| part("BlobEndpoint"));
        let account = part("AccountName")
            .or_else(|| variable("AZURE_STORAGE_ACCOUNT"))
            .or_else(|| account_of(endpoint.as_deref()?))
            .ok_or_else(|| missing("AZURE_STORAGE_ACCOUNT has no account's name"))?;
        let endpoint = endpoint.unwrap_or_else(|| {
            let scheme = part("DefaultEndpointsProtocol").unwrap_or_else(|| "https".to_owned());
            let suffix = part("EndpointSuffix").unwrap_or_else(|| "core.windows.net".to_owned());
            format!("{scheme}://{account}.blob.{suffix}")
        });
        let (origin, path) = split(&endpoint).ok_or_else(|| Failure::Refused {
            refusal: Refusal::NoSuchPlace,
            answer: format!("the end point {endpoint:?} is no URL"),
        })?;
        Ok(Self { account, origin, path, keys: keys(key, token)? })
    }
}

fn keys(key: Option<Zeroizing<String>>, token: Option<Zeroizing<String>>) -> Result<Keys, Failure> {
    if let Some(key) = key {
        let bytes = BASE64.decode(key.trim()).map_err(|_| Failure::Refused {
            refusal: Refusal::Credentials,
            answer: "the account's key is not in base64".to_owned(),
        })?;
        return Ok(Keys::Shared(Zeroizing::new(bytes)));
    }
    let token = token
        .ok_or_else(|| missing("neither AZURE_STORAGE_KEY nor AZURE_STORAGE_SAS_TOKEN is set"))?;
    Ok(Keys::Token(Zeroizing::new(token.trim().trim_start_matches('?').to_owned())))
}

/// The account in an end point such as `https://ACCOUNT.blob.core.windows.net`.
fn account_of(endpoint: &str) -> Option<String> {
    let (_, rest) = endpoint.split_once("://")?;
    let (account, rest) = rest.split_once('.')?;
    rest.starts_with("blob.").then(|| account.to_owned())
}

/// A URL's beginning and its path, neither with a slash at its end.
fn split(url: &str) -> Option<(String, String)> {
    let url = url.trim_end_matches('/');
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "http" | "https") || rest.is_empty() {
        return None;
    }
    let (host, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    Some((format!("{scheme}://{host}"), path.to_owned()))
}

fn missing(answer: &str) -> Failure {
    Failure::Refused { refusal: Refusal::NoCredentials, answer: answer.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pairs: &[(&str, &str)]) -> Result<Access, Failure> {
        Access::find(&Variables::new(pairs.iter().map(|(n, v)| (n.into(), v.into()))))
    }

    #[test]
    fn accounts_are_found_in_each_way_to_name_them() {
        let of = |pairs: &[(&str, &str)]| {
            let access = find(pairs).unwrap();
            (access.account, format!("{}{}", access.origin, access.path))
        };
        let wanted = ("me".to_owned(), "https://me.blob.core.windows.net".to_owned());
        let key = ("AZURE_STORAGE_KEY", "a2V5");
        assert_eq!(of(&[("AZURE_STORAGE_ACCOUNT", "me"), key]), wanted);
        assert_eq!(of(&[("AZURE_STORAGE_ENDPOINT", &wanted.1), key]), wanted);
        let text = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5==;\
                    EndpointSuffix=core.windows.net";
        assert_eq!(of(&[("AZURE_STORAGE_CONNECTION_STRING", &text.replace("==", ""))]), wanted);
        let at = ("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1/me/");
        let here = ("me".to_owned(), "http://127.0.0.1:1/me".to_owned());
        assert_eq!(of(&[("AZURE_STORAGE_ACCOUNT", "me"), at, key]), here);
        let token =
            find(&[("AZURE_STORAGE_ACCOUNT", "me"), ("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=x")]);
        assert!(matches!(token.unwrap().keys, Keys::Token(text) if *text == "sv=1&sig=x"));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (pairs, says) in [
            (&[][..], "AZURE_STORAGE_ACCOUNT"),
            (&[("AZURE_STORAGE_ACCOUNT", "me")], "AZURE_STORAGE_KEY"),
            (&[("AZURE_STORAGE_ACCOUNT", "me"), ("AZURE_STORAGE_KEY", "%")], "base64"),
        ] {
            let Err(Failure::Refused { answer, .. }) = find(pairs) else { panic!("{says}") };
            assert!(answer.contains(says), "{answer}");
        }
    }
}
