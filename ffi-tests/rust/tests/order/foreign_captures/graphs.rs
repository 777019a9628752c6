//! Memory that a pool gives to a stream that another library captures belongs to the graph until the graph ends.

use super::{Foreign, eventually, general_pools};
use cuda_mem::cuda_sys::{CUevent, CUresult};
use cuda_mem::graph::RelaxedCalls;
use cuda_mem::memory::{DeviceMemory, ResourceHandle, kind};
use cuda_mem::pool::{AddressPools, Pool, PoolOptions, SleepOptions};
use cuda_mem::{Buffer, Error, Stream};
use testkit::suite::Outcome;
use testkit::{Setup, alone_with_late_ends, same};

const SIZE: usize = 1 << 20;

/// A pool of one region of some blocks.
pub fn tight(setup: &Setup, blocks: usize) -> Result<Pool<kind::Device>, Error> {
    let mut options = PoolOptions::default();
    options.initial = blocks * SIZE;
    options.maximum = blocks * SIZE;
    Pool::new(&DeviceMemory::new(&setup.context), &options)
}

/// Whether the pool has no block for a new stream.
pub fn is_full(pool: &Pool<kind::Device>, setup: &Setup) -> Result<bool, Error> {
    match Buffer::<u8, _>::uninit(pool, SIZE, &Stream::new(&setup.context)?) {
        Err(Error::OutOfMemory { .. }) => Ok(true),
        other => other.map(|_| false),
    }
}

#[test]
fn a_graph_replays_with_memory_of_the_pool_and_new_input() -> Outcome {
    alone_with_late_ends(|setup| {
        let foreign = Foreign::new(setup)?;
        let (stream, other) = (foreign.borrowed(), Stream::new(&setup.context)?);
        for (name, pool) in general_pools(setup)? {
            let memory = DeviceMemory::new(&setup.context);
            let mut input = Buffer::<u8, _>::zeroed(&memory, SIZE, &other)?;
            let output = Buffer::<u8, _>::zeroed(&memory, SIZE, &other)?;
            other.synchronize()?;
            foreign.begin()?;
            let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
            let first = scratch.device_pointer();
            foreign.copy(first, input.device_pointer(), SIZE)?;
            foreign.copy(output.device_pointer(), first, SIZE)?;
            drop(scratch);
            // The recorded work keeps the stream's order, so the block serves the same capture again.
            let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
            assert_eq!(scratch.device_pointer(), first, "{name}");
            foreign.fill(first, 9, SIZE / 2)?;
            foreign.copy(output.device_pointer(), first, SIZE / 2)?;
            drop(scratch);
            let mut graph = foreign.end()?;
            graph.keep_executable()?;
            for round in 1..4u8 {
                input.copy_from_slice(0, &[round; SIZE])?;
                // Others write whatever memory they can get meanwhile.
                let beside = Buffer::filled(&pool, SIZE, 77u8, &other)?;
                assert_ne!(beside.device_pointer(), first, "{name}");
                graph.launch()?;
                stream.synchronize()?;
                let values = output.to_vec()?;
                same(name, &values[..SIZE / 2], &[9; SIZE / 2])?;
                same(name, &values[SIZE / 2..], &[round; SIZE / 2])?;
            }
            drop(graph);
        }
        Ok(())
    })
}

#[test]
fn memory_of_a_graph_comes_back_when_the_graph_has_ended() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 1)?);
        let stream = foreign.borrowed();
        foreign.begin()?;
        let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.fill(scratch.device_pointer(), 1, SIZE)?;
        drop(scratch);
        assert!(is_full(&pool, setup)?, "during the capture");
        let mut graph = foreign.end()?;
        assert!(is_full(&pool, setup)?, "after the capture");
        graph.launch()?;
        stream.synchronize()?;
        assert!(is_full(&pool, setup)?, "after a launch");
        graph.keep_executable()?;
        pool.release_unused()?;
        let figures = pool.statistics();
        assert_eq!((figures.reserved.current, figures.blocks.current), (SIZE as u64, 0));
        assert_eq!(figures.pending.iter().map(|pending| pending.bytes).sum::<u64>(), SIZE as u64);
        assert!(is_full(&pool, setup)?, "the executable graph lives");
        drop(graph);
        eventually("the memory is free", || Ok(pool.statistics().pending.is_empty()))?;
        assert!(!is_full(&pool, setup)?);
        pool.release_unused()?;
        assert_eq!(pool.statistics().reserved.current, 0);
        Ok(())
    })
}

#[test]
fn a_buffer_outlives_its_graph_and_its_free_keeps_the_order() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool, later) = (Foreign::new(setup)?, tight(setup, 1)?, Stream::new(&setup.context)?);
        let stream = foreign.borrowed();
        foreign.begin()?;
        let mut result = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.fill(result.device_pointer(), 5, SIZE)?;
        let graph = foreign.end()?;
        graph.launch()?;
        drop(graph);
        assert!(is_full(&pool, setup)?, "the buffer is in use");
        // SAFETY: the launch has filled it.
        let result_now = unsafe { result.assume_init() };
        same("what the launch wrote", &result_now.to_vec()?, &[5; SIZE])?;
        // Work of the buffer on its stream is late when the buffer is freed.
        testkit::delay(&stream)?;
        result = Buffer::uninit(&pool, 0, &stream)?;
        foreign.fill(result_now.device_pointer(), 6, SIZE)?;
        drop((result, result_now));
        // The driver tells the end of the graph on a thread of its own.
        let mut next = None;
        eventually("the memory is free", || {
            next = Buffer::filled(&pool, SIZE, 7u8, &later).ok();
            Ok(next.is_some())
        })?;
        let next = next.ok_or("it is free")?;
        same("the next owner's", &next.to_vec()?, &[7; SIZE])?;
        Ok(())
    })
}

#[test]
fn a_free_after_the_capture_waits_for_the_graph() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 1)?);
        let stream = foreign.borrowed();
        foreign.begin()?;
        let result = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.fill(result.device_pointer(), 5, SIZE)?;
        let graph = foreign.end()?;
        drop(result);
        assert!(is_full(&pool, setup)?);
        assert!(Buffer::<u8, _>::uninit(&pool, SIZE, &stream).is_err(), "a launch would overwrite it");
        graph.launch()?;
        drop(graph);
        eventually("the memory is free", || is_full(&pool, setup).map(|full| !full))
    })
}

#[test]
fn memory_of_a_graph_sleeps_and_wakes_with_its_pool() -> Outcome {
    alone_with_late_ends(|setup| {
        let foreign = Foreign::new(setup)?;
        let (stream, own) = (foreign.borrowed(), Stream::new(&setup.context)?);
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
        let output = Buffer::<u8, _>::zeroed(&pool, SIZE, &own)?;
        own.synchronize()?;
        foreign.begin()?;
        let input = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.copy(output.device_pointer(), input.device_pointer(), SIZE)?;
        let graph = foreign.end()?;
        foreign.fill(input.device_pointer(), 7, SIZE)?;
        // The graph may run again, so the memory keeps what it has.
        drop(input);
        for _ in 0..2 {
            pool.sleep(&SleepOptions::default())?;
            pool.wake()?;
            graph.launch()?;
            output.record_use(&stream)?;
            same("the graph's copy", &output.to_vec()?, &[7; SIZE])?;
        }
        Ok(())
    })
}

#[test]
fn another_capture_gets_no_memory_of_a_graph() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 2)?);
        let stream = foreign.borrowed();
        let record = || -> Result<_, Error> {
            foreign.begin()?;
            let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
            foreign.fill(scratch.device_pointer(), 1, SIZE)?;
            let address = scratch.device_pointer();
            drop(scratch);
            Ok((address, foreign.end()?))
        };
        let (first, second) = (record()?, record()?);
        assert_ne!(first.0, second.0);
        foreign.begin()?;
        let refused = Buffer::<u8, _>::uninit(&pool, SIZE, &stream);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        drop(foreign.end()?);
        drop(first.1);
        eventually("a third graph gets the first one's", || {
            foreign.begin()?;
            let again = Buffer::<u8, _>::uninit(&pool, SIZE, &stream).map(|buffer| buffer.device_pointer());
            drop(foreign.end()?);
            Ok(again.is_ok_and(|address| address == first.0))
        })
    })
}

#[test]
fn a_block_of_one_graph_may_be_freed_in_another() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 1)?);
        let stream = foreign.borrowed();
        foreign.begin()?;
        let shared = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.fill(shared.device_pointer(), 1, SIZE)?;
        let first = foreign.end()?;
        foreign.begin()?;
        foreign.fill(shared.device_pointer(), 2, SIZE / 2)?;
        drop(shared);
        let second = foreign.end()?;
        drop(first);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(is_full(&pool, setup)?, "the second graph writes it");
        second.launch()?;
        drop(second);
        eventually("both graphs have ended", || is_full(&pool, setup).map(|full| !full))
    })
}

#[test]
fn a_graph_gets_no_memory_that_work_still_uses() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool, other) = (Foreign::new(setup)?, tight(setup, 1)?, Stream::new(&setup.context)?);
        let stream = foreign.borrowed();
        testkit::delay(&other)?;
        drop(Buffer::filled(&pool, SIZE, 1u8, &other)?);
        foreign.begin()?;
        // A launch comes after no work that was queued before, so an order of the two streams would not help.
        let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        let relaxed = RelaxedCalls::begin(&setup.driver)?;
        assert!(other.is_done()?);
        drop(relaxed);
        foreign.fill(scratch.device_pointer(), 2, SIZE)?;
        drop(scratch);
        drop(foreign.end()?);
        Ok(())
    })
}

#[test]
fn branches_of_a_capture_share_no_memory() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, branch, cuda) = (Foreign::new(setup)?, Foreign::new(setup)?, setup.driver.raw());
        let _current = setup.context.bind()?;
        let (stream, other, pool) = (foreign.borrowed(), branch.borrowed(), tight(setup, 2)?);
        let mut event: CUevent = std::ptr::null_mut();
        let wait = |first: &Foreign<'_>, second: &Foreign<'_>, event| {
            // SAFETY: all are this test's.
            unsafe {
                assert_eq!(cuda.cuEventRecord(event, first.raw), Ok(CUresult::CUDA_SUCCESS));
                assert_eq!(cuda.cuStreamWaitEvent(second.raw, event, 0), Ok(CUresult::CUDA_SUCCESS));
            }
        };
        // SAFETY: the place is writable.
        assert_eq!(unsafe { cuda.cuEventCreate(&mut event, 2) }?, CUresult::CUDA_SUCCESS);
        foreign.begin()?;
        wait(&foreign, &branch, event);
        let one = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        let first = one.device_pointer();
        foreign.fill(first, 1, SIZE)?;
        drop(one);
        let two = Buffer::<u8, _>::uninit(&pool, SIZE, &other)?;
        branch.fill(two.device_pointer(), 2, SIZE)?;
        assert_ne!(first, two.device_pointer(), "the branches run side by side");
        drop(two);
        let again = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        assert_eq!(first, again.device_pointer());
        drop(again);
        wait(&branch, &foreign, event);
        let graph = foreign.end()?;
        graph.launch()?;
        stream.synchronize()?;
        // SAFETY: nothing uses the event.
        assert_eq!(unsafe { cuda.cuEventDestroy_v2(event) }?, CUresult::CUDA_SUCCESS);
        drop(graph);
        Ok(())
    })
}

#[test]
fn a_pool_stays_until_the_graphs_with_its_memory_end() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool, other) = (Foreign::new(setup)?, tight(setup, 1)?, Stream::new(&setup.context)?);
        let memory = DeviceMemory::new(&setup.context);
        let (stream, output) = (foreign.borrowed(), Buffer::<u8, _>::zeroed(&memory, SIZE, &other)?);
        other.synchronize()?;
        foreign.begin()?;
        let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.fill(scratch.device_pointer(), 3, SIZE)?;
        foreign.copy(output.device_pointer(), scratch.device_pointer(), SIZE)?;
        drop((scratch, pool));
        let graph = foreign.end()?;
        graph.launch()?;
        stream.synchronize()?;
        same("after the pool's end", &output.to_vec()?, &[3; SIZE])?;
        drop((graph, output));
        if setup.is_software() {
            // Only the memory of the pool can be left.
            let regions = || softgpu::ledger().entries.iter().filter(|entry| entry.size >= SIZE as _).count();
            eventually("the pool's memory is freed", || Ok(regions() == 0))?;
        }
        Ok(())
    })
}

#[test]
fn threads_allocate_beside_a_capture_and_get_none_of_its_memory() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) =
            (Foreign::new(setup)?, Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?);
        let (stream, shared) = (foreign.borrowed(), pool.share());
        foreign.begin()?;
        let mine: Vec<_> =
            (1..40).map(|n| Buffer::<u8, _>::uninit(&pool, n * 5000, &stream)).collect::<Result<_, _>>()?;
        for buffer in &mine {
            foreign.fill(buffer.device_pointer(), 3, buffer.len())?;
        }
        let graph_has: Vec<_> =
            mine.iter().map(|buffer| buffer.device_pointer()..buffer.device_pointer() + buffer.len() as u64).collect();
        drop(mine);
        std::thread::scope(|scope| {
            let work = || -> Result<(), Error> {
                let stream = Stream::new(&setup.context)?;
                for n in 1..200 {
                    let buffer = Buffer::<u8, _>::uninit(&shared, n * 3000, &stream)?;
                    let mine = buffer.device_pointer()..buffer.device_pointer() + buffer.len() as u64;
                    assert!(graph_has.iter().all(|its| its.end <= mine.start || mine.end <= its.start), "{mine:x?}");
                }
                Ok(())
            };
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })?;
        let graph = foreign.end()?;
        graph.launch()?;
        stream.synchronize()?;
        drop(graph);
        Ok(())
    })
}

#[test]
fn memory_by_address_in_a_capture_belongs_to_the_graph() -> Outcome {
    alone_with_late_ends(|setup| {
        let mut options = PoolOptions::default();
        // Two blocks: the graph's, and another.
        (options.initial, options.maximum) = (2 * SIZE, 2 * SIZE);
        let (foreign, pools) = (Foreign::new(setup)?, AddressPools::new(&setup.driver, &options)?);
        // SAFETY: the stream lives during the calls, and no work uses memory after its free.
        let malloc = || unsafe { pools.malloc(SIZE, 0, foreign.raw) };
        // SAFETY: as above.
        let free = |address| unsafe { pools.free(address, SIZE, 0, foreign.raw) };
        // The pool knows the stream before, so that the capture meets what it has kept.
        free(malloc()?)?;
        let output = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &Stream::new(&setup.context)?)?;
        output.stream().synchronize()?;
        foreign.begin()?;
        let first = malloc()?;
        foreign.fill(first, 5, SIZE)?;
        foreign.copy(output.device_pointer(), first, SIZE)?;
        free(first)?;
        let again = malloc()?;
        assert_eq!(again, first, "the recorded work keeps the stream's order");
        foreign.fill(again, 6, SIZE)?;
        free(again)?;
        let graph = foreign.end()?;
        for _ in 0..3 {
            let beside = malloc()?;
            assert_ne!(beside, first, "a launch may write the graph's memory");
            foreign.fill(beside, 7, SIZE)?;
            graph.launch()?;
            foreign.borrowed().synchronize()?;
            same("the graph's output", &output.to_vec()?, &[5; SIZE])?;
            free(beside)?;
        }
        drop(graph);
        let is_free = || -> Result<bool, Error> {
            let one = malloc()?;
            let other = match malloc() {
                Err(Error::OutOfMemory { .. }) => None,
                other => Some(other?),
            };
            free(one)?;
            other.map_or(Ok(()), free)?;
            Ok(one == first || other == Some(first))
        };
        eventually("the graph's memory serves the stream again", is_free)
    })
}
