//! Mail, through a server that takes it (RFC 5321).

use std::fmt;
use std::str::FromStr;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{Address, Message, SmtpTransport, Transport};
use url::Url;
use zeroize::Zeroizing;

use crate::{ATTEMPT, Notice, NoticeError, Verdict};

/// A server that takes mail: `smtp://HOST`, `smtp://USER@HOST:PORT`, `smtps://USER@HOST`.
///
/// `smtps` is encrypted from its first byte (port 465). With a user, `smtp` goes on encrypted
/// (STARTTLS, port 587), or not at all; without one it is encrypted if the server can (port 25).
#[derive(Clone, PartialEq, Eq)]
pub struct MailServer {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<Zeroizing<String>>,
    security: Security,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Security {
    /// From the first byte.
    Always,
    /// Before anything is said that matters.
    Required,
    /// If the server can.
    Possible,
}

/// Why a text names no server for mail.
#[derive(Debug, thiserror::Error)]
pub enum MailServerError {
    /// Not such an address.
    #[error("\"{0}\" is no mail server: write smtp://HOST or smtps://USER@HOST")]
    Address(String),
    /// It has a password in it.
    #[error("there is a password in the address of the mail server: other users can read it")]
    Password,
}

impl FromStr for MailServer {
    type Err = MailServerError;

    fn from_str(text: &str) -> Result<Self, MailServerError> {
        let wrong = || MailServerError::Address(text.to_owned());
        let url = Url::parse(text).map_err(|_| wrong())?;
        if url.password().is_some() {
            return Err(MailServerError::Password);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        // A user often is an address of mail itself.
        let user = (!url.username().is_empty()).then(|| url.username().replace("%40", "@"));
        let (port, security) = match (url.scheme(), &user) {
            ("smtps", _) => (465, Security::Always),
            ("smtp", Some(_)) => (587, Security::Required),
            ("smtp", None) => (25, Security::Possible),
            _ => return Err(wrong()),
        };
        let (host, port) = (host.to_owned(), url.port().unwrap_or(port));
        Ok(Self { host, port, user, password: None, security })
    }
}

impl fmt::Debug for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MailServer").field(&self.host).field(&self.port).finish()
    }
}

impl MailServer {
    /// Whether it wants a password.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// The same with a password.
    #[must_use]
    pub fn with_password(mut self, password: Zeroizing<String>) -> Self {
        self.password = Some(password);
        self
    }

    pub(crate) fn send(
        &self,
        from: Mailbox,
        to: &Address,
        notice: &Notice,
        authorities: &[Vec<u8>],
    ) -> Result<(), NoticeError> {
        let message = |error: lettre::error::Error| NoticeError::Message(error.to_string());
        let mut mail = Message::builder()
            .from(from)
            .to(Mailbox::new(None, to.clone()))
            .subject(&notice.subject)
            .date_now()
            .message_id(None)
            .header(ContentType::TEXT_PLAIN);
        if notice.verdict == Verdict::Failed {
            mail = mail.header(Priority);
        }
        let mail = mail.body(notice.text.clone()).map_err(message)?;
        self.transport(authorities)?.send(&mail).map(drop).map_err(|error| {
            let text = in_full(&error);
            // A certificate that is refused stays refused; it comes as an error of the connection.
            let is_tls = error.is_tls() || text.contains("certificate");
            if error.is_permanent() || error.is_client() || is_tls {
                NoticeError::Refused(text)
            } else {
                NoticeError::Away(text)
            }
        })
    }

    fn transport(&self, authorities: &[Vec<u8>]) -> Result<SmtpTransport, NoticeError> {
        let refused = |error| NoticeError::Refused(in_full(&error));
        let mut tls = TlsParameters::builder(self.host.clone());
        for pem in authorities {
            tls = tls.add_root_certificate(Certificate::from_pem(pem).map_err(refused)?);
        }
        let tls = tls.build().map_err(refused)?;
        let mut builder = SmtpTransport::builder_dangerous(&self.host)
            .port(self.port)
            .timeout(Some(ATTEMPT))
            .tls(match self.security {
                Security::Always => Tls::Wrapper(tls),
                Security::Required => Tls::Required(tls),
                Security::Possible => Tls::Opportunistic(tls),
            });
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            let password: &String = password;
            builder = builder.credentials(Credentials::new(user.clone(), password.clone()));
        }
        Ok(builder.build())
    }
}

/// An error with what caused it.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Asks readers of mail to show it first.
#[derive(Clone)]
struct Priority;

impl lettre::message::header::Header for Priority {
    fn name() -> lettre::message::header::HeaderName {
        lettre::message::header::HeaderName::new_from_ascii_str("X-Priority")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> lettre::message::header::HeaderValue {
        lettre::message::header::HeaderValue::new(Self::name(), "1 (Highest)".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_goes_in_the_clear() {
        let server = |text: &str| text.parse::<MailServer>().unwrap();
        assert_eq!(server("smtp://localhost").port, 25);
        let with_user = server("smtp://anna%40example.org@mail.example.org");
        assert_eq!((with_user.port, with_user.security), (587, Security::Required));
        assert_eq!(with_user.user.as_deref(), Some("anna@example.org"));
        assert_eq!(server("smtps://anna@mail.example.org").security, Security::Always);
        assert_eq!(server("smtp://127.0.0.1:2525").port, 2525);
        for wrong in ["", "localhost", "http://localhost", "smtp://", "smtp://a:b@localhost"] {
            assert!(wrong.parse::<MailServer>().is_err(), "{wrong}");
        }
    }
}
