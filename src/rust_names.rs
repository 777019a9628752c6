//! The Rust library's names in its error texts, and what stands for them in C.

use cuda_mem::cuda_sys::load::WITHOUT_A_GPU;

/// Names that rules and remedies contain.
const NAMES: [(&str, &str); 27] = [
    ("`copy_from_slice` and `copy_to_slice`", "cudamem_buffer_write and cudamem_buffer_read"),
    ("(copy_to_slice, copy_from_slice)", "(cudamem_buffer_read, cudamem_buffer_write)"),
    ("wrap it in `adaptor::Aligned`", "use cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_ALIGNED"),
    ("with Stream::new", "with cudamem_stream_create"),
    ("`PoolOptions::maximum`", "the maximum of cudamem_pool_options"),
    ("PoolOptions::maximum", "the maximum of cudamem_pool_options"),
    (WITHOUT_A_GPU, "export CUDA_MEM_LIBCUDA=$(pkg-config --variable=softgpu cudamem)"),
    // A C program links libcudamem, and no driver into itself.
    ("; no CUDA driver is linked into this program.", "."),
    ("VirtualMemory::export returns both", "cudamem_buffer_export returns both"),
    ("MappedMemory::export returns both", "cudamem_buffer_export returns both"),
    ("`VirtualMemory::export`", "cudamem_buffer_export"),
    ("`PhysicalOptions::shareable` or `VirtualOptions::shareable`", "CUDAMEM_PHYSICAL_SHAREABLE"),
    ("`DriverPoolOptions::shareable`", "CUDAMEM_DRIVER_POOL_SHAREABLE"),
    ("name a node with on_numa_node, or use PinnedPool::new", "name another place in the options"),
    ("CopyMethod::all returns", "the engine's list has"),
    ("Location::Device or Location::Host", "CUDAMEM_LOCATION_DEVICE or CUDAMEM_LOCATION_HOST"),
    ("clone one Driver", "a process has one in C"),
    ("use a Buffer, which", "use a buffer, which"),
    ("allocate from VirtualMemory", "allocate from virtual memory"),
    ("from DeviceMemory itself", "from device memory itself"),
    ("put the Fallback over two pools", "put the fallback over two pools"),
    ("(Rust's `Command`, Python's \"spawn\")", "(posix_spawn, Python's \"spawn\")"),
    ("(Pool::wake)", "(cudamem_pool_wake)"),
    (
        "over DeviceMemory with PoolOptions::in_place and a maximum of at least 64 MiB, or over VirtualMemory",
        "over device memory without CUDAMEM_POOL_REGIONS and with a maximum of at least 64 MiB, or over virtual memory",
    ),
    ("(Event::with_timing)", "(CUDAMEM_EVENT_TIMING)"),
    ("Stream::synchronize", "cudamem_stream_synchronize"),
    ("Event::synchronize", "cudamem_event_synchronize"),
];

/// An error text of the Rust library for a C program, behind the name of the C function.
pub fn in_c(text: &str) -> String {
    cuda_mem_dynamic::renamed(text, &NAMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_become_those_of_c() {
        let text = "Pool::allocate: make one with Stream::new";
        assert_eq!(in_c(text), "make one with cudamem_stream_create");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no dlopen")]
    fn advice_without_a_gpu_is_what_a_program_in_c_sets() {
        use cuda_mem::cuda_sys::{CUresult, Driver, load::Search};
        let export = "export CUDA_MEM_LIBCUDA=$(pkg-config --variable=softgpu cudamem)";
        let error = cuda_mem::DriverError { call: "cuInit", code: CUresult::CUDA_ERROR_NO_DEVICE };
        let text = in_c(&error.to_string());
        assert!(text.ends_with(&format!("; without a GPU: {export}")), "{text}");
        let search = Search { path: Some("softgpu".into()), ..Driver::SEARCH };
        // SAFETY: there is no library of that name.
        let text = in_c(&unsafe { search.open() }.unwrap_err().to_string());
        let path = "It takes the path of a shared library. Install NVIDIA's driver";
        assert!(text.contains(path) && text.ends_with(export), "{text}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "slow there, and without unsafe code")]
    fn the_names_of_c_are_in_the_headers() {
        let headers = [
            include_str!("../include/cudamem.h"),
            include_str!("../include/cudamem/adaptors.h"),
            include_str!("../include/cudamem/memory.h"),
            include_str!("../include/cudamem/sharing.h"),
        ]
        .concat();
        let words = |text: &'static str| text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for name in NAMES.iter().flat_map(|(_, c)| words(c)).filter(|word| word.to_lowercase().starts_with("cudamem_"))
        {
            assert!(headers.contains(name), "no header has {name}");
        }
    }
}
