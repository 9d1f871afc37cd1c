//! What a store says about a request that failed: S3's error documents.

use strongroom_backend::Refusal;

use crate::failure::Failure;
use crate::http::Answer;

/// An error as the store says it; empty if the answer has none.
pub(crate) struct Said {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Whether an answer is a document with this root, from its beginning to its end: one whose length was
/// not said may be cut anywhere.
pub(crate) fn is_whole(answer: &Answer, root: &str) -> bool {
    let text = String::from_utf8_lossy(&answer.body);
    roxmltree::Document::parse(text.trim_start_matches('\u{feff}').trim())
        .is_ok_and(|document| document.root_element().tag_name().name() == root)
}

impl Said {
    /// The error in an answer.
    pub(crate) fn of(answer: &Answer) -> Self {
        let text = String::from_utf8_lossy(&answer.body);
        let document = roxmltree::Document::parse(text.trim()).ok();
        let find = |tag: &str| {
            let root = document.as_ref()?.root_element();
            if root.tag_name().name() != "Error" {
                return None;
            }
            let found = root.children().find(|node| node.tag_name().name() == tag)?;
            found.text().map(str::to_owned)
        };
        Self {
            code: find("Code").unwrap_or_default(),
            message: find("Message").unwrap_or_default(),
        }
    }

    /// Code and message for people.
    pub(crate) fn text(&self, answer: &Answer) -> String {
        match (self.code.as_str(), self.message.as_str()) {
            ("", _) => answer.message(),
            (code, "") => code.to_owned(),
            (code, message) => format!("{message} ({code})"),
        }
    }

    /// Whether the store does not know the headers about checksums.
    pub(crate) fn is_about_checksums(&self) -> bool {
        matches!(self.code.as_str(), "NotImplemented" | "InvalidArgument" | "InvalidRequest")
            && self.message.to_ascii_lowercase().contains("checksum")
    }

    /// How the request failed.
    pub(crate) fn failure(&self, answer: &Answer) -> Failure {
        let text = self.text(answer);
        let refused = |refusal| Failure::Refused { refusal, answer: text.clone() };
        match self.code.as_str() {
            "NoSuchBucket" => refused(Refusal::NoSuchPlace),
            "NoSuchKey" => Failure::NotFound,
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken"
            | "TokenRefreshRequired" => refused(Refusal::Credentials),
            "RequestTimeTooSkewed" | "RequestExpired" => refused(Refusal::Clock),
            // Of a signature in a URL, stores say in words alone that it is of another time.
            "AccessDenied" | "AuthorizationQueryParametersError"
                if text.contains("xpired") || text.contains("not valid yet") =>
            {
                refused(Refusal::Clock)
            }
            "AccessDenied" if text.contains("WORM") || text.contains("lock") => {
                refused(Refusal::Locked)
            }
            "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError"
            | "PermanentRedirect" | "IllegalLocationConstraintException" => {
                refused(Refusal::Region)
            }
            // Its class keeps it where it must be asked for hours before it is read.
            "InvalidObjectState" => refused(Refusal::Archived),
            "SlowDown" | "ServiceUnavailable" | "RequestLimitExceeded" | "TooManyRequests"
            // Two conditional requests at once: one of them wins, and the next answer says which.
            | "ConditionalRequestConflict" | "OperationAborted" => {
                Failure::Busy { after: answer.retry_after(), answer: text }
            }
            "BadDigest" | "XAmzContentChecksumMismatch" | "RequestTimeout" | "IncompleteBody"
            | "InternalError"
            // The parts are gone that an earlier attempt has sent: from the beginning again.
            | "NoSuchUpload" => Failure::lost(text),
            "PreconditionFailed" => Failure::Taken,
            "NotImplemented" => Failure::Unsupported("do this"),
            "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" => Failure::FULL,
            _ => match answer.status.as_u16() {
                412 => Failure::Taken,
                301 | 307 => refused(Refusal::Region),
                // Of an object there is `NoSuchKey`; other things that are missing are the user's.
                404 if !self.code.is_empty() => refused(Refusal::Credentials),
                // Every store names what it does not have: this is of a proxy whose store is away.
                404 | 410 => Failure::lost(text),
                _ => answer.failure_saying(text),
            },
        }
    }
}
