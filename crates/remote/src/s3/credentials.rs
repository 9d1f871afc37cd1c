//! Where the keys come from: the variables, the profile's files, a command, the machine itself.
//!
//! The order is that of Amazon's own programs. Keys that expire are asked for again before they do. If
//! that fails they are used to their end, and asked for again meanwhile.

use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use rusty_s3::Credentials;
use serde_json::Value;
use strongroom_backend::Refusal;
use strongroom_base::{Stopwatch, Timestamp};

use crate::failure::Failure;
use crate::http::{Http, MESSAGE_BYTES_MAX, Request};
use crate::s3::profile::Profile;
use crate::secret;
use crate::settings::{Settings, Variables};

/// Keys are asked for again this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// Keys are asked for this long after a failure at the earliest: many callers may wait for them.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// The address under which a machine at Amazon learns its own keys.
const MACHINE: &str = "http://169.254.169.254";
/// The same, inside a container.
const CONTAINER: &str = "http://169.254.170.2";

/// Gives the keys to sign with.
pub(crate) struct Provider {
    source: Source,
    // A plain mutex: held for a look or a change.
    known: Mutex<Option<Known>>,
    // Held while keys are asked for: one caller asks, and those without keys wait for the same ones.
    asking: Mutex<Option<Failed>>,
}

/// Keys that were asked for in vain.
struct Failed {
    since: Stopwatch,
    refusal: Option<Refusal>,
    answer: String,
}

#[derive(Clone)]
struct Known {
    credentials: Credentials,
    until: Option<Timestamp>,
}

enum Source {
    /// Given in variables or in a file.
    Fixed(Credentials),
    /// Printed by a command.
    Command(String),
    /// Answered by a container's host; with a token, if it wants one.
    Container { url: String, token: Option<String> },
    /// Answered by a machine's host.
    Machine { url: String },
    /// From nowhere.
    None,
}

impl Provider {
    /// Decides where keys come from. Nothing is asked yet.
    pub(crate) fn new(profile: &Profile, settings: &Settings) -> Self {
        Self::of(Source::find(profile, &settings.variables))
    }

    /// Always gives these keys.
    pub(crate) fn fixed(credentials: Credentials) -> Self {
        Self::of(Source::Fixed(credentials))
    }

    fn of(source: Source) -> Self {
        Self { source, known: Mutex::default(), asking: Mutex::default() }
    }

    /// The keys now.
    pub(crate) fn get(&self, http: &Http, now: Timestamp) -> Result<Credentials, Failure> {
        if let Source::Fixed(credentials) = &self.source {
            return Ok(credentials.clone());
        }
        if let Some(valid) = self.known_until(now, RENEWED_BEFORE) {
            return Ok(valid);
        }
        let last = self.known_until(now, Duration::ZERO);
        let mut failed = match (self.asking.try_lock(), &last) {
            (Ok(failed), _) => failed,
            // Another caller asks already.
            (Err(TryLockError::WouldBlock), Some(last)) => return Ok(last.clone()),
            (Err(TryLockError::WouldBlock), None) => {
                self.asking.lock().unwrap_or_else(PoisonError::into_inner)
            }
            (Err(TryLockError::Poisoned(failed)), _) => failed.into_inner(),
        };
        if let Some(valid) = self.known_until(now, RENEWED_BEFORE) {
            return Ok(valid);
        }
        let is_recent = |failed: &Failed| failed.since.elapsed() < ASKED_AGAIN_AFTER;
        if !failed.as_ref().is_some_and(is_recent) {
            match self.source.ask(http) {
                Ok(asked) => {
                    *failed = None;
                    return Ok(self.known().insert(asked).credentials.clone());
                }
                Err(failure) => *failed = Some(Failed::new(failure)),
            }
        }
        // Keys that were given before are given again when what gives them is back.
        let was_given = self.known().is_some();
        last.ok_or_else(|| failed.as_ref().expect("it has failed").failure(was_given))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known keys, if they are valid for this time.
    fn known_until(&self, now: Timestamp, time: Duration) -> Option<Credentials> {
        let end = now.0.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        let known = self.known();
        let valid = known.as_ref().filter(|known| known.until.is_none_or(|until| end < until.0))?;
        Some(valid.credentials.clone())
    }
}

impl Failed {
    fn new(failure: Failure) -> Self {
        let refusal = match &failure {
            Failure::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        };
        Self { since: Stopwatch::start(), refusal, answer: failure.answer() }
    }

    /// The failure for a caller. One that may pass is tried again like any other request.
    fn failure(&self, may_pass: bool) -> Failure {
        let answer = self.answer.clone();
        match self.refusal {
            Some(refusal) if !may_pass => Failure::Refused { refusal, answer },
            _ => Failure::lost(answer),
        }
    }
}

impl Source {
    fn find(profile: &Profile, variables: &Variables) -> Self {
        let from_variables = credentials(
            variables.text("AWS_ACCESS_KEY_ID"),
            variables.text("AWS_SECRET_ACCESS_KEY"),
            variables.text("AWS_SESSION_TOKEN"),
        );
        let from_profile = || {
            credentials(
                profile.get("aws_access_key_id"),
                profile.get("aws_secret_access_key"),
                profile.get("aws_session_token"),
            )
        };
        if let Some(fixed) = from_variables.or_else(from_profile) {
            return Self::Fixed(fixed);
        }
        if let Some(command) = profile.get("credential_process") {
            return Self::Command(command.to_owned());
        }
        let relative = variables.text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let container = relative
            .map(|path| format!("{CONTAINER}{path}"))
            .or_else(|| variables.text("AWS_CONTAINER_CREDENTIALS_FULL_URI").map(str::to_owned));
        if let Some(url) = container {
            let file = variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
            let from_file = file.and_then(|file| std::fs::read_to_string(file).ok());
            let token = variables.text("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned);
            return Self::Container { url, token: token.or(from_file) };
        }
        if variables.text("AWS_EC2_METADATA_DISABLED") == Some("true") {
            return Self::None;
        }
        let url = variables.text("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(MACHINE);
        Self::Machine { url: url.trim_end_matches('/').to_owned() }
    }

    fn ask(&self, http: &Http) -> Result<Known, Failure> {
        match self {
            Self::Fixed(credentials) => Ok(Known { credentials: credentials.clone(), until: None }),
            Self::Command(command) => from_command(command),
            Self::Container { url, token } => {
                let headers: Vec<_> = token.iter().map(|t| ("authorization", t.clone())).collect();
                parse(&ask(http, "GET", url, &headers)?)
            }
            // Most machines have no role, and something else may answer at that address.
            Self::Machine { url } => from_machine(http, url).map_err(|_| none()),
            Self::None => Err(none()),
        }
    }
}

fn none() -> Failure {
    Failure::Refused {
        refusal: Refusal::NoCredentials,
        answer: "no keys were found in AWS_ACCESS_KEY_ID, in AWS's files, or on this machine"
            .to_owned(),
    }
}

fn credentials(
    key: Option<&str>,
    secret: Option<&str>,
    token: Option<&str>,
) -> Option<Credentials> {
    Some(match token {
        Some(token) => Credentials::new_with_token(key?, secret?, token),
        None => Credentials::new(key?, secret?),
    })
}

fn from_command(command: &str) -> Result<Known, Failure> {
    let failed = |reason: String| Failure::Refused {
        refusal: Refusal::NoCredentials,
        answer: format!("the command `credential_process` of the profile failed: {reason}"),
    };
    let output = secret::output_of(command, secret::PATIENCE).map_err(failed)?;
    let value: Value =
        serde_json::from_slice(&output).map_err(|error| failed(error.to_string()))?;
    parse(&value)
}

/// The keys of the role that the machine has: a token first, then the role's name, then its keys.
fn from_machine(http: &Http, url: &str) -> Result<Known, Failure> {
    let wanted = [("x-aws-ec2-metadata-token-ttl-seconds", "300".to_owned())];
    let token = text(http, "PUT", &format!("{url}/latest/api/token"), &wanted)?;
    let headers = [("x-aws-ec2-metadata-token", token)];
    let roles = format!("{url}/latest/meta-data/iam/security-credentials/");
    let role = text(http, "GET", &roles, &headers)?;
    parse(&ask(http, "GET", &format!("{roles}{}", role.trim()), &headers)?)
}

fn text(
    http: &Http,
    method: &str,
    url: &str,
    headers: &[(&str, String)],
) -> Result<String, Failure> {
    let answer_bytes_max = MESSAGE_BYTES_MAX;
    let answer = http.call(&Request { method, url, headers, body: &[], answer_bytes_max })?;
    if !answer.status.is_success() {
        return Err(answer.failure());
    }
    String::from_utf8(answer.body).map_err(Failure::lost)
}

fn ask(http: &Http, method: &str, url: &str, headers: &[(&str, String)]) -> Result<Value, Failure> {
    serde_json::from_str(&text(http, method, url, headers)?).map_err(Failure::lost)
}

/// Keys as Amazon's services and commands write them.
fn parse(value: &Value) -> Result<Known, Failure> {
    let field = |names: &[&str]| names.iter().find_map(|name| value[*name].as_str());
    let until = field(&["Expiration"])
        .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        .and_then(|time| i64::try_from(time.as_nanosecond()).ok())
        .map(Timestamp);
    let found = credentials(
        field(&["AccessKeyId"]),
        field(&["SecretAccessKey"]),
        field(&["SessionToken", "Token"]),
    );
    let credentials = found.ok_or_else(|| Failure::Refused {
        refusal: Refusal::NoCredentials,
        answer: "the answer about keys has no keys in it".to_owned(),
    })?;
    Ok(Known { credentials, until })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strongroom_base::{Cancel, OsEntropy, SystemClock};

    use super::*;
    use crate::rate::Rate;

    fn http() -> Http {
        let settings = Settings {
            variables: Variables::new([]),
            rate: Rate::default(),
            connections: None,
            patience: Duration::from_secs(10),
            cancel: Cancel::new(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            is_drawn: |_| false,
            judge: |_, _| strongroom_backend::Soundness::Repairable,
        };
        Http::new(&settings, &[])
    }

    /// A second in the year 2033, and the seconds after it.
    fn at(second: i64) -> Timestamp {
        Timestamp((2_000_000_000 + second) * 1_000_000_000)
    }

    /// Keys that end at the second 1000, by a command that fails while a file is there.
    fn provider(folder: &std::path::Path) -> Provider {
        let text = r#"{"Version":1,"AccessKeyId":"k","SecretAccessKey":"s","Expiration":"TIME"}"#;
        let text = text.replace("TIME", "2033-05-18T03:50:00Z");
        let folder = folder.display();
        Provider::of(Source::Command(format!(
            "sleep 30 2>/dev/null & echo >> {folder}/asked; test ! -e {folder}/away && echo '{text}'"
        )))
    }

    /// The service of a machine that gives its keys may not answer for a moment.
    #[test]
    fn keys_are_used_to_their_end_if_no_new_ones_are_given() {
        let folder = tempfile::tempdir().unwrap();
        let (http, provider) = (http(), provider(folder.path()));
        let asked = || std::fs::read(folder.path().join("asked")).unwrap_or_default().len();
        let began = Stopwatch::start();
        std::fs::write(folder.path().join("away"), "").unwrap();
        let never = provider.get(&http, at(0));
        let is_refused =
            matches!(never, Err(Failure::Refused { refusal: Refusal::NoCredentials, .. }));
        assert!(is_refused, "{:?}", never.err());
        // Others who wait for the same are not kept waiting for another failure.
        assert!(provider.get(&http, at(0)).is_err());
        assert_eq!(asked(), 1);
        std::fs::remove_file(folder.path().join("away")).unwrap();
        std::thread::sleep(ASKED_AGAIN_AFTER);
        assert_eq!(provider.get(&http, at(0)).unwrap().key(), "k");
        assert_eq!(provider.get(&http, at(600)).unwrap().key(), "k");
        assert_eq!(asked(), 2);
        // They end in five minutes, and then they have ended.
        std::fs::write(folder.path().join("away"), "").unwrap();
        assert_eq!(provider.get(&http, at(900)).unwrap().key(), "k");
        assert_eq!(asked(), 3);
        let ended = provider.get(&http, at(1000));
        assert!(matches!(ended, Err(Failure::Lost(_))), "{:?}", ended.err());
        // What the command leaves running keeps none waiting.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
