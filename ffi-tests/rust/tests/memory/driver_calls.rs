//! The page about driver calls, checked against softgpu's trace.

use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ManagedMemory, PinnedMemory, PinnedPool, ResourceHandle,
    SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Context, Driver, Error, MappedMemory, Stream};
use testkit::compilers::root;

/// The functions of a trace that make or end memory, in the order of their first calls.
fn functions(trace: &[softgpu::Call]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for call in trace {
        let name = call.function;
        let memory = ["cuMem", "cuExternalMemory", "cuImportExternal", "cuDestroyExternal", "vkgdr_memory"];
        let asks =
            ["cuMemGet", "cuMemset", "cuMemcpy", "cuMemPoolGet", "cuMemPoolSet", "cuMemHostGet", "vkgdr_memory_get"];
        let is_wanted =
            memory.iter().any(|start| name.starts_with(start)) && !asks.iter().any(|start| name.starts_with(start));
        if is_wanted && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn cell(functions: &[&str]) -> String {
    if functions.is_empty() {
        return "none".to_owned();
    }
    functions.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The row of a source: the calls of its constructor, of an allocation of 16 MiB, and of a free.
fn row(name: &str, stream: &Stream, make: impl FnOnce() -> Result<SharedResource, Error>) -> Result<String, Error> {
    let traced = || functions(&softgpu::take_trace());
    softgpu::trace(100_000);
    let resource = make()?;
    let made = traced();
    let buffer = Buffer::<u8, _>::uninit(&resource, 16 << 20, stream)?;
    let allocated = traced();
    drop(buffer);
    stream.synchronize()?;
    stream.context().synchronize()?;
    let freed = traced();
    softgpu::trace(0);
    Ok(format!("| {name} | {} | {} | {} |", cell(&made), cell(&allocated), cell(&freed)))
}

fn rows(context: &Context) -> Result<Vec<String>, Error> {
    let stream = Stream::new(context)?;
    let (driver_pool, virtual_memory) = (DriverPoolOptions::default(), VirtualOptions::default());
    let (device, pinned) = (DeviceMemory::new(context), PinnedMemory::new(context));
    let (in_place, mut regions, mut small) = (PoolOptions::default(), PoolOptions::default(), PoolOptions::default());
    (regions.in_place, small.maximum) = (false, 32 << 20);
    let ring = RingOptions::default();
    Ok(vec![
        row("`DeviceMemory`", &stream, || Ok(device.share()))?,
        row("`PinnedMemory`", &stream, || Ok(pinned.share()))?,
        row("`ManagedMemory`", &stream, || Ok(ManagedMemory::new(context)?.share()))?,
        row("`MappedMemory`", &stream, || Ok(MappedMemory::new(context)?.share()))?,
        row("`DevicePool`", &stream, || Ok(DevicePool::new(context, &driver_pool)?.share()))?,
        row("`PinnedPool`", &stream, || Ok(PinnedPool::new(context, &driver_pool)?.share()))?,
        row("`VirtualMemory`", &stream, || Ok(VirtualMemory::new(context, &virtual_memory)?.share()))?,
        row("`Pool` over `DeviceMemory`", &stream, || Ok(Pool::new(&device, &in_place)?.share()))?,
        row("the same with `PoolOptions::in_place = false`", &stream, || Ok(Pool::new(&device, &regions)?.share()))?,
        row("the same with a `maximum` below 64 MiB", &stream, || Ok(Pool::new(&device, &small)?.share()))?,
        row("`Pool` over `PinnedMemory`", &stream, || Ok(Pool::new(&pinned, &in_place)?.share()))?,
        row("`RingPool` over `PinnedMemory`", &stream, || Ok(RingPool::new(&pinned, 32 << 20, &ring)?.share()))?,
    ])
}

#[test]
fn the_page_about_driver_calls_says_what_the_trace_does() -> Result<(), Error> {
    let context = Driver::software()?.device(0)?.primary_context()?;
    let expected = rows(&context)?;
    let page = std::fs::read_to_string(root().join("docs/guide/driver-calls.md")).expect("the page is there");
    let written: Vec<_> = page.lines().filter(|line| line.starts_with("| ") && line.contains(" | `")).collect();
    assert_eq!(written, expected, "write these rows into docs/guide/driver-calls.md:\n{}\n", expected.join("\n"));
    Ok(())
}
