//! Two processes work on the same memory. This program starts itself a second time; the two talk by a socket.
//!
//! `cargo run --release --package cuda-mem --features sharing --example share` runs on a GPU, and with
//! `CUDA_MEM_LIBCUDA=softgpu` in the environment on the software GPU.

use cuda_mem::ipc::{Channel, Export};
use cuda_mem::memory::{DevicePool, DriverPoolOptions};
use cuda_mem::{Allocate, Context, Event, Stream};
use std::error::Error as StdError;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

fn main() -> Result<(), Box<dyn StdError>> {
    let context = Context::open(0)?;
    match std::env::args().nth(1).as_deref() {
        Some("child") => child(&context),
        _ => parent(&context),
    }
}

fn parent(context: &Context) -> Result<(), Box<dyn StdError>> {
    // The child gets its end of the channel as its standard input.
    let (mut channel, theirs) = Channel::pair()?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .stdin(Stdio::from(OwnedFd::from(theirs.into_stream())))
        .spawn()?;

    println!("on {}", context.device().name()?);
    let stream = Stream::new(context)?;
    let mut options = DriverPoolOptions::default();
    options.shareable = true;
    let pool = DevicePool::new(context, &options)?;
    let mut numbers = pool.from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0], &stream)?.into_shared();
    let ready = Event::shareable(context)?;

    channel.send(&pool.export()?)?;
    channel.send(&numbers.slice(1..4)?.export()?)?; // a part is enough
    numbers.fill(2..3, 30.0)?; // work that goes on meanwhile,
    ready.record(&stream)?; // and an event for who has to wait for it
    channel.send(&ready.export()?)?;

    println!("the child answered: {}", String::from_utf8_lossy(&channel.receive_bytes()?));
    println!("the numbers are now {:?}", numbers.to_vec()?);
    assert_eq!(numbers.to_vec()?, [1.0, -1.0, -1.0, -1.0, 5.0]);
    if child.wait()?.success() { Ok(()) } else { Err("the child failed".into()) }
}

fn child(context: &Context) -> Result<(), Box<dyn StdError>> {
    let mut channel = Channel::from_stream(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    let stream = Stream::new(context)?;

    let Export::Pool(pool) = channel.receive()? else { return Err("the pool comes first".into()) };
    let pool = DevicePool::import(context, pool)?;
    let Export::PoolMemory(part) = channel.receive()? else { return Err("then a part of its memory".into()) };
    let mut part = pool.import_buffer::<f32>(&part, &stream)?;
    let Export::Event(ready) = channel.receive()? else { return Err("then an event".into()) };
    stream.wait(&Event::import(context, &ready)?)?;

    let seen = part.to_vec()?;
    part.fill(.., -1.0)?;
    part.synchronize()?;
    channel.send_bytes(format!("I saw {seen:?}").as_bytes())?;
    Ok(())
}
