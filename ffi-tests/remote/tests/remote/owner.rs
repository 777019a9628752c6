//! A program in a process of its own, which offers memory and takes frames, and what goes on while it ends.

use crate::hosts::{eventually, options, shared};
use cuda_mem::SharedBuffer;
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, kind};
use cuda_mem::signal::Signals;
use cuda_mem_remote::{Error, Key, Peer, Remote, Rights, Ticket};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, in_its_own_process, pattern, test_name};

const SIZE: usize = 4_000_000;

/// The process, which is killed in the end.
pub struct Owner {
    process: Child,
    lines: Receiver<String>,
    pub address: String,
    ticket: Ticket,
}

/// The command that starts an owner.
pub fn command() -> Command {
    in_its_own_process(&test_name!("an_owner_in_its_own_process"))
}

impl Owner {
    /// Starts an owner, and waits until it serves.
    pub fn start(key: &Key) -> Result<Self, Box<dyn std::error::Error>> {
        Self::by(&mut command(), key)
    }

    pub fn by(command: &mut Command, key: &Key) -> Result<Self, Box<dyn std::error::Error>> {
        let mut process = command.env("REMOTE_KEY", key.to_hex()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let ticket = Ticket::from_bytes(&[0; Ticket::SIZE])?;
        let mut owner = Self { process, lines, address: String::new(), ticket };
        let words = owner.says("serves ")?;
        let (address, digits) = words.split_once(' ').ok_or("an address and a ticket")?;
        let bytes =
            digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair)?, 16).map_err(Into::into));
        let bytes = bytes.collect::<Result<Vec<u8>, Box<dyn std::error::Error>>>()?;
        (owner.address, owner.ticket) = (address.to_owned(), Ticket::from_bytes(&bytes)?);
        Ok(owner)
    }

    /// Waits for a line with these words, and returns what comes behind them.
    pub fn says(&self, words: &str) -> Result<String, String> {
        loop {
            let line =
                self.lines.recv_timeout(LIMIT).map_err(|why| format!("the owner does not say {words}: {why}"))?;
            // The name of the test may stand in front of what it prints.
            if let Some((_, rest)) = line.split_once(words) {
                return Ok(rest.to_owned());
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Connects, fetches, and checks the bytes.
    pub fn serves(&self, remote: &Remote, here: &Memory) -> Outcome {
        let peer = remote.connect(self.address.as_str())?;
        self.serves_by(&peer, here)?;
        Ok(peer.close()?)
    }

    fn serves_by(&self, peer: &Peer, here: &Memory) -> Outcome {
        peer.open(&self.ticket)?.fetch(.., here, 0)?.wait()?;
        assert!(here.to_vec()? == pattern(SIZE, 1));
        Ok(())
    }

    /// Lets operations go on over connections of their own, ends them by `end`, and checks that each becomes an error in time, and
    /// that all memory is free then.
    pub fn ends(&self, remote: &Remote, setup: &Setup, within: Duration, end: impl FnOnce()) -> Outcome {
        let (context, ticket) = (&setup.context, &self.ticket);
        let under_way: Vec<_> = OPERATIONS
            .iter()
            .map(|operation| Ok((*operation, memory(setup)?, remote.connect(self.address.as_str())?)))
            .collect::<Result<_, Box<dyn std::error::Error>>>()?;
        let mut rings = Vec::new();
        for (_, here, peer) in &under_way {
            let ring = FrameRing::new(&PinnedMemory::new(context), &Signals::new(context)?, 2, SIZE)?;
            let incoming = peer.receive_frames("b", &ring)?;
            incoming.fill(ring.next()?)?;
            rings.push((incoming, ring));
            self.serves_by(peer, here)?;
        }
        // The operations are repeated until the end is known, so that it meets them.
        let (begin, died) = thread::scope(|scope| {
            let threads: Vec<_> = under_way
                .iter()
                .map(|(operation, here, peer)| {
                    scope.spawn(move || (repeats(operation, peer, ticket, here), Instant::now()))
                })
                .collect();
            thread::sleep(Duration::from_millis(100));
            end();
            let begin = Instant::now();
            (begin, threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>())
        });
        for ((operation, _, peer), (died, at)) in under_way.iter().zip(died) {
            let died = died.expect_err("it ends");
            assert!(matches!(died, Error::PeerGone { .. } | Error::TimedOut { .. }), "{operation}: {died}");
            eventually("the end is known", || peer.check().is_err());
            let after = [at.duration_since(begin), begin.elapsed()];
            assert!(after.iter().all(|after| *after < within), "{operation}: {after:?}: {died}");
        }
        // Waits for all threads of the connections.
        drop(rings);
        under_way.into_iter().try_for_each(|(_, _, peer)| Ok(peer.close()?))
    }
}

/// Repeats an operation until it fails.
fn repeats(operation: &str, peer: &Peer, ticket: &Ticket, here: &Memory) -> Result<(), Error> {
    let there = peer.open(ticket)?;
    let mut outgoing = peer.frames("a", SIZE)?;
    loop {
        match operation {
            "fetch" => there.fetch(.., here, 0)?.wait()?,
            "write" => there.write(0, here, ..)?.wait()?,
            "frames" => drop(outgoing.send(here, ..)?),
            _ => {
                peer.check()?;
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What goes on when the owner ends.
pub const OPERATIONS: [&str; 4] = ["none", "fetch", "write", "frames"];

pub type Memory = SharedBuffer<u8, kind::Device>;

/// Memory for what an owner has.
pub fn memory(setup: &Setup) -> Result<Memory, cuda_mem::Error> {
    shared(&DeviceMemory::new(&setup.context), &vec![0; SIZE])
}

#[test]
#[ignore = "other tests start it"]
fn an_owner_in_its_own_process() -> Outcome {
    let setup = Setup::from_environment()?;
    let key = Key::from_hex(&std::env::var("REMOTE_KEY")?)?;
    let remote = Remote::new(&setup.context, &key, &options())?;
    let listener = remote.listen(crate::hosts::address())?;
    let owned = shared(&DeviceMemory::new(&setup.context), &pattern(SIZE, 1))?;
    let offer = remote.offer(&owned, Rights::ReadWrite);
    let digits: String = offer.ticket().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\nserves {} {digits}", listener.address());
    let setup = &setup;
    thread::scope(|scope| {
        loop {
            match listener.accept() {
                Ok(peer) => {
                    drop(scope.spawn(move || println!("ended by {}", serve(setup, &peer).expect_err("it ends"))))
                }
                // Nobody came in time.
                Err(Error::TimedOut { .. }) => {}
                Err(refused) => println!("refused {refused}"),
            }
        }
    })
}

/// Serves a peer until it is gone.
fn serve(setup: &Setup, peer: &Peer) -> Outcome {
    let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &Signals::new(&setup.context)?, 2, SIZE)?;
    let incoming = peer.receive_frames("a", &ring)?;
    let _back = peer.frames("b", SIZE)?;
    loop {
        match incoming.next(&ring) {
            Ok(frame) => incoming.fill(frame)?,
            // No frame came in time.
            Err(Error::TimedOut { .. }) => {}
            Err(gone) => return Err(gone.into()),
        }
    }
}
