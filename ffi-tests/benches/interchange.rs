//! The cost of exporting and importing memory. The Python counterpart is `benches/peers/dlpack.py`.
//!
//! `cargo bench -p benches --bench interchange` runs it over the driver that the environment names. `--brief` is a
//! short run that only shows that it works.

use cuda_mem::interchange::array_interface::ArrayInterface;
use cuda_mem::interchange::dlpack::{ImportedTensor, ManagedTensor};
use cuda_mem::interchange::{Consumer, ExportOptions, SharedTensor, TensorDevice};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Error, Stream};
use std::hint::black_box;
use testkit::Setup;
use testkit::timing::median;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let brief = std::env::args().any(|argument| argument == "--brief");
    let (rounds, batch) = if brief { (3, 10) } else { (101, 10_000) };
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let (context, ours) = (&setup.context, Stream::new(&setup.context)?);
    let theirs = Stream::new(context)?;
    let _current = context.bind()?;
    let memory = DeviceMemory::new(context);
    let buffer = Buffer::<f32, _>::zeroed(&memory, 1 << 20, &ours)?.into_shared();
    let tensor = buffer.tensor().with_layout(0, &[1024, 1024], None)?;
    let unordered = ExportOptions { consumer: Consumer::Unordered, ..Default::default() };
    let ordered = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
    let same = ExportOptions { consumer: Consumer::Stream(&ours), ..Default::default() };

    let report = |what: &str, way: &mut dyn FnMut() -> std::result::Result<(), Error>| -> Result<()> {
        let time = median(rounds, batch, way)?;
        println!("{what:<72} {time:>9.1} ns");
        Ok(())
    };
    report("DLPack, export + import + both ends, no order asked for", &mut || {
        through(tensor.to_dlpack(&unordered)?).map(|seen| drop(black_box(seen)))
    })?;
    report("DLPack, the same, on our own stream", &mut || {
        through(tensor.to_dlpack(&same)?).map(|seen| drop(black_box(seen)))
    })?;
    report("DLPack, the same, another stream: ordered by events on both ways", &mut || {
        through(tensor.to_dlpack(&ordered)?).map(|seen| drop(black_box(seen)))
    })?;
    report("DLPack, and made an array with memory (asks the driver of the address)", &mut || {
        let seen = through(tensor.to_dlpack(&unordered)?)?;
        // SAFETY: the tensor was exported just now, and its memory is not used.
        let shared: SharedTensor = unsafe { seen.into_shared(&ours, Some(&ours)) }?;
        drop(black_box(shared));
        Ok(())
    })?;
    report("CUDA array interface, export + check, without JSON", &mut || {
        let said: ArrayInterface = tensor.cuda_array_interface()?;
        black_box(said.check(TensorDevice::Cuda(0))?);
        Ok(())
    })?;
    Ok(())
}

fn through(exported: ManagedTensor) -> std::result::Result<ImportedTensor, Error> {
    let raw = exported.into_versioned();
    // SAFETY: the tensor was exported just now.
    Ok(unsafe { ManagedTensor::from_versioned(raw) }?.check()?)
}
