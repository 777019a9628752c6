//! Modules: device code in a context, its functions and its variables.

use super::attributes::Attributes;
use super::image::{Image, Signature};
use super::variables::{Addresses, place};
use crate::call::Result;
use crate::settings::variable;
use crate::state::Global;
use crate::state::contexts::Context;
use crate::state::handle::next_sequence;
use crate::state::memory::Allocation;
use cuda_sys::CUresult;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) image: Arc<Image>,
    /// The handles of its functions, in the order of the image.
    pub(crate) functions: Vec<u64>,
    variables: Addresses,
    /// Whether it belongs to a library, which unloads it.
    pub(crate) of_library: bool,
}

/// A kernel in a context.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) context: Arc<Context>,
    image: Arc<Image>,
    place: usize,
    /// The handle of its module.
    pub(crate) module: u64,
    /// Its name for C programs.
    pub(crate) name: CString,
    pub(crate) attributes: Arc<Attributes>,
    loaded: AtomicBool,
}

impl Function {
    pub(crate) fn signature(&self) -> &Signature {
        &self.image.signatures[self.place]
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn load(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Relaxed)
    }
}

impl Module {
    /// Loads an image into a context. Returns the module's handle.
    pub(crate) fn load(global: &Global, context: &Arc<Context>, image: Arc<Image>) -> Result<u64> {
        let known = vec![None; image.variables.len()];
        let attributes = |_, signature: &Signature| Arc::new(Attributes::new(signature));
        Self::with(global, context, image, attributes, known, false)
    }

    /// As [`load`](Self::load), with attributes of the functions by their places, and with the variables that exist
    /// already.
    pub(super) fn with(
        global: &Global,
        context: &Arc<Context>,
        image: Arc<Image>,
        attributes: impl Fn(usize, &Signature) -> Arc<Attributes>,
        known: Addresses,
        of_library: bool,
    ) -> Result<u64> {
        let variables = place(global, Some(context), &image, known)?;
        let sequence = next_sequence();
        let module = global.modules.handle(sequence);
        let function = |(place, signature): (usize, &Signature)| {
            let function = Function {
                context: context.clone(),
                image: image.clone(),
                place,
                module,
                name: CString::new(signature.name.as_str()).unwrap_or_default(),
                attributes: attributes(place, signature),
                loaded: AtomicBool::new(!is_lazy()),
            };
            global.functions.insert(next_sequence(), function).0
        };
        let functions = image.signatures.iter().enumerate().map(function).collect();
        let module = Self { sequence, context: context.clone(), image, functions, variables, of_library };
        Ok(global.modules.insert(sequence, module).0)
    }

    pub(crate) fn find(global: &Global, handle: u64) -> Result<Arc<Self>> {
        global.modules.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Frees what the module, which is not in the table any more, has.
    pub(crate) fn unload(&self, global: &Global) {
        self.functions.iter().for_each(|handle| drop(global.functions.remove(*handle)));
        for address in self.variables.iter().flatten() {
            let own = |block: &Allocation| {
                block.is_variable() && block.context.as_ref().is_some_and(|context| Arc::ptr_eq(context, &self.context))
            };
            global.memory.remove(*address, own);
        }
    }

    /// The handle of a function.
    pub(crate) fn function(&self, name: &[u8]) -> Option<u64> {
        self.functions.get(self.image.kernel(name)?).copied()
    }

    /// The address and the size of a variable.
    pub(crate) fn variable(&self, name: &[u8]) -> Option<(u64, usize)> {
        let place = self.image.variable(name)?;
        Some(((*self.variables.get(place)?)?, self.image.variables[place].size))
    }
}

/// Whether functions are loaded at their first use, as by the driver unless the environment says otherwise.
pub(crate) fn is_lazy() -> bool {
    variable("CUDA_MODULE_LOADING").is_none_or(|mode| mode != "EAGER")
}
