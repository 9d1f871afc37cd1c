//! What the state machine of a file asks for, and how it is carried out.

use strongroom_base::Severity;
use strongroom_cluster::{BucketNumber, Epoch, FileName, NodeEffect, NodeInput};

use super::Agent;
use super::doing::{Next, Work};
use super::rounds::captured;
use crate::files::replace;
use crate::keeper::{BucketName, are_same};

impl Agent {
    /// Carries out one effect. What is known at once is returned.
    pub(super) fn effect(&mut self, file: &FileName, effect: NodeEffect) -> Option<NodeInput> {
        let name =
            |bucket: BucketNumber| BucketName { file: file.as_str().to_owned(), number: bucket.0 };
        match effect {
            NodeEffect::Persist { number, record } => {
                let path = self.rounds.as_ref()?.record_path(file);
                return Some(match replace(&path, &record.pack()) {
                    Ok(()) => NodeInput::Persisted { number },
                    Err(error) => {
                        let message = format!(
                            "cannot write what it remembers of rounds in {}: {error}. Without that, \
                             {file} is neither stored nor evicted: make room, or mend the folder",
                            path.display()
                        );
                        self.say_of_programs(Severity::Warning, &message);
                        NodeInput::NotPersisted { number, reason: error.to_string() }
                    }
                });
            }
            NodeEffect::Quiesce { bucket, epoch } => {
                let name = name(bucket);
                if !self.buckets.contains_key(&name) {
                    let reason = "its program ended".to_owned();
                    return Some(NodeInput::Failed { bucket, epoch, reason });
                }
                let evicts = self.rounds.as_ref()?.is_evicting(file, epoch);
                let work = if evicts { Work::HoldStill(epoch) } else { Work::Round(epoch) };
                self.enqueue(&name, work, false);
            }
            NodeEffect::Capture { bucket, epoch } => return self.capture(&name(bucket), epoch),
            NodeEffect::Resume { bucket } => self.let_go(&name(bucket)),
            NodeEffect::Drop { bucket, epoch } => {
                let doing = self.buckets.get(&name(bucket)).and_then(|it| it.round.as_ref());
                if let Some(doing) = doing.filter(|doing| doing.is_storing(epoch)) {
                    doing.gate.end();
                }
            }
            // The job goes on by itself.
            NodeEffect::Store { .. } => {}
            NodeEffect::Compare { bucket, epoch, snapshot } => {
                let name = name(bucket);
                let doing = self.buckets.get(&name).and_then(|bucket| bucket.round.as_ref());
                let doing = doing.filter(|doing| doing.is_evicting(epoch));
                if let Some(job) = doing.map(|doing| doing.job) {
                    self.compare(&name, job, snapshot);
                }
            }
            NodeEffect::Free { bucket, epoch } => {
                let name = name(bucket);
                let is_still = self.buckets.get(&name).is_some_and(|bucket| {
                    let doing = bucket.round.as_ref();
                    bucket.quiesced.is_some() && doing.is_some_and(|it| it.is_evicting(epoch))
                });
                if !is_still {
                    let reason = "its program went on or ended: nothing was freed".to_owned();
                    return Some(NodeInput::Failed { bucket, epoch, reason });
                }
                self.after_stores(&name, Next::Free);
            }
            NodeEffect::Load { bucket, epoch, snapshot, .. } => {
                let name = name(bucket);
                if !self.buckets.contains_key(&name) {
                    let reason = "no program on this node has registered it".to_owned();
                    return Some(NodeInput::Failed { bucket, epoch, reason });
                }
                self.enqueue(&name, Work::RoundLoad { epoch, snapshot }, false);
            }
            NodeEffect::Acknowledge { to, acknowledgement } => {
                self.rounds.as_ref()?.answer(to, &acknowledgement);
            }
        }
        None
    }

    /// All programs of the round hold still: what this bucket holds is captured. Shadows do not change
    /// any more, so their program can go on before they are read.
    fn capture(&mut self, name: &BucketName, epoch: Epoch) -> Option<NodeInput> {
        let bucket = self.buckets.get_mut(name)?;
        let about = bucket.about(name, &bucket.areas, Some(epoch));
        let doing = bucket.round.as_ref().filter(|doing| doing.is_storing(epoch))?;
        if !are_same(&doing.areas, &bucket.areas) {
            let job = doing.job;
            let reason =
                "its program registered or forgot an area while it held still: store it again";
            self.ended(name, job, Err(reason.to_owned()));
            return None;
        }
        doing.gate.open(about);
        doing.is_copy.then(|| captured(name, epoch, bucket.description()))
    }

    /// Lets the program of a bucket go on, or gives up to stop it.
    fn let_go(&mut self, name: &BucketName) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.waiting.retain(|(work, _)| !matches!(work, Work::Round(_) | Work::HoldStill(_)));
        let Some(doing) = &mut bucket.round else { return };
        match doing.work {
            Work::Round(_) => {
                // Of a copy, the shadows are read after the program went on. Otherwise, unless all is
                // read, the job ends by this.
                let is_reading = doing.is_copy && doing.gate.is_open();
                if is_reading {
                    doing.reading = bucket.quiesced;
                } else {
                    doing.gate.close();
                }
                bucket.resume(is_reading);
            }
            Work::HoldStill(_) => {
                let job = doing.job;
                self.ended(name, job, Err("it was let go".to_owned()));
            }
            _ => {}
        }
    }
}
