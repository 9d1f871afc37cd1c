//! Where the keys come from: the variables, the profile's files, a command, the machine itself.
//!
//! The order is that of Amazon's own programs. Keys that expire are asked for again before they do.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusty_s3::Credentials;
use serde_json::Value;
use strongroom_backend::Refusal;
use strongroom_base::Timestamp;

use crate::failure::Failure;
use crate::http::{Http, MESSAGE_BYTES_MAX, Request};
use crate::s3::profile::Profile;
use crate::settings::{Settings, Variables};

/// Keys are asked for again this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// The address under which a machine at Amazon learns its own keys.
const MACHINE: &str = "http://169.254.169.254";
/// The same, inside a container.
const CONTAINER: &str = "http://169.254.170.2";

/// Gives the keys to sign with.
pub(crate) struct Provider {
    source: Source,
    // Held while keys are asked for: one caller asks, the others wait for the same keys.
    known: Mutex<Option<Known>>,
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
        Self { source: Source::find(profile, &settings.variables), known: Mutex::default() }
    }

    /// Always gives these keys.
    pub(crate) fn fixed(credentials: Credentials) -> Self {
        Self { source: Source::Fixed(credentials), known: Mutex::default() }
    }

    /// The keys now.
    pub(crate) fn get(&self, http: &Http, now: Timestamp) -> Result<Credentials, Failure> {
        if let Source::Fixed(credentials) = &self.source {
            return Ok(credentials.clone());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = i64::try_from(RENEWED_BEFORE.as_nanos()).unwrap_or(0);
        let is_valid =
            |known: &Known| known.until.is_none_or(|until| now.0.saturating_add(before) < until.0);
        if let Some(valid) = known.as_ref().filter(|known| is_valid(known)) {
            return Ok(valid.credentials.clone());
        }
        let asked = self.source.ask(http)?;
        Ok(known.insert(asked).credentials.clone())
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
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let value: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
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
