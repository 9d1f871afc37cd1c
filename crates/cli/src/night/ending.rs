//! The end of a run: its record is kept, and those who should hear of it do, with what they did not
//! hear of before.

use strongroom_base::{Clock, Printable, SystemClock};
use strongroom_notice::{Recipient, Verdict};

use super::record::{Record, Records, RunRecord};
use super::{Night, Progress, report, word};
use crate::replaced::replace;

impl Night<'_> {
    /// Ends the run: gives whether the record of it is kept.
    pub(super) fn end(
        &self,
        records: Option<&Records>,
        record: &mut Record,
        progress: &mut Progress,
    ) -> bool {
        record.push(progress.record());
        record.note_snapshot(progress.snapshot);
        if let Err(error) = self.write_metrics(record) {
            self.warn(&mut progress.warnings, error);
        }
        // It is kept before it is said: a death in between loses neither the record nor the notice.
        let run = progress.record();
        record.replace_last(RunRecord { undelivered: self.hearers(progress), ..run });
        let keep = |record: &Record| match records {
            Some(records) => records.write(record),
            None => Ok(()),
        };
        let kept = keep(record);
        if let Err(error) = &kept {
            self.warn(&mut progress.warnings, error.to_string());
        }
        let told = self.tell(record, progress);
        if told.is_empty() {
            return kept.is_ok();
        }
        let mut undelivered = self.hearers(progress);
        undelivered
            .retain(|one| told.iter().all(|told| told.recipient != *one || !told.has_arrived()));
        for one in told.iter().filter(|one| one.has_arrived()) {
            record.is_delivered(&one.recipient);
        }
        for trouble in word::troubles(&told) {
            self.warn(&mut progress.warnings, trouble);
        }
        record.replace_last(RunRecord { undelivered, ..progress.record() });
        // What fails now was said above.
        let _ = self.write_metrics(record);
        keep(record).is_ok()
    }

    /// Says that the run before did not end, to those who hear of a failure: if it is said at the end of this one,
    /// and this one is killed too, it is never heard of. Healthchecks has heard nothing, and knows.
    pub(super) fn tell_of_unended(
        &self,
        before: RunRecord,
        record: &mut Record,
        progress: &mut Progress,
    ) {
        let hears = |one: &Recipient| {
            !matches!(one, Recipient::Healthchecks(_))
                && self.word.is_heard_by(one, Verdict::Failed)
        };
        let hearers = self.word.recipients.iter().filter(|one| hears(one));
        let undelivered = hearers.map(|one| self.word.name_of(one)).collect();
        let unended = RunRecord { undelivered, ..before };
        record.push(unended.clone());
        let said = report::notice(&self.profile, &unended, Verdict::Failed);
        let told = self.word.tell(self.context, |one| {
            let earlier = record.undelivered_before(&self.word.name_of(one));
            let now = SystemClock.now();
            hears(one).then(|| report::with_earlier(said.clone(), &self.profile, &earlier, now))
        });
        for one in told.iter().filter(|one| one.has_arrived()) {
            record.is_delivered(&one.recipient);
        }
        for trouble in word::troubles(&told) {
            self.warn(&mut progress.warnings, trouble);
        }
    }

    /// Those who should hear of the run.
    fn hearers(&self, progress: &Progress) -> Vec<String> {
        let hears = |one: &&Recipient| self.word.is_heard_by(one, progress.verdict());
        self.word.recipients.iter().filter(hears).map(|one| self.word.name_of(one)).collect()
    }

    fn tell(&self, record: &Record, progress: &Progress) -> Vec<word::Told> {
        let verdict = progress.verdict();
        let said = report::notice(&self.profile, &progress.record(), verdict);
        self.word.tell(self.context, |recipient| {
            let earlier = record.undelivered_before(&self.word.name_of(recipient));
            if !self.word.is_heard_by(recipient, verdict) && earlier.is_empty() {
                return None;
            }
            let now = SystemClock.now();
            let mut notice = report::with_earlier(said.clone(), &self.profile, &earlier, now);
            if let Recipient::Healthchecks(_) = recipient {
                // It follows how things are, not how they were.
                notice.verdict = if progress.is_doubtful() { Verdict::Failed } else { verdict };
            }
            Some(notice)
        })
    }

    fn write_metrics(&self, record: &Record) -> Result<(), String> {
        let Some(path) = &self.metrics else { return Ok(()) };
        replace(path, report::metrics(&self.profile, record).as_bytes())
            .map_err(|error| format!("cannot write the metrics {}: {error}", Printable::path(path)))
    }
}
