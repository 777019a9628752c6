//! A cache of keys and values in one host's memory, of which another host fetches blocks and to which it writes.
//!
//! ```text
//! cargo run --release -p cuda-mem-remote --example cache -- both      both, as two processes
//! cache serve 10.0.0.7:7000                                           prints a ticket
//! cache use 10.0.0.7:7000 TICKET
//! ```
//!
//! The two hosts need one key in CUDA_MEM_REMOTE_KEY. `--blocks N` sets the number of blocks of 64 KiB.

#[path = "../roles/mod.rs"]
mod roles;

use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Context, Stream};
use cuda_mem_remote::{Key, Listener, Offer, Operation, Remote, RemoteOptions, Rights, Ticket};
use roles::{Outcome, context, key, option, second_process};
use std::time::Instant;

const BLOCK: usize = 64 << 10;
/// How many blocks are fetched at a time.
const AT_A_TIME: usize = 16;

fn main() -> Outcome<()> {
    let blocks = option("--blocks", 1000)?;
    let words: Vec<_> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["both", ..] => {
            let (context, key) = (context()?, Key::generate()?);
            let remote = Remote::new(&context, &key, &RemoteOptions::default())?;
            let listener = remote.listen("127.0.0.1:0")?;
            let offer = offer(&context, &remote, blocks)?;
            let address = listener.address().to_string();
            let words = ["use", &address, &digits(&offer.ticket()), "--blocks", &blocks.to_string()];
            let mut user = second_process(&key, &words.map(str::to_owned))?;
            serve(&listener)?;
            if user.wait()?.success() { Ok(()) } else { Err("the user of the cache failed".into()) }
        }
        ["serve", address, ..] => {
            let context = context()?;
            let remote = Remote::new(&context, &key()?, &RemoteOptions::default())?;
            let listener = remote.listen(address)?;
            let offer = offer(&context, &remote, blocks)?;
            println!("ticket: {}", digits(&offer.ticket()));
            serve(&listener)
        }
        ["use", address, ticket, ..] => fetch(address, &ticket_of(ticket)?, blocks),
        _ => Err("usage: cache both | serve ADDRESS | use ADDRESS TICKET [--blocks N]".into()),
    }
}

/// The owner's memory: each block is filled with its number.
fn offer(context: &Context, remote: &Remote, blocks: usize) -> Outcome<Offer> {
    let stream = Stream::new(context)?;
    let mut cache = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), blocks * BLOCK, &stream)?;
    for block in 0..blocks {
        cache.fill(block * BLOCK..(block + 1) * BLOCK, value(block))?;
    }
    Ok(remote.offer(&cache.into_shared(), Rights::ReadWrite)) // the offer keeps the memory
}

/// The owner does nothing: the connection's threads answer.
fn serve(listener: &Listener) -> Outcome<()> {
    println!("owner: {}", listener.accept()?.wait_for_end()?);
    Ok(())
}

fn fetch(address: &str, ticket: &Ticket, blocks: usize) -> Outcome<()> {
    let context = context()?;
    let peer = Remote::new(&context, &key()?, &RemoteOptions::default())?.connect(address)?;
    println!("user: {}", peer.transport());
    let cache = peer.open(ticket)?;
    let stream = Stream::new(&context)?;
    let mut here = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), AT_A_TIME * BLOCK, &stream)?.into_shared();
    let begin = Instant::now();
    for first in (0..blocks).step_by(AT_A_TIME) {
        let count = AT_A_TIME.min(blocks - first);
        let fetches = (0..count).map(|index| cache.fetch(range(first + index), &here, index * BLOCK));
        // All are under way before the first is waited for.
        fetches.collect::<Result<Vec<_>, _>>()?.into_iter().try_for_each(Operation::wait)?;
        let bytes = here.to_vec()?;
        let wrong = bytes[..count * BLOCK].iter().zip(0..).find(|(byte, place)| **byte != value(first + place / BLOCK));
        if let Some((byte, place)) = wrong {
            return Err(format!("block {}: {byte} at byte {}", first + place / BLOCK, place % BLOCK).into());
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    // A block that this host has changed.
    here.fill(..BLOCK, 255)?;
    cache.write(0, &here, ..BLOCK)?.wait()?;
    here.fill(..BLOCK, 0)?;
    cache.fetch(..BLOCK, &here, 0)?.wait()?;
    if here.to_vec()?[..BLOCK] != [255; BLOCK] {
        return Err("the written block came back otherwise".into());
    }
    let rate = (blocks * BLOCK) as f64 / seconds / 1e9;
    println!(
        "user: {blocks} blocks of {BLOCK} bytes arrived, one was written, and all were verified: {seconds:.2} s, {rate:.2} GB/s"
    );
    peer.close()?;
    Ok(())
}

fn range(block: usize) -> std::ops::Range<usize> {
    block * BLOCK..(block + 1) * BLOCK
}

fn value(block: usize) -> u8 {
    (block % 251) as u8
}

fn digits(ticket: &Ticket) -> String {
    ticket.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ticket_of(digits: &str) -> Outcome<Ticket> {
    let byte = |pair: &[u8]| -> Outcome<u8> { Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?) };
    Ok(Ticket::from_bytes(&digits.as_bytes().chunks(2).map(byte).collect::<Outcome<Vec<u8>>>()?)?)
}
