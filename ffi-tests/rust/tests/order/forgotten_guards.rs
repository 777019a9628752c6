//! Guards and bindings may be forgotten: borrows stay sound, and no byte is lost that the drop would have posted.
//! Guards own nothing, so nothing is left behind. `forgotten_values.rs` tests values that own something.

use cuda_mem::graph::RelaxedCalls;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Stream};
use softgpu::CpuBorrow;
use std::mem;
use std::ops::DerefMut;
use std::thread;
use testkit::suite::{Outcome, WISHES};
use testkit::{Setup, alone, pattern, pop_all, same};

/// Forgets a guard, and tells softgpu that the borrow is over, because softgpu cannot see it.
fn forget<T>(mut guard: impl DerefMut<Target = [T]>) {
    CpuBorrow::end_all(guard.as_mut_ptr().addr(), size_of_val(&*guard));
    mem::forget(guard);
}

/// Runs a test with each available coherence.
fn with_each_coherence(test: impl Fn(&Setup, &MappedMemory) -> Outcome) -> Outcome {
    alone(|setup| {
        for (name, wish) in WISHES {
            match MappedMemory::with_coherence(&setup.context, wish) {
                Ok(resource) => test(setup, &resource).map_err(|error| format!("{name}: {error}"))?,
                Err(error) if wish == CoherencePolicy::Required => println!("skipped: {name}: {error}"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

#[test]
fn what_a_forgotten_guard_of_a_buffer_wrote_is_kept() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::filled(resource, 4096, 1u8, &stream)?;
        let mut model = vec![1; 4096];
        let mut guard = buffer.write(100..200)?;
        guard.fill(2);
        forget(guard);
        let _forgotten = mem::ManuallyDrop::new(buffer.read(0..300)?);
        model[100..200].fill(2);
        same("the CPU", &buffer.read(..)?, &model)?;
        let mut guard = buffer.write(1000..1100)?;
        guard.fill(4);
        forget(guard);
        model[1000..1100].fill(4);
        buffer.fill(1050..1060, 3)?; // in the same atom
        model[1050..1060].fill(3);
        same("the device", &buffer.to_vec()?, &model)?;
        same("the CPU after the device", &buffer.read(..)?, &model)?;
        // A view's guard, and a copy that reads the buffer on another stream.
        let mut view = buffer.view_mut(&[64, 64])?;
        let mut guard = view.write::<u8>()?;
        guard.iter_mut().for_each(|byte| *byte = 5);
        CpuBorrow::end_all(guard.as_mut_slice().ok_or("the view has gaps")?.as_ptr().addr(), 4096);
        mem::forget(guard);
        let _forgotten = mem::ManuallyDrop::new(view.read::<u8>()?);
        let mut copy =
            Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), 4096, &Stream::new(&setup.context)?)?;
        copy.copy_from_buffer(0, &buffer, ..)?;
        same("the copy", &copy.to_vec()?, &[5; 4096])?;
        same("the view's bytes", &buffer.read(..)?, &[5; 4096])?;
        // Both parts of a buffer that is divided after a guard was forgotten.
        let mut guard = buffer.write(..)?;
        guard.copy_from_slice(&pattern(4096, 6));
        forget(guard);
        let (mut left, mut right) = buffer.split_at(2048)?;
        right.fill(.., 7)?;
        same("the left part", &left.read(..)?, &pattern(4096, 6)[..2048])?;
        same("the right part", &right.read(..)?, &[7; 2048])?;
        Ok(())
    })
}

#[test]
fn forgotten_guard_write_does_not_overwrite_the_next_owner() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(resource, &PoolOptions::default())?;
        let mut first = Buffer::<u8, _>::zeroed(&pool, 4096, &stream)?;
        let address = first.device_pointer();
        let mut guard = first.write(..)?;
        guard.fill(2);
        forget(guard);
        drop(first);
        let mut second = Buffer::filled(&pool, 4096, 3u8, &stream)?;
        assert_eq!(second.device_pointer(), address, "the test wants the block again");
        same("the next owner's bytes", &second.read(..)?, &[3; 4096])?;
        same("the next owner's bytes on the device", &second.to_vec()?, &[3; 4096])?;
        Ok(())
    })
}

#[test]
fn forgotten_binding_affects_only_its_own_thread() -> Outcome {
    alone(|setup| {
        let current = || {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the result is writable.
            unsafe { setup.driver.raw().cuCtxGetCurrent(&mut raw) }.map(|_| raw)
        };
        let use_it = |context: &Context| -> Outcome {
            let stream = Stream::new(context)?;
            let mut buffer = Buffer::from_slice(&DeviceMemory::new(context), &[1u8, 2, 3], &stream)?;
            buffer.fill(1..2, 9)?;
            Ok(same("a buffer", &buffer.to_vec()?, &[1, 9, 3])?)
        };
        thread::scope(|threads| {
            let bound = threads.spawn(|| -> Result<(), String> {
                let run = || -> Outcome {
                    let own = setup.context.device().create_context()?;
                    mem::forget(own.bind()?);
                    assert_eq!(current()?, own.raw());
                    // Other contexts are bound above it, and afterwards it is current again.
                    use_it(&setup.context)?;
                    use_it(&own)?;
                    assert_eq!(current()?, own.raw());
                    // It may end while it is current here. A new context must not be taken for it.
                    drop(own);
                    use_it(&setup.context)?;
                    let next = setup.context.device().create_context()?;
                    use_it(&next)?;
                    mem::forget(setup.context.bind()?);
                    mem::forget(RelaxedCalls::begin(&setup.driver)?);
                    use_it(&next)?;
                    drop(next);
                    pop_all(&setup.driver)
                };
                run().map_err(|error| error.to_string())
            });
            bound.join().map_err(|_| "the thread panicked")?
        })?;
        assert!(current()?.is_null(), "another thread's binding");
        use_it(&setup.context)
    })
}
