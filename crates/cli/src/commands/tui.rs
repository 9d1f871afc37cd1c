//! `strongroom tui`

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use strongroom_base::{Cancel, Clock, SystemClock};
use strongroom_repository::{Repository, RepositoryError};
use strongroom_tui::{App, Effect, Event, Keys, Look, Report, Running, Work, perform};

use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::full_screen::FullScreen;
use crate::running;

/// What is shown.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// How long it waits for a key before it looks what else happened.
const LOOK_EVERY_MS: u32 = 50;
/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// How often it looks what runs on this machine.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    if context.json() || !FullScreen::is_possible() {
        return Err(CliError::new(
            Exit::Failed,
            "`tui` draws on a terminal, and this is none",
            "run it in a terminal without --json; `snapshots`, `ls`, `find` and `diff` print the same",
        ));
    }
    // Anything that is asked or said before the first picture needs the terminal as it is.
    let repository = context.open_to_read(&args.replicas)?;
    if !repository.keys.can_read() {
        return Err(RepositoryError::PutOnly.into());
    }
    let hung_up = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, hung_up.clone())?;
    let (orders, to_do) = channel::<Order>();
    let (reports, done) = channel();
    let ended = std::thread::scope(|scope| {
        let repository = &repository;
        let worker = scope.spawn(move || work(repository, &to_do, &reports));
        let shown = show(context, &orders, &done, &hung_up);
        // The worker ends with its orders; what it does now was stopped.
        drop(orders);
        if worker.join().is_err() {
            return Err(CliError::new(Exit::Failed, "the work ended with a panic", "see above"));
        }
        shown
    })?;
    Ok(ended.into())
}

/// Work to be done, until it is stopped.
struct Order {
    work: Work,
    cancel: Cancel,
}

fn work(repository: &Repository, to_do: &Receiver<Order>, reports: &Sender<(u64, Report)>) {
    for Order { work, cancel } in to_do {
        let shown: std::sync::Mutex<Option<Instant>> = std::sync::Mutex::new(None);
        // If the screen is gone, nothing needs a report.
        let report = |report: Report| {
            let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if shown.is_none_or(|shown| shown.elapsed() >= SHOW_EVERY) {
                *shown = Some(Instant::now());
                let _ = reports.send((work.number, report));
            }
        };
        let last = match cancel.is_cancelled() {
            true => Report::Cancelled,
            false => perform(repository, &work.request, &report, &cancel),
        };
        let _ = reports.send((work.number, last));
    }
}

/// Draws, and takes keys, until the end.
fn show(
    context: &Context,
    orders: &Sender<Order>,
    reports: &Receiver<(u64, Report)>,
    hung_up: &AtomicBool,
) -> Result<Exit, CliError> {
    let look = Look {
        place: context.place_text()?,
        colours: crate::paint::output_has_colours(),
        date: dates::text,
        home: std::env::var_os("HOME").map(Into::into),
    };
    let mut screen = FullScreen::take().map_err(|error| {
        CliError::new(Exit::Failed, format!("cannot take the terminal: {error}"), "try another one")
    })?;
    let (mut app, first) = App::begin(look);
    let mut current = Cancel::new();
    let mut keys = Keys::default();
    let mut watched: Option<Instant> = None;
    let mut effects = vec![first];
    let mut is_changed = true;
    loop {
        for effect in effects.drain(..) {
            match effect {
                Effect::Begin(work) => {
                    current = Cancel::new();
                    let order = Order { work, cancel: current.clone() };
                    orders.send(order).map_err(|_| lost_worker())?;
                }
                Effect::Cancel(_) => current.cancel(),
                Effect::Quit { interrupted } => {
                    current.cancel();
                    return Ok(if interrupted { Exit::Interrupted } else { Exit::Done });
                }
            }
        }
        if context.cancel.is_cancelled() || hung_up.load(Ordering::Relaxed) {
            current.cancel();
            return Ok(Exit::Interrupted);
        }
        is_changed |= screen.adapt()?;
        if is_changed {
            screen.drawing.draw(|frame| app.draw(frame.buffer_mut()))?;
        }
        let bytes = screen.read(LOOK_EVERY_MS)?;
        let mut events: Vec<Event> = keys.feed(&bytes).into_iter().map(Event::Key).collect();
        if bytes.is_empty() && keys.is_waiting() {
            events.extend(keys.idle().map(Event::Key));
        }
        loop {
            match reports.try_recv() {
                Ok((number, report)) => events.push(Event::Report(number, report)),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Err(lost_worker()),
            }
        }
        if app.watches() && watched.is_none_or(|watched| watched.elapsed() >= WATCH_EVERY) {
            watched = Some(Instant::now());
            events.push(Event::Running(running_here(context)));
        }
        is_changed = !events.is_empty();
        effects.extend(events.into_iter().filter_map(|event| app.update(event)));
    }
}

fn lost_worker() -> CliError {
    CliError::new(Exit::Failed, "the work ended unexpectedly", "run it again")
}

fn running_here(context: &Context) -> Vec<Running> {
    let now = SystemClock.now().0;
    let found = running::running(context.cache()).into_iter();
    let shown = found.map(|found| Running {
        pid: found.pid,
        repository: found.repository,
        paths: found.paths,
        seconds: u64::try_from(now.saturating_sub(found.started.0) / 1_000_000_000).unwrap_or(0),
        progress: found.progress,
        what: found.file,
    });
    shown.collect()
}
