//! Who hears of a run, and by which means.

use std::sync::Arc;

use strongroom_notice::{Courier, MailServer, Means, Notice, Recipient, Verdict};
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

impl Word {
    /// Says to those who want to know that the run begins; gives what failed.
    pub fn announce(&self, context: &Context) -> Vec<String> {
        self.each(context, |courier, recipient| courier.announce(recipient))
    }

    /// Says how the run ended; gives what failed.
    pub fn tell(&self, context: &Context, notice: &Notice) -> Vec<String> {
        self.each(context, |courier, recipient| {
            // A check that hears nothing raises an alarm.
            let hears_all = matches!(recipient, Recipient::Healthchecks(_));
            match hears_all || notice.verdict >= self.from_verdict {
                true => courier.deliver(recipient, notice),
                false => Ok(()),
            }
        })
    }

    fn each(
        &self,
        context: &Context,
        act: impl Fn(&Courier, &Recipient) -> Result<(), strongroom_notice::NoticeError> + Sync,
    ) -> Vec<String> {
        if self.recipients.is_empty() {
            return Vec::new();
        }
        let courier = match self.courier(context) {
            Ok(courier) => courier,
            Err(why) => return vec![format!("no notice can be sent: {why}")],
        };
        // At the same time: one that is away does not keep the others waiting.
        std::thread::scope(|scope| {
            let (courier, act) = (&courier, &act);
            let each = self
                .recipients
                .iter()
                .map(|recipient| (recipient, scope.spawn(move || act(courier, recipient))));
            let started: Vec<_> = each.collect();
            let mut troubles = Vec::new();
            for (recipient, thread) in started {
                match thread.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => troubles.push(format!("no notice to {recipient}: {error}")),
                    Err(_) => troubles.push(format!("no notice to {recipient}: it failed")),
                }
            }
            troubles
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
