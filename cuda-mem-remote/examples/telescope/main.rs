//! A telescope's receiver sends frames of samples, and a correlator on another host works on each as soon as its last byte is
//! there.
//!
//! ```text
//! cargo run --release -p cuda-mem-remote --example telescope -- both --frames 1000    both, as two processes
//! telescope receive 10.0.0.7:7000 --frames 1000                                       on the correlator's host
//! telescope send 10.0.0.7:7000 --frames 1000                                          on the telescope's host
//! ```
//!
//! The two hosts need one key in CUDA_MEM_REMOTE_KEY. `--size N` sets the bytes of a frame.

#[path = "../roles/mod.rs"]
mod roles;

use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::Signals;
use cuda_mem::{Buffer, Context, HostBuffer, Stream};
use cuda_mem_remote::{Key, Listener, Remote, RemoteOptions};
use roles::{Outcome, context, key, option, second_process};
use std::collections::VecDeque;
use std::time::Instant;

const NAME: &str = "band-3";
/// How many frames the correlator has at a time.
const SLOTS: usize = 8;

fn main() -> Outcome<()> {
    let (frames, size) = (option("--frames", 1000)?, option("--size", 1 << 20)?);
    let mut words = std::env::args().skip(1);
    match (words.next().as_deref(), words.next()) {
        (Some("both"), _) => {
            let (context, key) = (context()?, Key::generate()?);
            let remote = Remote::new(&context, &key, &RemoteOptions::default())?;
            let listener = remote.listen("127.0.0.1:0")?;
            let address = listener.address().to_string();
            let words = ["send", &address, "--frames", &frames.to_string(), "--size", &size.to_string()];
            let mut telescope = second_process(&key, &words.map(str::to_owned))?;
            receive(&context, &listener, frames, size)?;
            if telescope.wait()?.success() { Ok(()) } else { Err("the telescope failed".into()) }
        }
        (Some("receive"), Some(address)) => {
            let context = context()?;
            let remote = Remote::new(&context, &key()?, &RemoteOptions::default())?;
            receive(&context, &remote.listen(address)?, frames, size)
        }
        (Some("send"), Some(address)) => send(&address, frames, size),
        _ => Err("usage: telescope both | receive ADDRESS | send ADDRESS [--frames N] [--size N]".into()),
    }
}

/// The telescope. The fill stands for its kernels.
fn send(address: &str, frames: usize, size: usize) -> Outcome<()> {
    let context = context()?;
    let peer = Remote::new(&context, &key()?, &RemoteOptions::default())?.connect(address)?;
    println!("telescope: {}", peer.transport());
    let mut outgoing = peer.frames(NAME, size)?;
    let stream = Stream::new(&context)?;
    let mut samples = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), size, &stream)?;
    for number in 0..frames {
        samples.fill(.., sample(number))?;
        outgoing.send(&samples, ..)?; // the next fill comes after the copy of this frame
    }
    peer.close()?;
    Ok(())
}

/// The correlator. The copy back to the host stands for its kernels.
fn receive(context: &Context, listener: &Listener, frames: usize, size: usize) -> Outcome<()> {
    let peer = listener.accept()?;
    let pinned = PinnedMemory::new(context);
    let ring = FrameRing::new(&pinned, &Signals::new(context)?, SLOTS, size)?;
    let incoming = peer.receive_frames(NAME, &ring)?;
    let stream = Stream::new(context)?;
    let mut input = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), size, &stream)?;
    let mut results = VecDeque::new();
    let begin = Instant::now();
    for number in 0..frames {
        let frame = incoming.next(&ring)?;
        input.copy_from_frame(0, &frame, ..)?; // queued now, runs when the frame is here
        let host = match results.len() {
            SLOTS => check(results.pop_front().expect("there are some"))?,
            _ => HostBuffer::zeroed(&pinned, size)?,
        };
        results.push_back((number, input.download(0, host)?));
        incoming.fill(frame)?; // now the network fills it
    }
    for result in results {
        check(result)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let rate = (frames * size) as f64 / seconds / 1e9;
    println!(
        "correlator: {frames} frames of {size} bytes arrived, and all were verified: {seconds:.2} s, {rate:.2} GB/s"
    );
    Ok(())
}

/// Waits for a result, and looks at each byte of it.
fn check((number, result): (usize, cuda_mem::buffer::Transfer<HostBuffer<u8>>)) -> Outcome<HostBuffer<u8>> {
    let host = result.wait()?;
    match host.iter().position(|byte| *byte != sample(number)) {
        None => Ok(host),
        Some(place) => {
            Err(format!("frame {number}, byte {place}: {} instead of {}", host[place], sample(number)).into())
        }
    }
}

fn sample(number: usize) -> u8 {
    (number % 251) as u8
}
