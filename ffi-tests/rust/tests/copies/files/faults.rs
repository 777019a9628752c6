//! Reads of files while every driver call fails in turn: no buffer is half-read, no staging is lost, nothing uses the memory.

use super::{engine_with, file, memory_file};
use cuda_mem::copy::CopyEngine;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, Kind, PinnedMemory, ResourceHandle};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::{Fault, When};
use std::fs::File;
use testkit::each_call::{Failure, at_each_call};
use testkit::suite::Outcome;
use testkit::{Setup, alone, pattern, same};

const SIZE: usize = 150_000;

/// The most calls of one function that fail. Further calls come from the same places of the code.
const MOST_CALLS: u64 = 60;

struct Reads {
    engine: CopyEngine,
    stream: Stream,
    file: File,
    bytes: Vec<u8>,
}

impl Reads {
    fn new(setup: &Setup) -> Result<Self, Box<dyn std::error::Error>> {
        // Pieces wait for later ones, and slots are used again.
        let engine = engine_with(&setup.context, (8 << 10, 3, 1), 2)?;
        let bytes = pattern(SIZE + 5, 1);
        Ok(Self { engine, stream: Stream::new(&setup.context)?, file: file(&bytes)?, bytes })
    }

    /// Reads the file into a buffer. A refused buffer is written at once: nothing else may use it.
    fn read<R: ResourceHandle>(&self, memory: &R) -> Result<(), Error>
    where
        R::Kind: Kind,
    {
        let buffer = Buffer::uninit(memory, SIZE, &self.stream)?;
        match self.engine.read_file(&self.file, 5, buffer) {
            Ok(buffer) => {
                let seen = buffer.to_vec()?;
                same("a file", &seen, &self.bytes[5..]).unwrap_or_else(|error| panic!("{error}"));
                buffer.close().map_err(Error::from)
            }
            Err(refusal) => {
                let other = Stream::new(self.engine.context())?;
                let mut buffer = refusal.value;
                buffer.set_stream(&other)?;
                buffer.init_from_slice(&[1; SIZE])?;
                Err(refusal.error)
            }
        }
    }
}

fn on_software(test: impl FnOnce(&Setup, &Reads) -> Outcome) -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the linked-in software GPU injects faults: CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        test(setup, &Reads::new(setup)?)
    })
}

#[test]
fn a_fault_at_any_call_gives_no_half_read_buffer() -> Outcome {
    on_software(|setup, reads| {
        let (device, pinned) = (DeviceMemory::new(&setup.context), PinnedMemory::new(&setup.context));
        let failures = [
            Failure { code: CUresult::CUDA_ERROR_OUT_OF_MEMORY, after: false },
            Failure { code: CUresult::CUDA_ERROR_UNKNOWN, after: false },
            Failure { code: CUresult::CUDA_ERROR_UNKNOWN, after: true },
        ];
        let read_both = |reads: &mut &Reads| reads.read(&device).and_then(|()| reads.read(&pinned));
        let prepare = |reads: &mut &Reads, _| {
            read_both(reads)?; // all works as before
            reads.engine.trim(); // so that lanes are made while calls fail
            Ok(())
        };
        for failed in at_each_call(setup, &failures, MOST_CALLS, &mut { reads }, prepare, read_both)? {
            let told = failed.errors >= failed.calls || !["cuMemcpyAsync", "cuEventRecord"].contains(&failed.function);
            assert!(told, "the reads hide faults: {failed:?}");
        }
        reads.engine.trim();
        assert_eq!(reads.engine.reserved_staging(), 0, "a lane was not returned");
        Ok(())
    })
}

/// Each call of a function finds no memory.
fn no_memory(function: &str) -> Fault {
    let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    Fault { function: Some(function.to_owned()), when: When::Every(1), code, after: false, sticky: false }
}

#[test]
fn a_full_host_has_no_room_for_staging() -> Outcome {
    on_software(|setup, reads| {
        let device = DeviceMemory::new(&setup.context);
        reads.engine.trim();
        softgpu::faults(["cuMemAllocFromPoolAsync", "cuMemHostAlloc"].map(no_memory));
        let outcome = reads.read(&device);
        softgpu::faults([]);
        let error = outcome.unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!(reads.engine.reserved_staging(), 0);
        Ok(reads.read(&device)?)
    })
}

#[test]
fn a_file_in_memory_is_read_while_the_device_is_full() -> Outcome {
    on_software(|setup, reads| {
        let device = DeviceMemory::new(&setup.context);
        let bytes = pattern(SIZE, 3);
        let buffer = Buffer::uninit(&device, SIZE, &reads.stream)?;
        softgpu::faults([no_memory("cuMemAlloc_v2")]);
        let refused = reads.read(&device);
        let read = reads.engine.read_file(memory_file(&bytes)?, 0, buffer);
        softgpu::faults([]);
        assert!(refused.unwrap_err().is_out_of_memory());
        same("a full device", &read?.to_vec()?, &bytes)?;
        Ok(())
    })
}
