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
        let wanted = |recipient: &Recipient| matches!(recipient, Recipient::Healthchecks(_));
        let told = self.each(context, wanted, |courier, recipient| courier.announce(recipient));
        troubles(&told)
    }

    /// Whether a recipient hears of a run that ended so.
    pub fn is_heard_by(&self, recipient: &Recipient, verdict: Verdict) -> bool {
        // A check that hears nothing raises an alarm.
        matches!(recipient, Recipient::Healthchecks(_)) || verdict >= self.from_verdict
    }

    /// The name of a recipient in records: its text, which has no secret, and a number if others before it have
    /// the same one.
    pub fn name_of(&self, recipient: &Recipient) -> String {
        let text = recipient.to_string();
        let before = self.recipients.iter().take_while(|one| *one != recipient);
        match before.filter(|one| one.to_string() == text).count() {
            0 => text,
            others => format!("{text} ({})", others + 1),
        }
    }

    /// Says to each recipient what there is to say to it.
    pub fn tell(
        &self,
        context: &Context,
        say: impl Fn(&Recipient) -> Option<Notice> + Sync,
    ) -> Vec<Told> {
        let wanted = |recipient: &Recipient| say(recipient).is_some();
        self.each(context, wanted, |courier, recipient| {
            say(recipient).map_or(Ok(()), |notice| courier.deliver(recipient, &notice))
        })
    }

    /// Does something for each recipient that is wanted. What one lacks, such as a password, is no matter of the
    /// others.
    fn each(
        &self,
        context: &Context,
        is_wanted: impl Fn(&Recipient) -> bool,
        act: impl Fn(&Courier, &Recipient) -> Result<(), NoticeError> + Sync,
    ) -> Vec<Told> {
        let act = |recipient: &Recipient| match self.courier(context, recipient) {
            Ok(courier) => act(&courier, recipient).map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        let wanted: Vec<&Recipient> = self.recipients.iter().filter(|one| is_wanted(one)).collect();
        // At the same time: one that is away does not keep the others waiting.
        std::thread::scope(|scope| {
            let act = &act;
            let each = wanted.iter().map(|&one| (one, scope.spawn(move || act(one))));
            let started: Vec<_> = each.collect();
            let ended = started.into_iter().map(|(recipient, thread)| {
                let trouble = match thread.join() {
                    Ok(Ok(())) => None,
                    Ok(Err(why)) => Some(format!("no notice to {recipient}: {why}")),
                    Err(_) => Some(format!("no notice to {recipient}: it failed")),
                };
                Told { recipient: self.name_of(recipient), trouble }
            });
            ended.collect()
        })
    }

    fn courier(&self, context: &Context, recipient: &Recipient) -> Result<Courier, String> {
        let variables = Variables::new(std::env::vars_os());
        let mut mail_server = self.mail_server.clone();
        if mail_server.has_user() && matches!(recipient, Recipient::Mail(_)) {
            let hint = "there is no password: set SMTP_PASSWORD, SMTP_PASSWORD_FILE or SMTP_PASSWORD_COMMAND";
            mail_server =
                mail_server.with_password(variables.secret("SMTP_PASSWORD")?.ok_or(hint)?);
        }
        let from = self.sender.clone();
        let from = from.unwrap_or_else(|| format!("Strongroom <{}@{}>", user_name(), host_name()));
        let token = match recipient {
            Recipient::Ntfy(_) => {
                variables.secret("NTFY_TOKEN")?.map(|token| String::clone(&token))
            }
            _ => None,
        };
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
