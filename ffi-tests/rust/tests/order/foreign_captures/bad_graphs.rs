//! Captures that give no graph, and streams that end within one.

use super::graphs::{is_full, tight};
use super::{Foreign, eventually};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::CaptureRefusal;
use cuda_mem::{Buffer, Error, Stream};
use testkit::alone_with_late_ends;
use testkit::suite::Outcome;

const SIZE: usize = 1 << 20;

#[test]
fn memory_of_a_capture_that_was_invalidated_comes_back() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 2)?);
        let (stream, cuda) = (foreign.borrowed(), setup.driver.raw());
        foreign.begin()?;
        let [kept, freed] = [0, 1].map(|_| Buffer::<u8, _>::uninit(&pool, SIZE, &stream));
        let (kept, freed) = (kept?, freed?);
        foreign.fill(kept.device_pointer(), 1, SIZE)?;
        drop(freed);
        // SAFETY: the stream lives. A wait for it spoils its capture.
        let spoilt = unsafe { cuda.cuStreamSynchronize(foreign.raw) }?;
        assert_eq!(spoilt, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let refused = Buffer::<u8, _>::uninit(&pool, SIZE, &stream);
        let Err(error @ Error::Capturing { why: CaptureRefusal::Invalidated, .. }) = &refused else {
            return Err(format!("{refused:?}").into());
        };
        assert!(
            error.to_string().contains("Pool::allocate") && error.to_string().contains("end the capture"),
            "{error}"
        );
        drop(kept);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream lives and the place is writable.
        let ended = unsafe { cuda.cuStreamEndCapture(foreign.raw, &mut graph) }?;
        assert_eq!((ended, graph.is_null()), (CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, true));
        let other = Stream::new(&setup.context)?;
        eventually("both blocks are free", || {
            let blocks = [0, 1].map(|_| Buffer::<u8, _>::uninit(&pool, SIZE, &other));
            Ok(blocks.iter().all(Result::is_ok))
        })
    })
}

#[test]
fn memory_of_a_capture_that_is_never_ended_comes_back() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 1)?);
        let stream = foreign.borrowed();
        foreign.begin()?;
        let scratch = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
        foreign.fill(scratch.device_pointer(), 1, SIZE)?;
        drop(scratch);
        assert!(is_full(&pool, setup)?);
        // Its owner destroys the stream, and the capture with it, while the pool has memory that was freed on it.
        drop((stream, foreign));
        eventually("the memory is free", || is_full(&pool, setup).map(|full| !full))
    })
}

#[test]
fn a_graph_that_ends_leaves_the_memory_of_a_live_buffer_alone() -> Outcome {
    alone_with_late_ends(|setup| {
        let (foreign, pool) = (Foreign::new(setup)?, tight(setup, 2)?);
        let stream = foreign.borrowed();
        foreign.begin()?;
        let (held, freed) =
            (Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?, Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?);
        foreign.fill(held.device_pointer(), 4, SIZE)?;
        let gone = freed.device_pointer();
        drop(freed);
        drop(foreign.end()?);
        let other = Stream::new(&setup.context)?;
        let mut next = None;
        eventually("the freed block is free", || {
            next = Buffer::<u8, _>::uninit(&pool, SIZE, &other).ok();
            Ok(next.is_some())
        })?;
        assert_eq!(next.as_ref().map(Buffer::device_pointer), Some(gone));
        assert!(is_full(&pool, setup)?, "the other buffer is in use");
        drop(held);
        assert!(!is_full(&pool, setup)?);
        Ok(())
    })
}
