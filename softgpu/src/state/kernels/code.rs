//! Code by the names of kernels.

use super::built_in::Builtin;
use super::launch::Launch;
use super::registered;
use crate::state::Global;
use crate::state::checks::races::Touched;
use crate::state::memory::Range;
use cuda_sys::CUresult;
use std::sync::Arc;

/// Why a kernel stopped: the wrong address, if that is why, and the error that its context has from then on.
pub(crate) type Wrong = (u64, CUresult);

/// What launches of a kernel do.
pub(super) trait Code: Send + Sync {
    fn name(&self) -> &'static str;

    /// The memory that a launch holds until it has run: the program may free it after the launch in stream order.
    fn hold(&self, launch: &Launch) -> Vec<Range>;

    /// The bytes that a launch touches; `None` if they, or their order with other work, are unknown.
    fn touched(&self, launch: &Launch) -> Option<Vec<Touched>>;

    /// Runs a launch to its end.
    fn run(&self, launch: &Launch, held: &[Range]) -> Result<(), Wrong>;
}

/// The code of a kernel: what the program has registered, what the library of the settings exports, or what is built in.
pub(super) fn find(global: &Global, name: &str) -> Option<Arc<dyn Code>> {
    let library = || Some(Arc::new(global.kernel_library.as_ref()?.find(name)?) as Arc<dyn Code>);
    let built_in = || Some(Arc::new(Builtin::of_name(name)?) as Arc<dyn Code>);
    registered::find(name).or_else(library).or_else(built_in)
}

/// A name that lives as long as the process, as reports need it. A program has few kernels.
pub(super) fn kept(name: &str) -> &'static str {
    use crate::sync::lock;
    use std::collections::HashSet;
    use std::sync::Mutex;
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept = &*Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}
