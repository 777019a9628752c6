//! Chooses which calls of the software GPU fail in a round.

use crate::timing::Numbers;
use cuda_mem::cuda_sys::{self, CUresult};
use cuda_mem::vkgdr_sys;
use softgpu::{Fault, When};

/// Calls that end things or set the thread's context. If such a call fails, the driver keeps the object, so it would
/// remain in the ledger.
const SPARED: [&str; 30] = [
    "cuInit",
    "cuCtx",
    "cuMemFree",
    "cuMemPoolDestroy",
    "cuMemHostUnregister",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cuMemRelease",
    "cuIpcCloseMemHandle",
    // If the stream cannot be waited for, memory that is not freed in stream order stays allocated.
    "cuStreamSynchronize",
    "cuStreamQuery",
    // If a pool cannot learn whether a stream captures, it leaves the memory freed on that stream to the context.
    "cuStreamIsCapturing",
    "cuStreamGetCaptureInfo",
    "cuStreamDestroy",
    "cuStreamEndCapture",
    "cuEventDestroy",
    "cuEventSynchronize",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphReleaseUserObject",
    "cuUserObjectRelease",
    "cuModuleUnload",
    "cuLinkDestroy",
    "cuDevicePrimaryCtxRelease",
    "cuThreadExchangeStreamCaptureMode",
    "cuDestroyExternal",
    // This call posts the writes of a failed flush before the memory is freed. If it fails too, the memory stays
    // allocated.
    "vkgdr_memory_invalidate",
    "vkgdr_close",
    "vkgdr_memory_free",
    "vkgdr_last_error",
];

/// The codes that failing calls return.
const CODES: [CUresult; 3] = [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN, CUresult(31337)];

/// The functions that may fail without leaving anything behind.
pub fn functions() -> Vec<String> {
    let cuda = cuda_sys::Functions::SYMBOLS.iter().map(|symbol| symbol.name);
    let vkgdr = vkgdr_sys::Functions::SYMBOLS.iter().map(|symbol| symbol.name);
    let names = cuda.chain(vkgdr).map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !SPARED.iter().any(|spared| name.starts_with(spared))).collect()
}

/// Chooses a round's faults: a third of the functions fail sometimes, each at its own rate.
pub fn choose(functions: &[String], random: &mut Numbers) -> Vec<Fault> {
    let chosen: Vec<_> = functions.iter().filter(|_| random.below(3) == 0).collect();
    let fault = |name: &String| {
        let code = CODES[random.below(CODES.len())];
        // From one call in 8 to one call in 1024.
        let pace = 8 << random.below(7);
        Fault { when: When::Every((pace + random.below(pace)) as u64), ..Fault::call(name, 1, code) }
    };
    chosen.into_iter().map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_faults_and_none_of_what_ends_things() {
        let functions = functions();
        assert!(functions.iter().any(|name| name == "cuMemAlloc_v2") && functions.len() > 80);
        let ends = ["Destroy", "Free", "Release"];
        // A node that frees memory ends nothing until the graph runs.
        let named = functions.iter().filter(|name| !name.contains("MemFreeNode"));
        let left: Vec<_> = named.filter(|name| ends.iter().any(|word| name.contains(word))).collect();
        assert!(left.is_empty(), "{left:?}");
        let [one, two, other] = [1, 1, 2].map(|seed| choose(&functions, &mut Numbers(seed)));
        assert_eq!(one, two);
        assert_ne!(one, other);
        assert!(one.len() > functions.len() / 6);
    }
}
