//! The Rust library's names in its error texts, and what stands for them in Python.

/// Names that rules and remedies contain.
const NAMES: [(&str, &str); 22] = [
    ("`copy_from_slice` and `copy_to_slice`", "copy_from and copy_to"),
    ("(copy_to_slice, copy_from_slice)", "(to_bytes, copy_to, copy_from)"),
    ("raise `PoolOptions::maximum`", "raise its `maximum`"),
    ("(`PoolOptions::maximum`)", "(its `maximum`)"),
    ("PoolOptions::maximum", "its `maximum`"),
    ("over DeviceMemory with PoolOptions::in_place and a maximum", "over DeviceMemory with a maximum"),
    ("change the sizes in PoolOptions", "change its sizes"),
    ("with Stream::new", "by Stream()"),
    ("(Event::with_timing)", "(Event(timing=True), stream.record(timing=True))"),
    (
        "CUDA_MEM_LIBCUDA=softgpu where the program has it linked in, else the path of libsoftgpu.so (`cuda-mem doctor` prints it)",
        "python -m cuda_mem.softgpu run -- python program.py",
    ),
    (
        "CUDA_MEM_LIBCUDA=softgpu runs the program without a GPU",
        "`python -m cuda_mem.softgpu run -- python program.py` runs it without a GPU",
    ),
    ("(Rust's `Command`, Python's \"spawn\")", "(multiprocessing's \"spawn\" or \"forkserver\")"),
    ("let a Fallback serve larger requests", "make a larger ring, or serve such requests from another source"),
    ("drop those first, also those of other libraries", "delete those first, also those of other libraries"),
    ("copying is Never", "copy is False"),
    ("must fit into isize", "must be below 2**63"),
    ("Stream::", "Stream."),
    ("Event::", "Event."),
    ("Buffer::", "Buffer."),
    ("Pool::", "Pool."),
    ("MappedMemory::", "MappedMemory."),
    ("VirtualMemory::", "VirtualMemory."),
];

/// An error text of the Rust library for a Python program, whose traceback names the call.
pub fn in_python(text: &str) -> String {
    cuda_mem_dynamic::renamed(text, &NAMES)
}
