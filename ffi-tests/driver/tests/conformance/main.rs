//! Compares the hand-written headers with NVIDIA's cuda.h of several releases, by four methods. Planted errors show
//! that the methods find errors. `vkgdr` and `ucx` do the same with the headers of the other two interfaces.
//!
//! NVIDIA's headers are not part of the project: `scripts/cuda-headers` downloads them.

mod broken;
mod c_header;
mod compare;
mod coverage;
mod ctype;
mod exceptions;
mod forms;
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
mod ucx;
mod ucx_library;
mod vkgdr;
