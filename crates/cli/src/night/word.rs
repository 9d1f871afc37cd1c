//! Who hears of a run, and by which means.

use std::sync::Arc;

use strongroom_notice::{Courier, MailServer, Means, Notice, NoticeError, Recipient, Verdict};
use strongroom_remote::Variables;

use crate::context::Context;
use crate::machine::{host_name, user_name};

/// Who hears of a run.
#[derive(Debug, Clone)]
pub struct Word {
    /// Those who hear.
    pub recipients: Vec<Recipient>,
    /// Of runs that ended so, or worse.
    pub from_verdict: Verdict,
    /// The server that takes mail.
    pub mail_server: MailServer,
    /// Who writes.
    pub sender: Option<String>,
}

/// What became of what was said to a recipient.
pub struct Told {
    /// Who it is, in words.
    pub recipient: String,
    /// Why it did not arrive.
    pub trouble: Option<String>,
}

impl Told {
    /// Whether it arrived.
    pub fn has_arrived(&self) -> bool {
        self.trouble.is_none()
    }
}

impl Word {
    /// Says to those who want to know that the run begins; gives what failed.
    pub fn announce(&self, context: &Context) -> Vec<String> {
        let told = self.each(context, |courier, recipient| {
            matches!(recipient, Recipient::Healthchecks(_)).then(|| courier.announce(recipient))
        });
        troubles(&told)
    }

    /// Whether a recipient hears of a run that ended so.
    pub fn is_heard_by(&self, recipient: &Recipient, verdict: Verdict) -> bool {
        // A check that hears nothing raises an alarm.
        matches!(recipient, Recipient::Healthchecks(_)) || verdict >= self.from_verdict
    }

    /// Says to each recipient what there is to say to it.
    pub fn tell(
        &self,
        context: &Context,
        say: impl Fn(&Recipient) -> Option<Notice> + Sync,
    ) -> Vec<Told> {
        self.each(context, |courier, recipient| {
            say(recipient).map(|notice| courier.deliver(recipient, &notice))
        })
    }

    /// Does something for each recipient; none is for those for whom there is nothing to do.
    fn each(
        &self,
        context: &Context,
        act: impl Fn(&Courier, &Recipient) -> Option<Result<(), NoticeError>> + Sync,
    ) -> Vec<Told> {
        if self.recipients.is_empty() {
            return Vec::new();
        }
        let courier = match self.courier(context) {
            Ok(courier) => courier,
            Err(why) => {
                let trouble = Some(format!("no notice can be sent: {why}"));
                let told = |recipient: &Recipient| Told {
                    recipient: recipient.to_string(),
                    trouble: trouble.clone(),
                };
                return self.recipients.iter().map(told).collect();
            }
        };
        // At the same time: one that is away does not keep the others waiting.
        std::thread::scope(|scope| {
            let (courier, act) = (&courier, &act);
            let each = self
                .recipients
                .iter()
                .map(|recipient| (recipient, scope.spawn(move || act(courier, recipient))));
            let started: Vec<_> = each.collect();
            let ended = started.into_iter().filter_map(|(recipient, thread)| {
                let trouble = match thread.join() {
                    Ok(None) => return None,
                    Ok(Some(Ok(()))) => None,
                    Ok(Some(Err(error))) => Some(format!("no notice to {recipient}: {error}")),
                    Err(_) => Some(format!("no notice to {recipient}: it failed")),
                };
                Some(Told { recipient: recipient.to_string(), trouble })
            });
            ended.collect()
        })
    }

    fn courier(&self, context: &Context) -> Result<Courier, String> {
        let variables = Variables::new(std::env::vars_os());
        let mut mail_server = self.mail_server.clone();
        let is_mail = |recipient: &Recipient| matches!(recipient, Recipient::Mail(_));
        if mail_server.has_user() && self.recipients.iter().any(is_mail) {
            let hint = "there is no password: set SMTP_PASSWORD, SMTP_PASSWORD_FILE or SMTP_PASSWORD_COMMAND";
            mail_server =
                mail_server.with_password(variables.secret("SMTP_PASSWORD")?.ok_or(hint)?);
        }
        let from = self.sender.clone();
        let from = from.unwrap_or_else(|| format!("Strongroom <{}@{}>", user_name(), host_name()));
        let token = variables.secret("NTFY_TOKEN")?.map(|token| String::clone(&token));
        let authorities = variables.authorities()?;
        let cancel = context.cancel.clone();
        Ok(Courier::new(Means {
            mail_server,
            from,
            ntfy_token: token,
            authorities,
            is_over: Arc::new(move || cancel.is_cancelled()),
        }))
    }
}

/// What failed, each of it once.
pub fn troubles(told: &[Told]) -> Vec<String> {
    let mut troubles: Vec<String> = told.iter().filter_map(|one| one.trouble.clone()).collect();
    troubles.dedup();
    troubles
}
