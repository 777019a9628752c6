//! Loads a .safetensors file into one buffer of a device, and gives each tensor as a part of it.
//!
//! `cargo run --release --package cuda-mem --features json --example safetensors -- FILE` needs a GPU, or softgpu
//! (`--features softgpu`, and CUDA_MEM_LIBCUDA=softgpu). Without FILE it makes a small one, and compares each tensor.

mod header;

use cuda_mem::copy::CopyEngine;
use cuda_mem::memory::{DeviceMemory, kind};
use cuda_mem::{Buffer, Context, SharedBuffer, Stream};
use header::Header;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A tensor in device memory. It shares the memory of its file's other tensors.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: SharedBuffer<u8, kind::Device>,
}

/// Reads all tensors of a file at once.
fn load(path: &Path, engine: &CopyEngine, stream: &Stream) -> Outcome<Vec<Tensor>> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let header = Header::read(&file, file.metadata()?.len()).map_err(|error| format!("{}: {error}", path.display()))?;
    let memory = Buffer::uninit(&DeviceMemory::new(engine.context()), header.size, stream)?;
    let begin = Instant::now();
    let bytes = engine.read_file(&file, header.data, memory)?.into_shared();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{}: {} bytes, {:.2} GB/s", path.display(), header.size, header.size as f64 / seconds / 1e9);
    let mut tensors = Vec::new();
    for (name, info) in header.tensors() {
        let bytes = bytes.slice(info.data_offsets.0..info.data_offsets.1)?;
        tensors.push(Tensor { name, dtype: info.dtype, shape: info.shape.clone(), bytes });
    }
    Ok(tensors)
}

/// The contents of the small file.
fn contents(tensor: &str, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * tensor.len() + at / 251) as u8).collect()
}

/// Makes a small file, loads it and compares.
fn own_file(engine: &CopyEngine, stream: &Stream) -> Outcome {
    let tensors = [
        ("embedding", Dtype::BF16, vec![500, 64]),
        ("layer.0.weight", Dtype::F32, vec![64, 64]),
        ("layer.0.bias", Dtype::F16, vec![64]),
        ("nothing", Dtype::I8, vec![0, 3]),
    ];
    let size = |dtype: Dtype, shape: &[usize]| shape.iter().product::<usize>() * dtype.bitsize() / 8;
    let bytes = tensors.each_ref().map(|(name, dtype, shape)| contents(name, size(*dtype, shape)));
    let mut views = Vec::new();
    for ((name, dtype, shape), bytes) in tensors.iter().zip(&bytes) {
        views.push((*name, TensorView::new(*dtype, shape.clone(), bytes)?));
    }
    let path = std::env::temp_dir().join(format!("cuda-mem-example-{}.safetensors", std::process::id()));
    std::fs::write(&path, serialize(views, None)?)?;
    let loaded = load(&path, engine, stream);
    std::fs::remove_file(&path)?;
    let loaded = loaded?;
    assert_eq!(loaded.len(), tensors.len());
    for tensor in &loaded {
        assert_eq!(tensor.bytes.to_vec()?, contents(&tensor.name, tensor.bytes.len()), "{}", tensor.name);
    }
    print(&loaded)
}

fn print(tensors: &[Tensor]) -> Outcome {
    for Tensor { name, dtype, shape, bytes } in tensors {
        // Kernels and other libraries take the address; numbers of one type are a view of the slice.
        println!("{name}: {dtype:?} {shape:?} at {:#x}", bytes.device_pointer());
        if *dtype == Dtype::F32 && bytes.device_pointer().is_multiple_of(4) {
            let numbers = bytes.clone().cast::<f32>()?;
            assert_eq!(numbers.view(shape)?.shape().iter().product::<i64>(), numbers.len() as i64);
        }
    }
    Ok(())
}

fn main() -> Outcome {
    let context = Context::open(0)?;
    let (engine, stream) = (CopyEngine::new(&context)?, Stream::new(&context)?);
    match std::env::args_os().nth(1) {
        Some(path) => print(&load(&PathBuf::from(path), &engine, &stream)?),
        None => own_file(&engine, &stream),
    }
}
