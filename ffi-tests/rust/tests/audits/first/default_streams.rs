//! Default streams of contexts and of threads.

use super::{LATER, SIZE, hold, let_go, stay};
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions};
use cuda_mem::mapped::MappedMemory;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Context, Error, Event, Stream};
use testkit::suite::Outcome;
use testkit::{alone, same};

/// The default streams of a context, and their names.
fn default_streams(context: &Context) -> [(&'static str, Stream); 2] {
    [("legacy", Stream::legacy_default(context)), ("per thread", Stream::per_thread_default(context))]
}

#[test]
fn reads_wait_for_fills_on_default_streams_of_other_contexts() -> Outcome {
    alone(|setup| {
        let other = setup.context.device().create_context()?;
        for ((name, own), (_, theirs)) in default_streams(&setup.context).into_iter().zip(default_streams(&other)) {
            let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, SIZE)?;
            testkit::fill_reported(&mut memory, 0, SIZE, 1, &own)?;
            drop(memory.read(..)?);
            let held = (hold(&own)?, hold(&theirs)?);
            match testkit::fill_reported(&mut memory, 0, SIZE, 7, &theirs) {
                Err(error) if !setup.is_software() => println!("skipped: {name}: {error}"),
                filled => {
                    filled?;
                    // Release the other context's stream first: a wait for the wrong stream then returns too early.
                    let_go(held.1, LATER);
                    let_go(held.0, 2 * LATER);
                    stay(name, &memory.read(..)?, 7)?;
                }
            }
        }
        Ok(())
    })
}

#[test]
fn an_event_refuses_default_streams_of_other_contexts() -> Outcome {
    alone(|setup| {
        let other = setup.context.device().create_context()?;
        let event = Event::new(&setup.context)?;
        for (name, stream) in default_streams(&other) {
            if event.record(&stream).is_ok() {
                return Err(format!("the {name} default stream of another context was taken for this one's").into());
            }
        }
        Ok(())
    })
}

#[test]
fn engine_refuses_foreign_streams_and_waits_for_foreign_buffers() -> Outcome {
    fn refused<T>(result: Result<T, Error>) -> Result<(), String> {
        match result {
            Err(Error::InvalidArgument { argument: "stream", .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(_) => Err("an engine took a stream of another context".into()),
        }
    }
    alone(|setup| {
        let other = setup.context.device().create_context()?;
        let engine = CopyEngine::new(&setup.context)?;
        let [legacy, per_thread] = default_streams(&other).map(|(_, stream)| stream);
        let mut buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&other), 200_000, 7, &legacy)?;
        let mut bytes = vec![0; 200_000];
        for stream in [&legacy, &per_thread, &Stream::new(&other)?] {
            refused(engine.write_on(stream, &mut buffer, 0, &bytes))?;
            refused(engine.read_on(stream, &mut buffer, 0, &mut bytes).map(drop))?;
        }
        buffer.synchronize()?;
        let held = hold(&legacy)?;
        buffer.fill(.., 9)?;
        let_go(held, LATER);
        let mut options = CopyOptions::default();
        options.method = Some(CopyMethod::Staged { threads: 1 });
        if engine.read_with(&buffer, 0, &mut bytes, &options).is_ok() {
            same("what was read", &bytes, &[9; 200_000])?;
        }
        Ok(())
    })
}
