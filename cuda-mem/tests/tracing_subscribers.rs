//! Subscribers of the crate `tracing` that use the library, and that wait for threads that use it. One test, because a
//! process has one subscriber.

#![allow(clippy::disallowed_methods, reason = "tests wait as they like")]

use cuda_mem::memory::{DeviceMemory, kind};
use cuda_mem::pool::{AddressPools, Pool, PoolOptions};
use cuda_mem::{Buffer, Driver, Error, Stream};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Longer than the program takes, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// What a subscriber does with each event.
static PROGRAM: Mutex<Option<fn()>> = Mutex::new(None);

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct Busy;

impl Subscriber for Busy {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cuda_mem::")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let program = *PROGRAM.lock().expect("nobody panics with it");
        if let Some(program) = program.filter(|_| !IS_INSIDE.replace(true)) {
            program();
            IS_INSIDE.set(false);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn subscribe(program: Option<fn()>) {
    *PROGRAM.lock().expect("nobody panics with it") = program;
}

static POOLS: OnceLock<AddressPools> = OnceLock::new();
static GROWING: Mutex<Option<(Pool<kind::Device>, Stream)>> = Mutex::new(None);

/// Grows the pool on a thread that is told of nothing.
fn grow_elsewhere() {
    let (pool, stream) = GROWING.lock().expect("nobody panics with it").clone().expect("it was set");
    let grow = move || {
        IS_INSIDE.set(true);
        drop(Buffer::<u8, _>::uninit(&pool, 40 << 20, &stream).expect("there is memory"));
    };
    thread::spawn(grow).join().expect("it does not panic");
}

fn program() -> Result<(), Error> {
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;

    let mut options = PoolOptions::default();
    options.initial = 4 << 20;
    let pools = POOLS.get_or_init(|| AddressPools::new(&driver, &options).expect("the devices are counted"));
    subscribe(Some(|| drop(POOLS.get().expect("just made").pool(0))));
    pools.pool(0)?;
    subscribe(None);

    for in_place in [false, true] {
        let mut options = PoolOptions::default();
        options.in_place = in_place;
        let (pool, stream) = (Pool::new(&DeviceMemory::new(&context), &options)?, Stream::new(&context)?);
        *GROWING.lock().expect("nobody panics with it") = Some((pool.clone(), stream.clone()));
        subscribe(Some(grow_elsewhere));
        drop(Buffer::<u8, _>::uninit(&pool, 20 << 20, &stream)?);
        pool.release_unused()?;
        subscribe(None);
    }
    Ok(())
}

#[test]
fn subscribers_use_pools_that_tell_them_something() -> Result<(), Box<dyn std::error::Error>> {
    tracing::subscriber::set_global_default(Busy)?;
    let (tell, told) = channel();
    thread::spawn(move || tell.send(program()));
    told.recv_timeout(LIMIT).map_err(|_| "the program hangs")??;
    Ok(())
}
