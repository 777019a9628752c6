//! Receives UDP packets on the loopback and brings them to the device in frames; the consumer's work on each frame is queued
//! before the frame's first packet arrives.
//!
//! `cargo run --release --package cuda-mem --example udp_ingest` runs on a GPU, and with
//! `CUDA_MEM_LIBCUDA=softgpu` in the environment on the software GPU. A thread of this process sends, 127.0.0.1 alone is used,
//! and all ends after some seconds.
//!
//! What is measured: the time from the return of `recv` with a frame's last packet to the moment at which the CPU sees that the
//! consumer's stream has begun to work on the frame. The stream's first work writes the frame's number into pinned memory, and a
//! thread does nothing but look at it. So the time has the way to the device and the way back in it.

use cuda_mem::frames::{Frame, FrameRing};
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::{DeviceCounter, Signals, WaitPolicy};
use cuda_mem::{Allocate, Buffer, Context, Stream};
use std::error::Error as StdError;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn StdError>>;

/// Bytes of data in a packet, behind 8 bytes of its number.
const DATA: usize = 1024;
const PACKETS: usize = 32;
const FRAME: usize = PACKETS * DATA;
/// How many frames are sent.
const FRAMES: usize = 2000;
const SLOTS: usize = 8;
const DEADLINE: Duration = Duration::from_secs(20);

fn main() -> Outcome<()> {
    let context = Context::open(0)?;
    println!("on {}", context.device().name()?);
    let signals = Signals::new(&context)?;
    let ring = FrameRing::new(&PinnedMemory::new(&context), &signals, SLOTS, FRAME)?;
    let consumer = Stream::new(&context)?;
    let arrived = DeviceMemory::new(&context).zeroed(SLOTS * FRAME, &consumer)?;
    let started = signals.device_counter::<u32>()?;
    consumer.synchronize()?;

    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (to, over) = (socket.local_addr()?, AtomicBool::new(false));
    let (received, starts) = thread::scope(|scope| -> Outcome<_> {
        let watcher = scope.spawn(|| watch(&started, &over));
        let sender = scope.spawn(move || send(UdpSocket::bind("127.0.0.1:0")?, to));
        let mut receiver =
            Receiver { ring: &ring, consumer: &consumer, started: &started, arrived, got: Received::default() };
        let outcome = receiver.run(&socket);
        let finished = consumer.synchronize();
        over.store(true, Ordering::Release);
        let starts = watcher.join().map_err(|_| "the watcher panicked")?;
        sender.join().map_err(|_| "the sender panicked")??;
        outcome?;
        finished?;
        // The last frame, as the device has it.
        let last = receiver.got.last_bytes.len() - 1;
        let mut bytes = vec![0; FRAME];
        receiver.arrived.copy_to_slice(last % SLOTS * FRAME, &mut bytes)?;
        let whole = (0..FRAME).all(|at| usize::from(bytes[at]) == (last * PACKETS + at / DATA) % 251);
        if receiver.got.lost == 0 && !whole {
            return Err("the device has other bytes than were sent".into());
        }
        Ok((receiver.got, starts))
    })?;
    report(&received, &starts, &ring);
    Ok(())
}

#[derive(Default)]
struct Received {
    packets: usize,
    lost: usize,
    /// When each frame's last packet was there, by the frame's number less 1.
    last_bytes: Vec<Instant>,
    time: Duration,
}

struct Receiver<'all, K: cuda_mem::memory::kind::Kind> {
    ring: &'all FrameRing,
    consumer: &'all Stream,
    started: &'all DeviceCounter<u32>,
    arrived: Buffer<u8, K>,
    got: Received,
}

impl<K: cuda_mem::memory::kind::Kind> Receiver<'_, K> {
    /// Takes a frame, and queues what the consumer does with it: all of that waits for the frame.
    fn open(&mut self) -> Outcome<Frame> {
        let frame = self.ring.next_with(&WaitPolicy::within(Duration::from_secs(5)))?;
        frame.wait_on(self.consumer)?;
        self.started.store_on(self.consumer, frame.number() as u32)?;
        let at = (frame.number() - 1) as usize % SLOTS * FRAME;
        self.arrived.copy_from_frame(at, &frame, ..)?;
        Ok(frame)
    }

    fn run(&mut self, socket: &UdpSocket) -> Outcome<()> {
        let (mut packet, begin) = ([0u8; 8 + DATA], Instant::now());
        let (mut frame, mut filled, mut first) = (self.open()?, 0, 0);
        while begin.elapsed() < DEADLINE {
            let number = match socket.recv(&mut packet) {
                Ok(length) if length == packet.len() => {
                    usize::try_from(u64::from_le_bytes(packet[..8].try_into()?)).unwrap_or(usize::MAX)
                }
                Ok(_) => continue,
                // The sender has ended, and what is missing will not come.
                Err(_) => break,
            };
            if number < first || number >= FRAMES * PACKETS {
                continue;
            }
            // A packet of a later frame: what is missing of this one is lost.
            while number >= first + PACKETS {
                self.publish(frame)?;
                frame = self.open()?;
                (filled, first) = (0, first + PACKETS);
            }
            frame.store((number - first) * DATA, &packet[8..])?;
            (self.got.packets, filled) = (self.got.packets + 1, filled + 1);
            if filled < PACKETS {
                continue;
            }
            if first + PACKETS == FRAMES * PACKETS {
                break;
            }
            self.publish(frame)?;
            frame = self.open()?;
            (filled, first) = (0, first + PACKETS);
        }
        // The last one, or what there is of it.
        self.publish(frame)?;
        self.got.time = begin.elapsed();
        self.got.lost = FRAMES * PACKETS - self.got.packets;
        Ok(())
    }

    fn publish(&mut self, frame: Frame) -> Outcome<()> {
        self.got.last_bytes.push(Instant::now());
        frame.publish()?;
        Ok(())
    }
}

/// Sends all packets, in bursts of a frame, so that the socket's buffer holds them.
fn send(socket: UdpSocket, to: std::net::SocketAddr) -> std::io::Result<()> {
    let (mut packet, begin) = ([0u8; 8 + DATA], Instant::now());
    for number in 0..FRAMES * PACKETS {
        packet[..8].copy_from_slice(&(number as u64).to_le_bytes());
        packet[8..].fill((number % 251) as u8);
        socket.send_to(&packet, to)?;
        if number % PACKETS == PACKETS - 1 {
            // Not a wait for the device.
            #[expect(clippy::disallowed_methods)]
            thread::sleep(Duration::from_micros(200));
        }
        if begin.elapsed() > DEADLINE {
            break;
        }
    }
    Ok(())
}

/// When the consumer's work on each frame began, as the CPU sees it.
fn watch(started: &DeviceCounter<u32>, over: &AtomicBool) -> Vec<Instant> {
    let mut starts = Vec::with_capacity(FRAMES + 1);
    loop {
        let ended = over.load(Ordering::Acquire);
        let (number, now) = (started.value() as usize, Instant::now());
        // One that was passed between two looks is as late as the next.
        starts.resize(number.max(starts.len()), now);
        if ended {
            return starts;
        }
        std::hint::spin_loop();
    }
}

fn report(received: &Received, starts: &[Instant], ring: &FrameRing) {
    let mut times: Vec<Duration> =
        received.last_bytes.iter().zip(starts).map(|(last, start)| start.saturating_duration_since(*last)).collect();
    times.sort_unstable();
    let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().max(1) - 1));
    let text =
        |time: Option<&Duration>| time.map_or("none".into(), |time| format!("{:.2} us", time.as_secs_f64() * 1e6));
    let figures = ring.statistics();
    println!(
        "{} frames of {FRAME} bytes in {:.2} s: {:.0} frames/s",
        figures.published,
        received.time.as_secs_f64(),
        figures.published as f64 / received.time.as_secs_f64()
    );
    println!("{} of {} packets lost, {} times no frame was free", received.lost, FRAMES * PACKETS, figures.overruns);
    println!("from the last byte to the start of the consumer's work: p50 {}, p99 {}", text(at(0.5)), text(at(0.99)));
}
