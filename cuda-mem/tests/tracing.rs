//! What subscribers of the crate `tracing` learn. One test, because a process has one subscriber.

#![allow(clippy::disallowed_methods, reason = "tests wait as they like")]

use cuda_mem::copy::CopyEngine;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Allocate, Driver, Error, MappedMemory, Stream, waiting};
use std::fmt::Debug;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Writes each event and each span's begin and end as a line.
struct Lines;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

fn tell(line: String) {
    TOLD.lock().expect("nobody panics with it").push(line);
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cuda_mem::")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(format!("{} {}", span.metadata().target(), span.metadata().name()));
        span.record(&mut fields);
        tell(fields.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(format!("{} {}", event.metadata().target(), event.metadata().level()));
        event.record(&mut fields);
        tell(fields.0);
    }

    fn enter(&self, _: &Id) {
        tell("enter".to_owned());
    }

    fn exit(&self, _: &Id) {
        tell("exit".to_owned());
    }
}

/// The lines since the last call.
fn told() -> Vec<String> {
    std::mem::take(&mut TOLD.lock().expect("nobody panics with it"))
}

#[test]
fn subscribers_learn_of_growth_waits_and_copies() -> Result<(), Box<dyn std::error::Error>> {
    tracing::subscriber::set_global_default(Lines)?;
    let context = Driver::software()?.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;

    for in_place in [false, true] {
        let mut options = PoolOptions::default();
        (options.in_place, options.maximum) = (in_place, 64 << 20);
        let pool = Pool::new(&DeviceMemory::new(&context), &options)?;
        drop(pool.zeroed::<u8>(40 << 20, &stream)?);
        let growth = told();
        assert!(growth.iter().any(|line| line.starts_with("cuda_mem::pool DEBUG") && line.contains("takes memory")));

        for _ in 0..100 {
            drop(pool.zeroed::<u8>(40 << 20, &stream)?);
            drop(pool.zeroed::<u8>(4096, &stream)?);
        }
        assert_eq!(told(), [""; 0], "blocks of the pool itself are no events");

        let error = pool.zeroed::<u8>(100 << 20, &stream).err().ok_or("it exceeds the maximum")?;
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        let lacks: Vec<_> = told().into_iter().filter(|line| line.starts_with("cuda_mem::pool WARN")).collect();
        assert_eq!(lacks.len(), 1, "{lacks:?}");
        assert!(lacks[0].contains("requested=104857600") && lacks[0].contains("out of memory"), "{lacks:?}");

        pool.zeroed::<u8>(1 << 20, &stream)?.close().map_err(|refused| refused.error)?;
        told();
        stream.synchronize()?;
        pool.trim_to(0)?;
        assert!(told().iter().any(|line| line.contains("returns memory")), "a trim returns memory");
    }

    let engine = CopyEngine::new(&context)?;
    let mut mapped = MappedMemory::new(&context)?.zeroed::<u8>(4096, &stream)?;
    let mut device = DeviceMemory::new(&context).zeroed::<u8>(1 << 20, &stream)?;
    told();
    engine.write(&mut mapped, 0, &[1; 64])?;
    assert_eq!(told(), [""; 0], "small stores are no events");
    engine.write(&mut device, 0, &vec![1; 1 << 20])?;
    let copy = told();
    assert!(copy[0].starts_with("cuda_mem::copy copy bytes=1048576 direction=ToDevice method="), "{copy:?}");
    assert_eq!(copy[1..], ["enter", "exit"]);

    waiting::set_limit(Some(Duration::from_millis(20)));
    stream.launch_host_function(|| thread::sleep(Duration::from_millis(300)))?;
    stream.synchronize()?;
    // The watchdog's thread tells of the wait beside this one.
    let begin = Instant::now();
    let is_told =
        || told().iter().any(|line| line.starts_with("cuda_mem::waiting WARN") && line.contains("synchronize"));
    while !is_told() {
        assert!(begin.elapsed() < Duration::from_secs(10), "nobody tells of the wait");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
