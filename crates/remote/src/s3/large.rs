//! Long objects in parts: one lost connection then costs a part and not the object, and several
//! parts are on their way at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusty_s3::actions::CreateMultipartUpload;
use strongroom_backend::ObjectName;

use super::{S3, Said, checksum, is_whole};
use crate::failure::Failure;

/// Longer objects go in parts.
pub(crate) const LARGE_BYTES: usize = 64 << 20;
/// The length of all parts but the last.
const PART_BYTES: usize = 16 << 20;
/// Parts on their way at a time.
const PARTS_IN_FLIGHT: usize = 4;
/// How often a part is sent before the object is given up.
const PART_ATTEMPTS: usize = 4;
/// How long a store is left alone that asks for fewer requests and does not say for how long.
const PART_PAUSE: Duration = Duration::from_secs(1);
/// A list of 10,000 parts, which is the most, is not longer than this.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A part that the store has.
#[derive(Debug, Clone)]
struct Part {
    tag: String,
    checksum: Option<String>,
}

impl S3 {
    /// Sends an object in parts. It exists after the last request, whole or not at all.
    pub(super) fn put_large(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        condition: Option<(&'static str, String)>,
    ) -> Result<(), Failure> {
        let key = self.key(name);
        let upload = self.begin(name, &key)?;
        let outcome = self
            .send_parts(&key, &upload, bytes)
            .and_then(|parts| self.complete(&key, &upload, &parts, condition));
        if outcome.is_err() {
            // Best effort. What is left costs its owner money until a rule of the bucket ends it.
            let action = self.bucket.abort_multipart_upload(None, &key, &upload);
            let _ = self.sign(&action, &[]).and_then(|signed| self.call(&signed, &[], 0));
        }
        outcome
    }

    fn begin(&self, name: &ObjectName, key: &str) -> Result<String, Failure> {
        let mut headers = self.class_of(name);
        let with_checksums = self.uses_checksums.load(Ordering::Relaxed);
        if with_checksums {
            headers.push(("x-amz-checksum-algorithm", "CRC32C".to_owned()));
        }
        let action = self.bucket.create_multipart_upload(None, key);
        let answer = self.call(&self.sign(&action, &headers)?, &[], 0)?;
        if !answer.status.is_success() {
            return Err(self.fails(&answer, with_checksums));
        }
        if !is_whole(&answer, "InitiateMultipartUploadResult") {
            return Err(Failure::lost("an answer about an upload in parts that has no end"));
        }
        let text = String::from_utf8_lossy(&answer.body);
        let begun = CreateMultipartUpload::parse_response(&text)
            .map_err(|error| Failure::lost(error.to_string()))?;
        Ok(begun.upload_id().to_owned())
    }

    fn send_parts(&self, key: &str, upload: &str, bytes: &[u8]) -> Result<Vec<Part>, Failure> {
        let pieces: Vec<&[u8]> = bytes.chunks(PART_BYTES).collect();
        let next = AtomicUsize::new(0);
        // A plain mutex: held to put one answer in its place.
        let sent = Mutex::new((vec![None; pieces.len()], None));
        std::thread::scope(|scope| {
            for _ in 0..PARTS_IN_FLIGHT.min(pieces.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(piece) = pieces.get(index) else { break };
                        let outcome = self.send_part(key, upload, index, piece);
                        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                        match outcome {
                            Ok(part) => sent.0[index] = Some(part),
                            Err(failure) => {
                                sent.1.get_or_insert(failure);
                                next.store(pieces.len(), Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        let (parts, failure) = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(failure) => Err(failure),
            None => Ok(parts.into_iter().flatten().collect()),
        }
    }

    fn send_part(
        &self,
        key: &str,
        upload: &str,
        index: usize,
        piece: &[u8],
    ) -> Result<Part, Failure> {
        let number = u16::try_from(index + 1).map_err(|_| Failure::FULL)?;
        let with_checksum = self.uses_checksums.load(Ordering::Relaxed);
        let checksum = with_checksum.then(|| checksum(piece));
        let headers: Vec<_> =
            checksum.iter().map(|sum| ("x-amz-checksum-crc32c", sum.clone())).collect();
        let mut attempt = 1;
        loop {
            let action = self.bucket.upload_part(None, key, number, upload);
            let outcome = self.sign(&action, &headers).and_then(|signed| {
                let answer = self.call(&signed, piece, 0)?;
                if !answer.status.is_success() {
                    return Err(self.fails(&answer, with_checksum));
                }
                let tag = answer.header("etag").map(str::to_owned);
                tag.ok_or_else(|| Failure::lost("an answer about a part without its tag"))
            });
            match outcome {
                Ok(tag) => return Ok(Part { tag, checksum }),
                Err(Failure::Lost(_)) if attempt < PART_ATTEMPTS && !self.is_cancelled() => {
                    attempt += 1;
                }
                Err(Failure::Busy { after, .. })
                    if attempt < PART_ATTEMPTS && !self.is_cancelled() =>
                {
                    attempt += 1;
                    std::thread::sleep(after.unwrap_or(PART_PAUSE).min(PART_PAUSE * 5));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[Part],
        condition: Option<(&'static str, String)>,
    ) -> Result<(), Failure> {
        let mut body = String::from(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
        );
        for (index, part) in parts.iter().enumerate() {
            let tag = part.tag.replace('&', "&amp;").replace('<', "&lt;");
            body.push_str(&format!("<Part><ETag>{tag}</ETag>"));
            if let Some(sum) = &part.checksum {
                body.push_str(&format!("<ChecksumCRC32C>{sum}</ChecksumCRC32C>"));
            }
            body.push_str(&format!("<PartNumber>{}</PartNumber></Part>", index + 1));
        }
        body.push_str("</CompleteMultipartUpload>");
        let headers: Vec<_> = condition.into_iter().collect();
        let none = std::iter::empty::<&str>();
        let action = self.bucket.complete_multipart_upload(None, key, upload, none);
        let signed = self.sign(&action, &headers)?;
        let answer = self.call(&signed, body.as_bytes(), ANSWER_BYTES_MAX)?;
        let said = Said::of(&answer);
        // It may fail after it has answered with success.
        match answer.status.is_success() {
            true if is_whole(&answer, "CompleteMultipartUploadResult") => Ok(()),
            true if said.code == "PreconditionFailed" => Err(Failure::Taken),
            true => Err(Failure::lost(said.text(&answer))),
            false => Err(said.failure(&answer)),
        }
    }
}
