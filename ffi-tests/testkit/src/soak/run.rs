//! The rounds of a run.

use super::account::Account;
use super::figures::{Sample, judge, steady_heap};
use super::hands::Hands;
use super::options::Options;
use super::panics;
use super::progress::{Board, Watchdog};
use super::report::Reporter;
use super::work::WORK;
use super::world::World;
use super::{Work, faults};
use crate::Setup;
use crate::timing::Numbers;
use cuda_mem::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The state of a run.
struct Run<'a> {
    options: &'a Options,
    work: Vec<Work>,
    board: Arc<Board>,
    account: Arc<Account>,
    /// Whether calls may fail now.
    faults: Arc<AtomicBool>,
    random: Numbers,
    functions: Vec<String>,
    injected: u64,
    rounds: u64,
    samples: Vec<Sample>,
    end: Instant,
}

/// Runs the soak and prints its progress.
///
/// # Errors
///
/// Something was wrong. The text says what.
pub fn run(options: &Options) -> Result<(), String> {
    steady_heap();
    // Settings apply to the whole process and are read when the driver starts.
    let mut settings = softgpu::Settings::from_environment().map_err(|error| error.to_string())?;
    settings.seed = settings.seed.or(Some(options.seed));
    softgpu::configure(watching(settings)).map_err(|error| error.to_string())?;
    let work: Vec<Work> = WORK.into_iter().filter(|work| options.wants(work.name)).collect();
    let names: Vec<_> = work.iter().map(|work| work.name).collect();
    let start = Instant::now();
    let mut run = Run {
        options,
        work,
        board: Arc::new(Board::new(options.threads, options.seed)),
        account: Arc::new(Account::new(&names)),
        faults: Arc::default(),
        random: Numbers(options.seed),
        functions: faults::functions(),
        injected: 0,
        rounds: 0,
        samples: Vec::new(),
        end: start + options.duration,
    };
    let outcome = run.worlds();
    if let Err(what) = outcome {
        run.board.fail(what);
    }
    run.summary(start);
    match run.board.failures().first() {
        None => Ok(()),
        Some(what) => Err(what.clone()),
    }
}

/// Settings that detect missing order between streams, and work on memory that the CPU has borrowed, whatever the
/// delays.
pub(super) fn watching(settings: softgpu::Settings) -> softgpu::Settings {
    softgpu::Settings { races: true, ..settings }
}

impl Run<'_> {
    fn worlds(&mut self) -> Result<(), String> {
        let watchdog = Watchdog::new(&self.board);
        let reporter = Reporter::new(&self.board, &self.account);
        // On a busy machine a short run may not come to every kind of work. Then it runs longer.
        let latest = self.end + 9 * self.options.duration;
        loop {
            self.world()?;
            let sample = Sample::settled(self.samples.first())?;
            let Sample { resident, files, threads } = sample;
            let (number, resident) = (self.samples.len(), resident >> 10);
            println!("after world {number}: {resident} KiB resident, {files} files, {threads} threads");
            self.samples.push(sample);
            let now = Instant::now();
            if now >= self.end && now < latest && !self.account.idle().is_empty() {
                self.end = (now + self.options.duration).min(latest);
            }
            if now >= self.end || self.board.has_failed() {
                break;
            }
        }
        drop((reporter, watchdog));
        match judge(&self.samples, self.options.threads) {
            Err(words) if self.options.observed => println!("not judged, since a tool looks on: {words}"),
            judged => judged.map(|words| println!("{words}"))?,
        }
        let idle = self.account.idle();
        if !idle.is_empty() && !self.board.has_failed() {
            return Err(format!("nothing was done of {}; run it for longer", idle.join(", ")));
        }
        Ok(())
    }

    /// Runs one world from beginning to end.
    fn world(&mut self) -> Result<(), String> {
        let words = |error: Error| format!("without faults: {error}");
        self.board.main(Some("beginning a world"));
        let setup = Setup::from_environment().map_err(words)?;
        if self.samples.is_empty() {
            println!("{}", setup.describe());
        }
        let software = setup.is_software();
        let (faults, account, board) = (self.faults.clone(), self.account.clone(), self.board.clone());
        let hook: cuda_mem::DropErrorHook = Arc::new(move |error| {
            account.drop_error(error);
            let damaged = matches!(error.error, Error::Damaged(_));
            if panics::is_planned(error) {
                // Some calls of the hook panic, as callers' functions may.
                panics::panic_at_times(error);
            } else if damaged || !faults.load(Ordering::Acquire) {
                board.fail(format!("a drop met an error without a fault: {error}"));
            }
        });
        setup.driver.set_drop_error_hook(Some(hook.clone()));
        setup.context.set_drop_error_hook(Some(hook.clone()));
        let world = World::new(&setup, self.random.next_number(), self.options.wants("mapped")).map_err(words)?;
        if let Some(far) = &world.far {
            far.set_drop_error_hook(Some(hook));
        }
        for _ in 0..self.options.world {
            if Instant::now() >= self.end && self.rounds > 1 || self.board.has_failed() {
                break;
            }
            self.board.main(None);
            self.round(&world, software);
            self.board.main(Some("checking a world after a round"));
            setup.driver.take_drop_errors();
            setup.context.take_drop_errors();
            world.settle()?;
            let misuse = softgpu::misuse();
            if !misuse.is_empty() {
                return Err(format!("misused: {}", misuse.iter().map(|one| format!("{one}; ")).collect::<String>()));
            }
        }
        self.board.main(Some("ending a world"));
        drop(world);
        setup.driver.set_drop_error_hook(None);
        setup.context.set_drop_error_hook(None);
        drop(setup);
        if software {
            let left = softgpu::ledger_within(crate::LIMIT);
            if !left.is_empty() {
                return Err(format!("left behind: {left}"));
            }
        }
        Ok(())
    }

    /// Runs one round. Every second round has faults.
    fn round(&mut self, world: &World, software: bool) {
        let with_faults = software && self.options.faults && self.rounds % 2 == 1;
        self.board.round(self.rounds);
        if with_faults {
            self.faults.store(true, Ordering::Release);
            softgpu::faults(faults::choose(&self.functions, &mut self.random));
        }
        let end = Instant::now() + self.options.round;
        std::thread::scope(|scope| {
            for thread in 0..self.options.threads {
                let seed = self.random.next_number();
                let (work, board, account) = (&self.work, &self.board, &self.account);
                scope.spawn(move || Hands::new(world, board, account, thread, seed, with_faults).work(work, end));
            }
        });
        if with_faults {
            self.injected += softgpu::injected();
            softgpu::faults([]);
            self.faults.store(false, Ordering::Release);
        }
        self.rounds += 1;
    }

    fn summary(&self, start: Instant) {
        println!("{}", self.account);
        let (verified, drops) = (self.account.verified_bytes(), self.account.drop_errors());
        let peak = super::report::peak().map_or("unknown".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
        println!(
            "seed {}: {:.0} s, {} threads, {} rounds in {} worlds; {verified} bytes verified; {} faults met, {drops} \
             errors of drops; peak memory {peak}",
            self.options.seed,
            start.elapsed().as_secs_f64(),
            self.options.threads,
            self.rounds,
            self.samples.len(),
            self.injected,
        );
    }
}
