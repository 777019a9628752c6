//! Callers' functions that panic: host functions of streams, hooks of pools, recordings of captures.

use crate::soak::panics::{self, Payload, panic_now};
use crate::soak::{Done, Hands};
use cuda_mem::Buffer;
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::pool::{Pool, PoolOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};

/// Causes one panic. Everything that existed before must still work.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let choice = hands.below(60);
    match hands.below(3) {
        0 => {
            hands.doing("a function of a stream that panics");
            let held = hands.take()?;
            let stream = held.buffer.stream().clone();
            let owned = Payload(choice as u32 % 3);
            stream.launch_host_function(move || {
                let _owned = owned;
                panic_now(choice)
            })?;
            held.check(hands)?;
            hands.keep(held);
            Ok(())
        }
        1 => {
            hands.doing("a pool's hook that panics");
            let (stream, byte) = (hands.stream()?, hands.number() as u8);
            let mut options = PoolOptions::default();
            (options.initial, options.maximum) = (1 << 16, 1 << 16);
            options.on_out_of_memory = Some(Arc::new(move |_| panic_now(choice)));
            let pool = Pool::new(&DeviceMemory::new(&hands.world.context), &options)?;
            let buffer = Buffer::filled(&pool, 1000, byte, &stream)?;
            caught(|| Buffer::<u8, _>::zeroed(&pool, 1 << 20, &stream))?;
            let again = Buffer::filled(&pool, 1000, !byte, &stream)?;
            hands.same("memory of a pool whose hook panicked", &buffer.to_vec()?, &[byte; 1000])?;
            hands.same("memory after a hook's panic", &again.to_vec()?, &[!byte; 1000])
        }
        _ => {
            hands.doing("a recording that panics");
            let stream = cuda_mem::Stream::new(&hands.world.context)?;
            let mut held = hands.take()?;
            let captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
            caught(|| stream.capture(CaptureMode::Relaxed, |_| panic_now(choice)))?;
            drop(captures);
            held.buffer.set_stream(&stream)?;
            held.did("given another stream, whose capture panicked", 0..0);
            held.check(hands)?;
            hands.keep(held);
            Ok(())
        }
    }
}

/// Calls a function that must end with a planned panic. The driver may refuse the call before the panic.
fn caught<R>(function: impl FnOnce() -> cuda_mem::Result<R>) -> Done {
    let mut panic = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(_)) => return Err("nothing panicked".into()),
        Ok(Err(error)) => return Err(error.into()),
        Err(panic) => panic,
    };
    if let Some(payload) = panic.downcast_mut::<Payload>() {
        payload.0 = 0;
    } else if crate::soak::hands::text(&*panic) != panics::TEXT {
        resume_unwind(panic);
    }
    Ok(())
}
