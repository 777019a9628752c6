//! README and guide. Each Rust program in them is an example of a module here, so it runs as a doc test.
//! `tests/c_examples.rs` builds and runs the programs in C and C++.

macro_rules! pages {
    ($($page:ident: $file:literal,)*) => { $(#[doc = include_str!($file)] mod $page {})* };
}

pages! {
    readme: "../../README.md",
    c_and_cpp: "../../docs/guide/c-and-cpp.md",
    copies: "../../docs/guide/copies.md",
    ingest: "../../docs/guide/ingest.md",
    mapped_memory: "../../docs/guide/mapped-memory.md",
    pools: "../../docs/guide/pools.md",
    pytorch: "../../docs/guide/pytorch.md",
    sharing: "../../docs/guide/sharing.md",
    signals: "../../docs/guide/signals.md",
    testing_without_a_gpu: "../../docs/guide/testing-without-a-gpu.md",
    views: "../../docs/guide/views.md",
}
