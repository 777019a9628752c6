//! README, guide, and the packages' READMEs. Each Rust program in them is an example of a module here, so it runs as a
//! doc test. `ffi-tests/cudarc` runs the programs with cudarc, which needs a libcuda in the loader's path; `ffi-tests/c`
//! builds and runs the programs in C and C++, and runs those in Python.

// Users copy these programs.
#![doc(test(attr(deny(warnings))))]

macro_rules! pages {
    ($($page:ident: $file:literal,)*) => { $(#[cfg(doctest)] #[doc = include_str!($file)] mod $page {})* };
}

pages! {
    readme: "../../../README.md",
    readme_of_cuda_mem: "../../../cuda-mem/README.md",
    readme_of_cuda_mem_remote: "../../../cuda-mem-remote/README.md",
    readme_of_cuda_sys: "../../../cuda-sys/README.md",
    readme_of_softgpu: "../../../softgpu/README.md",
    readme_of_stream_heap: "../../../stream-heap/README.md",
    readme_of_strided_layout: "../../../strided-layout/README.md",
    readme_of_ucx_sys: "../../../ucx-sys/README.md",
    readme_of_vkgdr: "../../../vkgdr/README.md",
    readme_of_vkgdr_sys: "../../../vkgdr-sys/README.md",
    async_programs: "../../../docs/guide/async.md",
    c_and_cpp: "../../../docs/guide/c-and-cpp.md",
    copies: "../../../docs/guide/copies.md",
    driver_calls: "../../../docs/guide/driver-calls.md",
    cudarc: "../../../docs/guide/cudarc.md",
    files: "../../../docs/guide/files.md",
    ingest: "../../../docs/guide/ingest.md",
    mapped_memory: "../../../docs/guide/mapped-memory.md",
    other_libraries: "../../../docs/guide/other-libraries.md",
    pools: "../../../docs/guide/pools.md",
    python: "../../../docs/guide/python.md",
    pytorch: "../../../docs/guide/pytorch.md",
    several_gpus: "../../../docs/guide/several-gpus.md",
    several_hosts: "../../../docs/guide/several-hosts.md",
    sharing: "../../../docs/guide/sharing.md",
    signals: "../../../docs/guide/signals.md",
    staging: "../../../docs/guide/staging.md",
    testing_without_a_gpu: "../../../docs/guide/testing-without-a-gpu.md",
    views: "../../../docs/guide/views.md",
}
