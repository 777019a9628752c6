//! The hand-written headers against NVIDIA's own: what they say about the driver's interface is compared with cuda.h of
//! several releases, by four methods, and errors planted on purpose show that the methods find them.
//!
//! NVIDIA's headers are no part of the project: `scripts/cuda-headers` downloads them.

mod compare;
mod coverage;
mod ctype;
mod exceptions;
mod gate;
mod interface;
mod layout;
mod mutations;
mod read;
mod redeclare;
mod releases;
mod sentinels;
mod since;
mod toolchain;
mod vkgdr;
