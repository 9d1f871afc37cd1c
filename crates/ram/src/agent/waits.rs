//! Requests that change nothing: how a version ended, and what the repository has.

use std::sync::Arc;

use strongroom_base::Severity;
use strongroom_bucket::ToProgram;

use super::Agent;
use super::gate::Gate;
use super::jobs::Look;
use super::versions::Known;
use crate::about::VersionText;
use crate::keeper::BucketName;

impl Agent {
    /// A version is committed, or will not be. Requests that wait for it are answered.
    pub(super) fn version_ended(
        &mut self,
        name: &BucketName,
        request: u32,
        version: &VersionText,
        is_captured: bool,
        outcome: Result<(), String>,
    ) {
        if let Err(reason) = &outcome {
            let message = format!("{name} was not stored: {reason}");
            self.say_of_programs(Severity::Warning, &message);
        }
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if let (Err(reason), false) = (&outcome, is_captured) {
            bucket.tell(ToProgram::Failed { request, reason: reason.clone() });
        }
        for request in bucket.versions.end(version, &outcome) {
            bucket.tell(answer(request, outcome.clone()));
        }
    }

    /// A program asks whether a version is committed.
    pub(super) fn wait_for(&mut self, name: &BucketName, request: u32, version: VersionText) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        match bucket.versions.ask(request, &version.name, version.version) {
            Known::Later => {}
            Known::Ended(outcome) => bucket.tell(answer(request, outcome)),
            // It was stored before the program connected.
            Known::Nothing => self.look(name, Look::Wait { request, version }),
        }
    }

    /// Looks into the repository for a program, after what it asked for before.
    pub(super) fn look(&mut self, name: &BucketName, look: Look) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.looks.push_back(look);
        self.look_on(name);
    }

    pub(super) fn look_on(&mut self, name: &BucketName) {
        let number = self.number();
        let Some(bucket) = self.buckets.get_mut(name).filter(|bucket| bucket.looking.is_none())
        else {
            return;
        };
        let Some(look) = bucket.looks.pop_front() else { return };
        bucket.looking = Some(number);
        let (Look::Wait { request, .. } | Look::Test { request, .. }) = look;
        let (areas, gate) = (Arc::default(), Arc::new(Gate::default()));
        let counted = self.count(name, false);
        let begun = counted.and_then(|counted| {
            self.begin_job(name, number, areas, (gate, counted), |job| job.look(look))
        });
        if let Err(reason) = begun
            && let Some(bucket) = self.buckets.get_mut(name)
        {
            bucket.looking = None;
            bucket.tell(ToProgram::Failed { request, reason });
            self.look_on(name);
        }
    }
}

/// Answers a request.
pub(super) fn answer(request: u32, outcome: Result<(), String>) -> ToProgram {
    match outcome {
        Ok(()) => ToProgram::Done { request },
        Err(reason) => ToProgram::Failed { request, reason },
    }
}
