//! Programs from public bug reports of neighbouring projects. The table in docs/reliability.md names the reports.

use crate::third::channels::interrupted;
use cuda_mem::interchange::array_interface::ArrayInterface;
use cuda_mem::ipc::{Channel, Listener, MAX_MESSAGE};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::view::{Index, ViewError};
use cuda_mem::{Buffer, Error, HostBuffer, Stream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, alone, in_its_own_process, in_time, pattern, run_alone, same, test_name};

const SIZE: usize = 4096;

/// Longer than a call takes that does not wait.
const LATER: Duration = Duration::from_millis(50);

// ---- Read-only arrays ----

#[test]
fn a_read_only_cuda_array_comes_in_and_stays_read_only() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let buffer = Buffer::<i32, _>::from_slice(&DeviceMemory::new(&setup.context), &[1, 2, 3], &stream)?;
        stream.synchronize()?;
        let buffer = buffer.into_shared();
        // What JAX exported: version 2, without strides and stream.
        let said = format!(
            r#"{{"shape": [3], "typestr": "<i4", "data": [{}, true], "version": 2}}"#,
            buffer.tensor().tensor().address()
        );
        // SAFETY: the buffer owns the memory, and nobody writes it.
        let seen = unsafe { ArrayInterface::from_json(&said)?.import_cuda(Arc::new(buffer.clone()), &stream, false) }?;
        assert!(seen.tensor().is_read_only() && seen.cuda_array_interface()?.data.1);
        assert!(seen.memory().is_err_and(|error| error.to_string().contains("read-only")));
        let mut view = seen.clone().into_view()?;
        assert_eq!(view.to_vec::<i32>()?, [1, 2, 3]);
        let refused = view.copy_from(&buffer.clone().into_view(&[3])?);
        assert!(refused.is_err_and(|error| error.to_string().contains("read-only")));
        // A way through another array does not lose it.
        // SAFETY: as above.
        let again = unsafe { seen.cuda_array_interface()?.import_cuda(Arc::new(seen.clone()), &stream, false) }?;
        assert!(again.tensor().is_read_only());
        assert!(again.into_buffer::<i32, Any>().is_err());
        Ok(())
    })
}

// ---- Arrays without elements ----

#[test]
fn an_array_without_elements_comes_in_with_any_address() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let own = Buffer::<i64, _>::zeroed(&DeviceMemory::new(&setup.context), 3, &stream)?.into_shared();
        let inside = own.tensor().tensor().address();
        for (address, strides) in [(0, "null"), (inside, "null"), (inside, "[-8]"), (1 << 60, "null")] {
            let said = format!(
                r#"{{"shape": [0], "typestr": "<i8", "data": [{address}, false], "version": 2, "strides": {strides}}}"#
            );
            // SAFETY: there are no elements.
            let seen = unsafe { ArrayInterface::from_json(&said)?.import_cuda(Arc::new(()), &stream, false) }?;
            assert!(seen.tensor().is_empty(), "{said}");
            assert_eq!(seen.cuda_array_interface()?.data.0, 0, "{said}");
            assert!(seen.into_buffer::<i64, Any>().map_err(|refused| refused.error)?.to_vec()?.is_empty());
        }
        Ok(())
    })
}

// ---- Overlap ----

#[test]
fn overlap_is_found_where_strides_have_both_signs() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let numbers: Vec<u8> = (0..9).collect();
        let buffer = Buffer::from_slice(&DeviceMemory::new(&setup.context), &numbers, &stream)?.into_shared();
        let whole = buffer.clone().into_view(&[3, 3])?;
        let back = |start| Index::Slice { start: Some(start), end: None, step: -1 };
        // Two rows down and two columns back share the middle with the two rows and columns at the end.
        let upper = whole.clone().sliced(&[Index::from(..2), back(1)])?;
        let lower = whole.clone().sliced(&[Index::from(1..), Index::from(1..)])?;
        for (to, from) in [(&upper, &lower), (&lower, &upper)] {
            match to.clone().copy_from(from) {
                Err(Error::View(error)) if matches!(*error, ViewError::Overlap { .. }) => {}
                other => return Err(format!("not refused: {other:?}").into()),
            }
        }
        // The last column, downwards, shares nothing with the first, upwards.
        let mut last = whole.clone().sliced(&[Index::ALL, Index::from(2..)])?;
        last.copy_from(&whole.sliced(&[Index::reversed(), Index::from(..1)])?)?;
        assert_eq!(buffer.to_vec()?, [0, 1, 6, 3, 4, 3, 6, 7, 0]);
        Ok(())
    })
}

// ---- Signals ----

const MESSAGES: usize = 40;

#[test]
fn connections_work_under_signals_that_restart_no_call() -> Outcome {
    let file = std::env::temp_dir().join(format!("cuda-mem-test-restart-{}", std::process::id()));
    let mut listener = Listener::bind(&file)?;
    listener.set_timeout(Some(LIMIT))?;
    let message = pattern(MAX_MESSAGE, 3);
    let expected = message.clone();
    // Each call waits for the other thread; all messages together are more than the system keeps.
    let ((outcome, other), took) = interrupted(move || {
        let other = thread::spawn(move || later(&file, &message));
        let ours = || {
            let mut here = listener.accept()?;
            let bytes = here.receive_bytes()?;
            (0..MESSAGES).try_for_each(|_| here.send_bytes(&bytes))
        };
        (ours(), other)
    })?;
    outcome?;
    for bytes in other.join().map_err(|_| "the other end has panicked")?? {
        same("a message", &bytes, &expected)?;
    }
    assert!(took >= 2 * LATER, "nothing waited: {took:?}");
    Ok(())
}

/// The other end, which lets each call wait.
fn later(file: &Path, message: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    thread::sleep(LATER);
    let mut there = Channel::connect(file)?;
    thread::sleep(LATER);
    there.send_bytes(message)?;
    thread::sleep(LATER);
    (0..MESSAGES).map(|_| there.receive_bytes()).collect()
}

// ---- Socket files ----

#[test]
fn a_socket_path_is_used_whole_or_refused() -> Outcome {
    let folder = std::env::temp_dir().join(format!("cuda-mem-test-long-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let rest = 107 - folder.as_os_str().as_bytes().len() - 1;
    let longest = folder.join("x".repeat(rest));
    let listener = Listener::bind(&longest)?;
    drop(Channel::connect(&longest)?);
    drop(listener.accept()?);
    drop(listener);
    let _ = std::fs::remove_file(&longest);
    // One byte more: no shorter name is taken in its place.
    for more in [1, 2, 50] {
        let long = folder.join("x".repeat(rest + more));
        for error in [Listener::bind(&long).err(), Channel::connect(&long).err()] {
            let text = error.ok_or("it is not refused")?.to_string();
            assert!(text.contains("107 bytes"), "{text}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(&folder)?.collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_dir(&folder)?;
    Ok(())
}

// ---- Old drivers ----

#[test]
fn a_driver_without_pools_serves_all_that_needs_none() {
    let mut command = in_its_own_process(&test_name!("part_without_pools"));
    command.env("CUDA_MEM_LIBCUDA", "softgpu").env("SOFTGPU_VERSION", "11010");
    run_alone(&mut command);
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_without_pools() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pools = [
            DevicePool::new(&setup.context, &DriverPoolOptions::default()),
            DevicePool::current(&setup.context),
            DevicePool::default_of(&setup.context),
        ];
        for outcome in pools {
            match outcome {
                Err(error @ Error::Unsupported { .. }) => assert!(error.to_string().contains("11.2"), "{error}"),
                other => return Err(format!("there are no pools: {other:?}").into()),
            }
        }
        let memory = DeviceMemory::new(&setup.context);
        let plain = Buffer::<u8, _>::filled(&memory, SIZE, 5, &stream)?;
        same("plain memory", &plain.to_vec()?, &[5; SIZE])?;
        let pool = Pool::new(&memory, &PoolOptions::default())?;
        let mut pooled = Buffer::<u8, _>::zeroed(&pool, SIZE, &stream)?;
        pooled.copy_from_buffer(0, &plain, ..)?;
        same("memory of a pool", &pooled.to_vec()?, &[5; SIZE])?;
        Ok(())
    })
}

// ---- Locks of the program ----

#[test]
fn pools_are_used_under_a_lock_that_a_host_function_needs() -> Outcome {
    alone(|setup| in_time(setup, under_a_lock))
}

fn under_a_lock(setup: &Setup) -> Outcome {
    let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
    let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
    let old = Buffer::<u8, _>::filled(&pool, SIZE, 1, &stream)?;
    let exported = Buffer::<u8, _>::filled(&pool, SIZE, 2, &stream)?.into_shared();
    let host = HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), SIZE)?;
    stream.synchronize()?;
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let (tell, told) = channel();
    let needed = lock.clone();
    // As a callback that takes an interpreter's lock.
    stream.launch_host_function(move || {
        let _ = tell.send(());
        drop(needed.lock().unwrap_or_else(PoisonError::into_inner));
    })?;
    told.recv_timeout(LIMIT)?;
    // The function runs, and waits for the lock of this thread. No call below may wait for it.
    let mut next = Buffer::<u8, _>::zeroed(&pool, SIZE, &stream)?;
    next.copy_from_buffer(0, &old, ..)?;
    let tensor = exported.tensor().to_dlpack(&Default::default())?;
    drop((old, exported, tensor));
    let beside = Buffer::<u8, _>::filled(&pool, SIZE, 3, &other)?;
    same("another stream's memory", &beside.to_vec()?, &[3; SIZE])?;
    let download = next.download(0, host).map_err(Error::from)?;
    assert!(!download.is_done()? && !stream.is_done()?, "the function did not wait");
    drop(held);
    same("the copy", &download.wait()?, &[1; SIZE])?;
    Ok(())
}
