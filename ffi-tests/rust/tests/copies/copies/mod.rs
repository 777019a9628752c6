//! The copy engine: every method, size and alignment, ordered and immediate, with faults at every call. Runs over the
//! driver that the environment names.

mod alignments;
mod faults;
mod guard_pages;
mod methods;
mod ordered;
mod profiles;
mod scattered;
mod threads;

use cuda_mem::copy::{CopyEngine, CopyEngineBuilder};
use cuda_mem::{Context, Result};

/// Whether to skip tests of many thousand copies. They run over the default software GPU, over CPU Vulkan and over real
/// devices. With delays or flushes each copy takes long, and the other drivers would show nothing new.
fn is_slow() -> bool {
    let settings = ["SOFTGPU_SEED", "SOFTGPU_COHERENT", "SOFTGPU_DEVICES", "SOFTGPU_VERSION"];
    let found = settings.into_iter().find(|setting| std::env::var_os(setting).is_some());
    if let Some(setting) = found {
        println!("skipped: this takes minutes over changed drivers: unset {setting}");
    }
    found.is_some()
}

/// An engine that measures nothing and chooses by typical figures.
fn engine(context: &Context) -> Result<CopyEngine> {
    builder(context).build()
}

fn builder(context: &Context) -> CopyEngineBuilder {
    CopyEngine::builder(context)
}

/// An engine with helper threads of its own. It measures nothing and chooses by typical figures.
fn helped(context: &Context, threads: usize) -> Result<CopyEngine> {
    builder(context).helper_threads(threads).build()
}
