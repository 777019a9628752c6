use cuda_mem::{Allocate, Context, MappedMemory, Stream};

fn main() -> Result<(), cuda_mem::Error> {
    let context = Context::open(0)?; // a GPU; the software GPU, if CUDA_MEM_LIBCUDA=softgpu names it
    let stream = Stream::new(&context)?;
    let mut memory = MappedMemory::new(&context)?.zeroed::<f32>(1 << 20, &stream)?;
    memory.store(0, &[1.0, 2.0, 3.0])?; // CPU stores into the GPU's memory, with a fence
    let mut seen = [0.0; 3];
    memory.copy_to_slice(0, &mut seen)?; // a driver copy of what the GPU sees
    println!("{} sees {seen:?}", context.device().name()?);
    Ok(())
}
