//! Hole H: the driver makes some streams only when no host function blocks another stream, and holds its lock
//! meanwhile.

use super::{LIMIT, hold, in_time};
use cuda_mem::{Error, Event, Stream, StreamOptions};
use softgpu::Kind;
use std::time::Instant;
use testkit::alone;
use testkit::suite::Outcome;

/// Streams that a program makes while work waits for it.
const MORE: usize = 24;
/// More streams than a context keeps ready.
const MANY: usize = 200;
/// More streams than a context may keep when the program has dropped all of its own.
const KEPT: usize = 64;

// Hole H. The driver takes a new channel at some of these numbers of streams.
#[test]
fn streams_are_made_by_the_thread_that_a_host_function_awaits() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            for alive in [0, 10, 20, 30, 40, 63, 90] {
                let others = (0..alive).map(|_| Stream::new(&setup.context)).collect::<Result<Vec<_>, _>>()?;
                let blocked = Stream::new(&setup.context)?;
                let held = hold(&blocked)?;
                let mut made = Vec::new();
                for _ in 0..MORE {
                    let (stream, event) = (Stream::new(&setup.context)?, Event::new(&setup.context)?);
                    event.record(&stream)?;
                    event.synchronize()?;
                    made.push(stream);
                }
                assert!(!held.has_passed(), "the streams were made while the host function waited");
                drop(held);
                blocked.synchronize()?;
                drop(others);
            }
            Ok(())
        })
    })
}

// Hole H.
#[test]
fn a_stream_that_cannot_be_made_yet_is_an_error_in_time() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let blocked = Stream::new(&setup.context)?;
            let held = hold(&blocked)?;
            let begin = Instant::now();
            let mut made = Vec::new();
            let refused = loop {
                match Stream::new(&setup.context) {
                    Ok(_) if made.len() == MANY => break None,
                    Ok(stream) => made.push(stream),
                    Err(error) => break Some(error),
                }
            };
            assert!(begin.elapsed() < LIMIT);
            assert!(!held.has_passed(), "nothing has let the host function go");
            // Other calls go on meanwhile.
            for stream in &made {
                let event = Event::new(&setup.context)?;
                event.record(stream)?;
                event.synchronize()?;
            }
            drop(held);
            blocked.synchronize()?;
            if let Some(Error::Driver(_)) = refused {
                return Err(format!("after {} streams: {refused:?}", made.len()).into());
            }
            // Now all can be made.
            let more = (made.len()..MANY).map(|_| Stream::new(&setup.context)).collect::<Result<Vec<_>, _>>()?;
            made.extend(more);
            Ok(())
        })
    })
}

// Hole H.
#[test]
fn reserved_streams_are_made_at_once_while_work_waits() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            setup.context.reserve_streams(100)?;
            let blocked = Stream::new(&setup.context)?;
            let held = hold(&blocked)?;
            let begin = Instant::now();
            let made = (0..99).map(|_| Stream::new(&setup.context)).collect::<Result<Vec<_>, _>>()?;
            assert!(begin.elapsed() < LIMIT && !held.has_passed());
            // A stream of other flags takes the channel of a spare one.
            let mut options = StreamOptions::default();
            options.blocking = true;
            let blocking = Stream::with_options(&setup.context, options)?;
            assert!(!held.has_passed());
            drop(held);
            blocked.synchronize()?;
            drop((made, blocking));
            Ok(setup.context.reserve_streams(0)?)
        })
    })
}

#[test]
fn streams_that_are_dropped_do_not_stay_with_the_driver() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU counts its streams: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let blocked = Stream::new(&setup.context)?;
        for round in 0..60 {
            let held = hold(&blocked)?;
            // While a host function waits, streams are made and dropped, with work on them.
            let (stream, event) = (Stream::new(&setup.context)?, Event::new(&setup.context)?);
            event.record(&stream)?;
            blocked.wait(&event)?;
            drop(stream);
            drop(held);
            blocked.synchronize()?;
            let mut streams = (0..40).map(|_| Stream::new(&setup.context)).collect::<Result<Vec<_>, _>>()?;
            for stream in &streams {
                event.record(stream)?;
                stream.launch_host_function(|| ())?;
            }
            // They end in another order than that of their beginning.
            streams.rotate_left(round % 40);
            drop(streams);
        }
        setup.context.synchronize()?;
        let live = softgpu::ledger().count(Kind::Stream);
        assert!(live <= KEPT, "{live} streams live after 2460 were dropped");
        Ok(())
    })
}
