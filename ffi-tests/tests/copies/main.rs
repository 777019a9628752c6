//! The copy engine: every way, size and alignment, in order and at once, with faults at every call. Over whatever driver the
//! environment names.

mod alignments;
mod faults;
mod guard_pages;
mod ordered;
mod profiles;
mod scattered;
mod threads;
mod ways;

use cuda_mem::copy::{CopyEngine, Measuring, ProfileCache};
use cuda_mem::{Context, Result};

/// Whether a test of many thousand copies is left out here: with seeded delays, and with flushes, each copy takes its time.
fn is_slow() -> bool {
    let slow = std::env::var_os("SOFTGPU_SEED").is_some() || std::env::var_os("SOFTGPU_COHERENT").is_some();
    if slow {
        println!("skipped: SOFTGPU_SEED and SOFTGPU_COHERENT would make this take minutes; it runs without them");
    }
    slow
}

/// An engine that measures nothing, and whose choices are the typical ones.
fn engine(context: &Context) -> Result<CopyEngine> {
    CopyEngine::builder(context).profile_cache(ProfileCache::Off).measuring(Measuring::OnRequest).build()
}
