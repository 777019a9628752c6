//! What a side does: it connects to the other side, and makes the rounds that it is told to.

use super::direct::Direct;
use super::frames::Frames;
use super::ipc::Ipc;
use super::plain::Plain;
use super::program::{Begin, Carrier, Rounds, Told};
use crate::bench::clock::nanoseconds;
use crate::bench::machine::check_drops;
use crate::cli::BenchRun;
use crate::output;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::memory::kind::Device;
use cuda_mem::{Buffer, Context, Stream};
use cuda_mem_remote::Engine;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

/// Errors go from one thread to the other.
pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One side of a way of device memory to another program and back.
pub(super) trait Way {
    /// What carries the bytes.
    fn transport(&self) -> String;

    /// Makes the memory for messages of so many bytes. Both sides do so.
    fn prepare(&mut self, bytes: usize) -> Outcome<()>;

    /// Sets all bytes of the next messages, and waits for that.
    fn fill(&mut self, value: u8) -> Outcome<()>;

    /// Sends a message, and waits until its answer is in device memory.
    fn ask(&mut self) -> Outcome<()>;

    /// Receives a message into device memory, and sends it back.
    fn answer(&mut self) -> Outcome<()>;

    /// The bytes of the last answer.
    fn arrived(&self) -> Outcome<Vec<u8>>;

    /// Ends the connection.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// Device memory of a side: what it sends, and where messages arrive.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) sent: Buffer<u8, Device>,
    pub(super) arrived: Buffer<u8, Device>,
}

impl Memory {
    pub(super) fn new(context: &Context, bytes: usize) -> Outcome<Self> {
        let (memory, stream) = (DeviceMemory::new(context), Stream::new(context)?);
        let (sent, arrived) = (Buffer::zeroed(&memory, bytes, &stream)?, Buffer::zeroed(&memory, bytes, &stream)?);
        stream.synchronize()?;
        Ok(Self { sent, arrived })
    }

    pub(super) fn fill(&mut self, value: u8) -> Outcome<()> {
        self.sent.fill(.., value)?;
        Ok(self.sent.synchronize()?)
    }
}

/// Runs a side. Exit status 0: it did all that it was told.
pub(super) fn run(run: &BenchRun) -> ExitCode {
    match serve(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&Told::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn serve(run: &BenchRun) -> Outcome<()> {
    let Some(begin) = next_order::<Begin>()? else { return Ok(()) };
    let context = crate::bench::open(run)?;
    let asks = begin.peer.is_some();
    let mut way = connect(&context, &begin)?;
    tell(&Told::Connected(way.transport()));
    let mut prepared = 0;
    while let Some(Rounds { bytes, count, turn }) = next_order()? {
        if prepared != bytes {
            way.prepare(bytes)?;
            prepared = bytes;
        }
        tell(&Told::Times(if asks { ask(&mut *way, count, turn)? } else { answer(&mut *way, count)? }));
    }
    way.close()?;
    Ok(check_drops(&context)?)
}

fn connect(context: &Context, begin: &Begin) -> Outcome<Box<dyn Way>> {
    Ok(match begin.carrier {
        Carrier::Sockets => Box::new(Frames::connect(context, Engine::Sockets, begin)?),
        Carrier::Ucx => {
            let engine = Engine::UcxTrustedNetwork { interface: "lo".to_owned() };
            Box::new(Frames::connect(context, engine, begin)?)
        }
        Carrier::Plain => Box::new(Plain::connect(context, begin)?),
        Carrier::UcxDirect | Carrier::UcxTcp => Box::new(Direct::connect(context, begin)?),
        Carrier::Ipc => Box::new(Ipc::connect(context, begin)?),
    })
}

/// Asks, and checks the last answer.
fn ask(way: &mut dyn Way, count: usize, turn: u8) -> Outcome<Vec<u64>> {
    // No turn before had these bytes.
    let value = turn + 1;
    way.fill(value)?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        way.ask()?;
        times.push(nanoseconds(begin));
    }
    let is_right = way.arrived()?.iter().all(|byte| *byte == value);
    if is_right { Ok(times) } else { Err("the answer has other bytes than the message".into()) }
}

fn answer(way: &mut dyn Way, count: usize) -> Outcome<Vec<u64>> {
    (0..count).try_for_each(|_| way.answer())?;
    Ok(Vec::new())
}

/// Tells something, on a line of its own whatever a driver has printed before.
pub(super) fn tell(told: &Told) {
    if let Ok(line) = serde_json::to_string(told) {
        // If nobody hears it, nobody tells this side to go on.
        let _ = output::print(&format!("\n{line}\n"));
    }
}

/// What this side is told next. `None`: there is no more to do.
fn next_order<T: DeserializeOwned>() -> Outcome<Option<T>> {
    let line = io::stdin().lines().next().transpose()?;
    Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
}
