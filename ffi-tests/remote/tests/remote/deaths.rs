//! Peers in processes of their own, which are killed or stopped.

use crate::hosts::{eventually, options, shared};
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::Signals;
use cuda_mem_remote::{Error, Key, Remote, Rights, Ticket};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{Setup, alone_with_late_ends, in_its_own_process, pattern, test_name};

const SIZE: usize = 4_000_000;

/// Another process, which is killed in the end.
struct Victim {
    process: Child,
    address: String,
    ticket: Ticket,
    /// The rest of what it prints, which it could not print without a reader.
    _output: Option<BufReader<ChildStdout>>,
}

impl Victim {
    fn start(key: &Key) -> Result<Self, Box<dyn std::error::Error>> {
        let mut command = in_its_own_process(&test_name!("an_owner_in_its_own_process"));
        let process = command.env("REMOTE_KEY", key.to_hex()).stdout(Stdio::piped()).spawn()?;
        let mut victim =
            Self { process, address: String::new(), ticket: Ticket::from_bytes(&[0; Ticket::SIZE])?, _output: None };
        let mut output = BufReader::new(victim.process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        while output.read_line(&mut line)? > 0 {
            // The name of the test may stand in front of what it prints.
            let line = core::mem::take(&mut line);
            let Some((_, words)) = line.trim_end().split_once("serves ") else { continue };
            let (address, digits) = words.split_once(' ').ok_or("an address and a ticket")?;
            let bytes = digits
                .as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(str::from_utf8(pair)?, 16).map_err(Into::into));
            let bytes = bytes.collect::<Result<Vec<u8>, Box<dyn std::error::Error>>>()?;
            (victim.address, victim.ticket) = (address.to_owned(), Ticket::from_bytes(&bytes)?);
            victim._output = Some(output);
            return Ok(victim);
        }
        Err("the process ended".into())
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "other tests start it"]
fn an_owner_in_its_own_process() -> Outcome {
    let setup = Setup::from_environment()?;
    let key = Key::from_hex(&std::env::var("REMOTE_KEY")?)?;
    let remote = Remote::new(&setup.context, &key, &options())?;
    let listener = remote.listen("127.0.0.1:0")?;
    let owned = shared(&DeviceMemory::new(&setup.context), &pattern(SIZE, 1))?;
    let offer = remote.offer(&owned, Rights::ReadWrite);
    let digits: String = offer.ticket().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\nserves {} {digits}", listener.address());
    let peer = listener.accept()?;
    let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &Signals::new(&setup.context)?, 2, SIZE)?;
    let incoming = peer.receive_frames("a", &ring)?;
    let _back = peer.frames("b", SIZE)?;
    loop {
        incoming.fill(incoming.next(&ring)?)?;
    }
}

/// What goes on when the other process dies.
const OPERATIONS: [&str; 4] = ["none", "fetch", "write", "frames"];

fn die(signal: i32, within: Duration) -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        let key = Key::generate()?;
        let remote = Remote::new(&setup.context, &key, &options())?;
        for operation in OPERATIONS {
            let victim = Victim::start(&key)?;
            let peer = remote.connect(victim.address.as_str())?;
            let there = peer.open(&victim.ticket)?;
            let here = shared(&memory, &vec![0; SIZE])?;
            let mut outgoing = peer.frames("a", SIZE)?;
            let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &Signals::new(&setup.context)?, 2, SIZE)?;
            let incoming = peer.receive_frames("b", &ring)?;
            incoming.fill(ring.next()?)?;
            there.fetch(.., &here, 0)?.wait()?;
            assert!(here.to_vec()? == pattern(SIZE, 1));

            // The operation is repeated until the end is known, so that the signal meets it.
            let (begin, died) = std::thread::scope(|scope| -> Result<_, Box<dyn std::error::Error>> {
                let work = scope.spawn(|| -> Result<(), Error> {
                    loop {
                        match operation {
                            "fetch" => there.fetch(.., &here, 0)?.wait()?,
                            "write" => there.write(0, &here, ..)?.wait()?,
                            "frames" => drop(outgoing.send(&here, ..)?),
                            _ => {
                                peer.check()?;
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        }
                    }
                });
                std::thread::sleep(Duration::from_millis(50));
                victim.signal(signal);
                let begin = Instant::now();
                Ok((begin, work.join().map_err(|_| "a panic")?.expect_err("it dies")))
            })?;
            assert!(matches!(died, Error::PeerGone { .. } | Error::TimedOut { .. }), "{operation}: {died}");
            eventually("the end is known", || peer.check().is_err());
            assert!(begin.elapsed() < within, "{operation}: {:?}", begin.elapsed());
            // All memory can be used again, and another connection is made.
            drop((there, outgoing, incoming));
            peer.close()?;
            let again = Victim::start(&key)?;
            let peer = remote.connect(again.address.as_str())?;
            peer.open(&again.ticket)?.fetch(.., &here, 0)?.wait()?;
            assert!(here.to_vec()? == pattern(SIZE, 1));
            peer.close()?;
        }
        Ok(())
    })
}

#[test]
fn a_killed_peer_is_gone_within_a_second() -> Outcome {
    die(libc::SIGKILL, Duration::from_secs(1))
}

#[test]
fn a_stopped_peer_is_gone_within_seven_seconds() -> Outcome {
    die(libc::SIGSTOP, Duration::from_secs(7))
}
