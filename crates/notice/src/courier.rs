//! Delivers notices: each a few times, if the server is away.

use std::sync::Arc;
use std::time::Duration;

use lettre::message::Mailbox;

use crate::mail::MailServer;
use crate::recipient::Recipient;
use crate::web::Web;
use crate::{Notice, NoticeError};

/// How often a notice is tried, with a pause behind each attempt but the last.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];

/// With what a courier delivers.
#[derive(Clone)]
pub struct Means {
    /// The server that takes mail.
    pub mail_server: MailServer,
    /// Who writes, as an address of mail.
    pub from: String,
    /// The token for ntfy, if it wants one.
    pub ntfy_token: Option<String>,
    /// Certificates (PEM) that are trusted beside those of the machine.
    pub authorities: Vec<Vec<u8>>,
    /// Whether to stop: asked before each pause ends.
    pub is_over: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Delivers notices.
pub struct Courier {
    means: Means,
    web: Web,
}

impl Courier {
    /// One with these means.
    pub fn new(means: Means) -> Self {
        let web = Web::new(&means.authorities);
        Self { means, web }
    }

    /// Says to a recipient how something ended.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or is away each time.
    pub fn deliver(&self, recipient: &Recipient, notice: &Notice) -> Result<(), NoticeError> {
        self.try_often(|| match recipient {
            Recipient::Mail(to) => {
                let from: Mailbox = self.means.from.parse().map_err(|error| {
                    NoticeError::Message(format!("the sender \"{}\": {error}", self.means.from))
                })?;
                self.means.mail_server.send(from, to, notice, &self.means.authorities)
            }
            Recipient::Webhook(url) => self.web.post_details(url, notice),
            Recipient::Ntfy(url) => {
                self.web.post_to_topic(url, notice, self.means.ntfy_token.as_deref())
            }
            Recipient::Healthchecks(url) => self.web.end_check(url, notice),
        })
    }

    /// Says to a recipient that something begins, if that is of use to it.
    ///
    /// # Errors
    ///
    /// As [`Self::deliver`].
    pub fn announce(&self, recipient: &Recipient) -> Result<(), NoticeError> {
        match recipient {
            Recipient::Healthchecks(url) => self.try_often(|| self.web.begin_check(url)),
            _ => Ok(()),
        }
    }

    fn try_often(&self, attempt: impl Fn() -> Result<(), NoticeError>) -> Result<(), NoticeError> {
        for pause in PAUSES {
            match attempt() {
                Err(NoticeError::Away(_)) if !(self.means.is_over)() => std::thread::sleep(pause),
                outcome => return outcome,
            }
        }
        attempt()
    }
}
