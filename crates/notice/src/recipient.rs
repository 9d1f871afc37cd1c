//! Who hears of it, as a person writes it.

use std::fmt;
use std::str::FromStr;

use lettre::Address;
use url::Url;

/// Who hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// `mailto:ADDRESS`: a mail.
    Mail(Address),
    /// `https://…`: a request with the notice as JSON.
    Webhook(Url),
    /// `ntfy:https://HOST/TOPIC`: a message to everyone who reads the topic.
    Ntfy(Url),
    /// `healthchecks:https://HOST/ID`: a check that hears of each beginning and each end, and
    /// raises an alarm itself if it hears of none.
    Healthchecks(Url),
}

/// Why a text is no recipient.
#[derive(Debug, thiserror::Error)]
pub enum RecipientError {
    /// None of the known kinds.
    #[error(
        "\"{0}\" is no recipient: write mailto:ADDRESS, https://URL, ntfy:https://HOST/TOPIC or \
         healthchecks:https://HOST/ID"
    )]
    Kind(String),
    /// Not an address of mail.
    #[error("\"{0}\" is no address of mail such as anna@example.org")]
    Address(String),
    /// Not an address of the web.
    #[error("\"{address}\" is no address of the web: {reason}")]
    Web {
        /// What was written.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(text: &str) -> Result<Self, RecipientError> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(RecipientError::Kind(text.to_owned()));
        };
        Ok(match kind {
            "mailto" => {
                let wrong = |_| RecipientError::Address(rest.to_owned());
                Self::Mail(rest.parse().map_err(wrong)?)
            }
            "http" | "https" => Self::Webhook(web(text)?),
            "ntfy" => Self::Ntfy(web(rest)?),
            "healthchecks" => Self::Healthchecks(web(rest)?),
            _ => return Err(RecipientError::Kind(text.to_owned())),
        })
    }
}

fn web(text: &str) -> Result<Url, RecipientError> {
    let wrong = |reason: String| RecipientError::Web { address: text.to_owned(), reason };
    let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it begins with https://".to_owned()));
    }
    if !url.has_host() {
        return Err(wrong("it names no host".to_owned()));
    }
    Ok(url)
}

/// Without what gives access: paths and queries of these addresses often are secrets.
impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |url: &Url| url.host_str().unwrap_or_default().to_owned();
        match self {
            Self::Mail(address) => write!(f, "{address}"),
            Self::Webhook(url) => write!(f, "the webhook at {}", host(url)),
            Self::Ntfy(url) => write!(f, "ntfy at {}", host(url)),
            Self::Healthchecks(url) => write!(f, "Healthchecks at {}", host(url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_are_what_people_write() {
        for (text, shown) in [
            ("mailto:anna@example.org", "anna@example.org"),
            ("https://example.org/hook?key=secret", "the webhook at example.org"),
            ("ntfy:https://ntfy.sh/secret", "ntfy at ntfy.sh"),
            ("healthchecks:https://hc-ping.com/secret", "Healthchecks at hc-ping.com"),
        ] {
            assert_eq!(text.parse::<Recipient>().unwrap().to_string(), shown, "{text}");
        }
        for (text, reason) in [
            ("anna@example.org", "is no recipient"),
            ("gopher://example.org", "is no recipient"),
            ("mailto:anna", "is no address of mail"),
            ("mailto:a@b\r\nBcc: c@d", "is no address of mail"),
            ("https://", "is no address of the web"),
            ("ntfy:topic", "is no address of the web"),
            ("healthchecks:ftp://example.org/x", "it begins with https://"),
        ] {
            let error = text.parse::<Recipient>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
