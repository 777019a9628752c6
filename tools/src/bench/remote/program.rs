//! A side of a way: a process of this command, which makes the rounds that it is told to.

use super::side::Outcome;
use crate::cli::BenchRun;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a side may take for what it is told.
const PATIENCE: Duration = Duration::from_secs(120);

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Carrier {
    /// Frames of this project over sockets.
    Sockets,
    /// A loop over a socket, without protection.
    Plain,
    /// Frames of this project over UCX.
    Ucx,
    /// Active messages of UCX from and to device memory, by the ways that it chooses.
    UcxDirect,
    /// The same over TCP, as between two hosts without other networks.
    UcxTcp,
    /// Memory that both sides have.
    Ipc,
}

/// What a side is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) carrier: Carrier,
    /// The key of both sides, in hexadecimal digits.
    pub(super) key: String,
    /// The address of the other side. `None`: this side waits for the other, and answers.
    pub(super) peer: Option<String>,
}

/// Messages to send or to answer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Rounds {
    pub(super) bytes: usize,
    pub(super) count: usize,
    /// Decides the bytes of the messages.
    pub(super) turn: u8,
}

/// What a side tells, each on a line of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// The address where it waits for the other side.
    Waits(String),
    /// It is connected: what carries the bytes.
    Connected(String),
    /// The times of its messages with their answers, in nanoseconds; none of a side that answers.
    Times(Vec<u64>),
    Failed(String),
}

/// Both sides of a way.
#[derive(Debug)]
pub(super) struct Programs {
    asks: Program,
    answers: Program,
    /// What carries the bytes.
    pub(super) transport: String,
}

impl Programs {
    /// Starts a side that asks on one device, and a side that answers on another or the same.
    pub(super) fn start(carrier: Carrier, run: &BenchRun, to: i32, key: &str) -> Outcome<Self> {
        let begin = |peer| Begin { carrier, key: key.to_owned(), peer };
        let transports = (carrier == Carrier::UcxTcp).then_some("tcp,cuda_copy");
        let mut answers = Program::start(run, to, transports)?;
        answers.tell(&begin(None))?;
        let Told::Waits(address) = answers.hear()? else { return Err("the side that answers has no address".into()) };
        let mut asks = Program::start(run, run.device, transports)?;
        asks.tell(&begin(Some(address)))?;
        let Told::Connected(transport) = asks.hear()? else { return Err("the side that asks is not connected".into()) };
        let Told::Connected(_) = answers.hear()? else { return Err("the side that answers is not connected".into()) };
        Ok(Self { asks, answers, transport })
    }

    /// The times of some messages.
    pub(super) fn rounds(&mut self, rounds: Rounds) -> Outcome<Vec<u64>> {
        self.answers.tell(&rounds)?;
        self.asks.tell(&rounds)?;
        let (asked, answered) = (self.asks.hear(), self.answers.hear());
        match (asked?, answered?) {
            (Told::Times(times), Told::Times(_)) => Ok(times),
            (asked, answered) => Err(format!("the sides told {asked:?} and {answered:?} instead of times").into()),
        }
    }

    /// Lets both sides end, and says whether they could.
    pub(super) fn end(mut self) -> Outcome<()> {
        // Some ways end together.
        (self.asks.orders, self.answers.orders) = (None, None);
        self.asks.end()?;
        self.answers.end()
    }
}

/// One side. A drop ends its process.
#[derive(Debug)]
struct Program {
    child: Child,
    /// `None` tells it that there is no more to do.
    orders: Option<ChildStdin>,
    told: Receiver<Told>,
}

impl Program {
    fn start(run: &BenchRun, device: i32, transports: Option<&str>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "remote", "--side", "--device", &device.to_string()]);
        command.envs(transports.map(|transports| ("UCX_TLS", transports)));
        if let Some(provider) = run.provider.to_possible_value() {
            command.args(["--provider", provider.get_name()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (sender, told) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            // The thread ends after the side's last line.
            std::thread::spawn(move || {
                for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                    // Drivers print too.
                    if let Ok(told) = serde_json::from_slice(&line)
                        && sender.send(told).is_err()
                    {
                        break;
                    }
                }
            });
        }
        Ok(Self { orders: child.stdin.take(), child, told })
    }

    fn tell(&mut self, order: &impl Serialize) -> Outcome<()> {
        if let Some(orders) = &mut self.orders {
            let line = serde_json::to_string(order)? + "\n";
            // A side that has ended says why.
            let _ = orders.write_all(line.as_bytes());
        }
        Ok(())
    }

    fn hear(&mut self) -> Outcome<Told> {
        match self.told.recv_timeout(PATIENCE) {
            Ok(Told::Failed(why)) => Err(why.into()),
            Ok(told) => Ok(told),
            Err(RecvTimeoutError::Timeout) => Err(format!("a side told nothing for {} s", PATIENCE.as_secs()).into()),
            Err(RecvTimeoutError::Disconnected) => Err(match self.wait() {
                Some(status) => format!("a side has ended: {status}"),
                None => "a side has closed its output".to_owned(),
            }
            .into()),
        }
    }

    /// Waits for the end of a side that has no more orders.
    fn end(mut self) -> Outcome<()> {
        while let Ok(told) = self.told.recv_timeout(PATIENCE) {
            if let Told::Failed(why) = told {
                return Err(why.into());
            }
        }
        match self.wait() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("a side has ended: {status}").into()),
            None => Err("a side does not end".into()),
        }
    }

    /// Waits a little for the end of the process.
    fn wait(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                ended => return ended.ok().flatten(),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
