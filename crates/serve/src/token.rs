//! Tokens: what opens a room, for whom, and how far.
//!
//! A token is `ID.SECRET`. The house keeps a file for each, named by its id, with the secret's hash:
//! who reads the house learns no token. A token ends when its file is removed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strongroom_base::entropy::random_array;
use strongroom_base::{Entropy, Timestamp};
use zeroize::Zeroizing;

use crate::rights::Role;

const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;
/// No file of a token is longer.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What a house knows of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its public half.
    pub id: String,
    /// Whose it is: a machine or a person.
    pub name: String,
    /// The room that it opens.
    pub room: String,
    /// What may be done there.
    pub role: Role,
    /// The room may have this many bytes when something is stored by this token.
    pub quota: Option<u64>,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
    hash: [u8; 32],
}

/// What a new token is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Whose it is.
    pub name: String,
    /// The room that it opens.
    pub room: String,
    /// What may be done there.
    pub role: Role,
    /// The room may have this many bytes when something is stored by this token.
    pub quota: Option<u64>,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

/// What can be wrong with the tokens of a house.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is no such token.
    #[error("there is no token {0}")]
    NotFound(String),
    /// A file that does not describe a token.
    #[error("{} is not the file of a token: {reason}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that cannot be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
}

/// The file of a token.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    name: String,
    room: String,
    role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota_bytes: Option<u64>,
    /// Nanoseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    secret_hash: String,
}

/// Makes a token. Returns what the house knows of it, and the text that its owner needs.
pub(crate) fn make(
    folder: &Path,
    new: NewToken,
    entropy: &dyn Entropy,
) -> Result<(Token, Zeroizing<String>), TokenError> {
    let id = hex(&random_array::<ID_BYTES>(entropy));
    let secret = Zeroizing::new(hex(&random_array::<SECRET_BYTES>(entropy)));
    let NewToken { name, room, role, quota, until } = new;
    let hash = *blake3::hash(secret.as_bytes()).as_bytes();
    let token = Token { id, name, room, role, quota, until, hash };
    let stored = Stored {
        name: token.name.clone(),
        room: token.room.clone(),
        role: role.to_string(),
        quota_bytes: quota,
        until: until.map(|time| time.0),
        secret_hash: hex(&hash),
    };
    let text = serde_json::to_string_pretty(&stored).expect("plain fields");
    let path = folder.join(&token.id);
    let written =
        fs::File::options().write(true).create_new(true).mode(0o600).open(&path).and_then(
            |mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            },
        );
    written.map_err(|source| TokenError::Io { path, source })?;
    let text = Zeroizing::new(format!("{}.{}", token.id, secret.as_str()));
    Ok((token, text))
}

/// The token that a text is, if the secret is right and its time is not over.
pub(crate) fn find(folder: &Path, text: &str, now: Timestamp) -> Result<Option<Token>, TokenError> {
    let Some((id, secret)) = text.trim().split_once('.') else { return Ok(None) };
    let token = match read(folder, id) {
        Err(TokenError::NotFound(_)) => return Ok(None),
        other => other?,
    };
    // The comparison of hashes takes the same time wherever they differ.
    let is_right = blake3::hash(secret.as_bytes()) == blake3::Hash::from_bytes(token.hash);
    let is_over = token.until.is_some_and(|until| until < now);
    Ok(Some(token).filter(|_| is_right && !is_over))
}

/// The token of an id.
pub(crate) fn read(folder: &Path, id: &str) -> Result<Token, TokenError> {
    let is_id = id.len() == 2 * ID_BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err(TokenError::NotFound(id.chars().take(40).collect()));
    }
    let path = folder.join(id);
    let invalid = |reason: String| TokenError::Invalid { path: path.clone(), reason };
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => TokenError::NotFound(id.to_owned()),
        _ => TokenError::Io { path: path.clone(), source },
    };
    if fs::metadata(&path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(invalid("it is too long".to_owned()));
    }
    let bytes = fs::read(&path).map_err(failed)?;
    let stored: Stored =
        serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
    let hash =
        blake3::Hash::from_hex(&stored.secret_hash).map_err(|error| invalid(error.to_string()))?;
    Ok(Token {
        id: id.to_owned(),
        role: stored.role.parse().map_err(invalid)?,
        name: stored.name,
        room: stored.room,
        quota: stored.quota_bytes,
        until: stored.until.map(Timestamp),
        hash: *hash.as_bytes(),
    })
}

/// All tokens, sorted by their names.
pub(crate) fn all(folder: &Path) -> Result<Vec<Token>, TokenError> {
    let failed = |source| TokenError::Io { path: folder.to_owned(), source };
    let mut tokens = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(id) = name.to_str() {
            match read(folder, id) {
                Err(TokenError::NotFound(_)) => {}
                other => tokens.push(other?),
            }
        }
    }
    tokens.sort_by(|a, b| (&a.room, &a.name, &a.id).cmp(&(&b.room, &b.name, &b.id)));
    Ok(tokens)
}

/// Removes a token.
pub(crate) fn remove(folder: &Path, id: &str) -> Result<(), TokenError> {
    let token = read(folder, id)?;
    let path = folder.join(token.id);
    fs::remove_file(&path).map_err(|source| TokenError::Io { path, source })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
