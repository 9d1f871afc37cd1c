//! The server looks after its rooms by itself: without a key it finds what is damaged, and repairs
//! what parity can repair.

use std::sync::atomic::Ordering;
use std::time::Duration;

use strongroom_base::{Cancel, Silent, Stopwatch};
use strongroom_upkeep::{plan_repair, repair_objects};

use crate::house::House;
use crate::metrics::Metrics;

const LOOK: Duration = Duration::from_millis(200);

/// Verifies and repairs all rooms, again and again, until a stop is requested.
pub(crate) fn watch(house: &House, every: Duration, metrics: &Metrics, cancel: &Cancel) {
    while !cancel.is_cancelled() {
        look_after(house, metrics, cancel);
        let waited = Stopwatch::start();
        while waited.elapsed() < every && !cancel.is_cancelled() {
            std::thread::sleep(LOOK.min(every));
        }
    }
}

fn look_after(house: &House, metrics: &Metrics, cancel: &Cancel) {
    let mut damaged = 0;
    for name in house.room_names().unwrap_or_default() {
        let Ok(backend) = house.room(&name).backend() else { continue };
        let outcome = plan_repair(&*backend, &Silent, cancel)
            .and_then(|plan| repair_objects(&*backend, &plan, &Silent, cancel));
        match outcome {
            Ok(outcome) => {
                metrics.repaired.fetch_add(outcome.repaired, Ordering::Relaxed);
                damaged += outcome.lost.len() as u64;
                if outcome.repaired > 0 || !outcome.lost.is_empty() {
                    let what = format!("repaired:{},lost:{}", outcome.repaired, outcome.lost.len());
                    house.note("-", &format!("looked-after/{name}"), &what);
                }
            }
            Err(error) if cancel.is_cancelled() => drop(error),
            Err(error) => house.note("-", &format!("not-looked-after/{name}"), &error.to_string()),
        }
    }
    metrics.damaged.store(damaged, Ordering::Relaxed);
    let now = house.now().0.div_euclid(1_000_000_000);
    metrics.verified_at.store(now, Ordering::Relaxed);
}
