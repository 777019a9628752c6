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

/// Whether a test of many thousand copies is left out here: with seeded delays each copy takes its time.
fn is_delayed() -> bool {
    let delayed = std::env::var_os("SOFTGPU_SEED").is_some();
    if delayed {
        println!("skipped: seeded delays (SOFTGPU_SEED) would make this take minutes; it runs without them");
    }
    delayed
}

/// An engine that measures nothing, and whose choices are the typical ones.
fn engine(context: &Context) -> Result<CopyEngine> {
    CopyEngine::builder(context).profile_cache(ProfileCache::Off).measuring(Measuring::OnRequest).build()
}
