//! Hole G: what is true of an empty block is not true of the block that takes its place.

use super::SIZE;
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::copy::CopyEngine;
use cuda_mem::mapped::Coherence;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{VirtualMemory, VirtualOptions};
use cuda_mem::{Error, Stream};
use testkit::suite::Outcome;
use testkit::{Setup, alone, pattern, same};

/// What a program does with a buffer while it is empty.
type Look = fn(&Setup, &mut GrowableBuffer<u8, Any>) -> Result<(), Error>;

const LOOKS: [(&str, Look); 4] = [
    ("nothing", |_, _| Ok(())),
    ("a question about coherence", |_, buffer| {
        let Coherence::Coherent = buffer.coherence() else { panic!("no bytes are never incoherent") };
        Ok(())
    }),
    ("a write by an engine", |setup, buffer| CopyEngine::new(&setup.context)?.write(buffer, 0, &[])),
    ("CPU access", |_, buffer| {
        // It is legal to refuse these calls, and to do nothing.
        let _ = buffer.store(0, &[]);
        let _ = buffer.load(0, &mut []);
        Ok(())
    }),
];

/// Only device memory is refused to the CPU.
fn memory_of_the_device(setup: &Setup) -> Result<VirtualMemory<Any>, Error> {
    Ok(VirtualMemory::new(&setup.context, &VirtualOptions::default())?.into_any())
}

// Hole G.
#[test]
fn device_memory_that_was_used_while_empty_is_not_the_cpus() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory_of_the_device(setup)?);
        for (name, look) in LOOKS {
            let mut buffer = GrowableBuffer::<u8, Any>::with_capacity(&memory, 1, &stream)?;
            look(setup, &mut buffer)?;
            let _ = buffer.grow_to(SIZE)?;
            let bytes = pattern(SIZE, 3);
            buffer.copy_from_slice(0, &bytes)?;
            let refused = [
                ("a store", buffer.store(0, &[1]).is_err()),
                ("a load", buffer.load(0, &mut [0]).is_err()),
                ("several stores", buffer.store_scope(|scope| scope.store(0, &[1])).is_err()),
            ];
            same(name, &buffer.to_vec()?, &bytes)?;
            let shared = buffer.into_buffer().into_shared();
            let shared_refused = [
                ("a store to shared memory", shared.store(0, &[1]).is_err()),
                ("a load from shared memory", shared.load(0, &mut [0]).is_err()),
            ];
            for (access, refused) in refused.into_iter().chain(shared_refused) {
                assert!(refused, "after {name}: {access} was not refused");
            }
            same(name, &shared.to_vec()?, &bytes)?;
        }
        Ok(())
    })
}

// Hole G.
#[test]
fn engines_copy_what_has_grown_since_they_used_it_while_empty() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory_of_the_device(setup)?);
        let engine = CopyEngine::new(&setup.context)?;
        for (name, look) in LOOKS {
            let mut buffer = GrowableBuffer::<u8, Any>::with_capacity(&memory, 1, &stream)?;
            look(setup, &mut buffer)?;
            let _ = buffer.grow_to(SIZE)?;
            let (bytes, mut seen) = (pattern(SIZE, 5), vec![0; SIZE]);
            engine.write(&mut buffer, 0, &bytes)?;
            engine.read(&buffer, 0, &mut seen)?;
            same(name, &seen, &bytes)?;
            // The memory moves.
            let larger = buffer.capacity() + 1;
            let _ = buffer.grow_to(larger)?;
            assert!(buffer.store(0, &[1]).is_err(), "after {name}, in other memory");
            same(name, &buffer.to_vec()?[..SIZE], &bytes)?;
        }
        Ok(())
    })
}

/// The reverse: memory that the CPU may use stays so.
#[test]
fn host_memory_that_was_used_while_empty_is_the_cpus() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let memory = match VirtualMemory::host(&setup.context, &VirtualOptions::default()) {
            Err(error @ Error::Unsupported { .. }) => {
                println!("skipped: {error}");
                return Ok(());
            }
            memory => memory?.into_any(),
        };
        for (name, look) in LOOKS {
            let mut buffer = GrowableBuffer::<u8, Any>::with_capacity(&memory, 1, &stream)?;
            look(setup, &mut buffer)?;
            let _ = buffer.grow_to(SIZE)?;
            buffer.store(0, &[7; SIZE])?;
            same(name, &buffer.to_vec()?, &[7; SIZE])?;
        }
        Ok(())
    })
}
