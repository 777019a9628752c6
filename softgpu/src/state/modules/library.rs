//! Libraries: device code for all contexts, and its kernels.

use super::attributes::Attributes;
use super::image::{Image, Refused, Signature};
use super::module::Module;
use super::variables::{Addresses, place};
use crate::call::{Result, tell};
use crate::state::Global;
use crate::state::contexts::Context;
use crate::state::handle::next_sequence;
use crate::state::memory::Allocation;
use crate::sync::lock;
use cuda_sys::CUresult;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

/// Device code of a program, which each context loads when it uses it.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) sequence: u64,
    image: Arc<Image>,
    /// Why its code cannot be loaded, which its first use answers.
    refused: Option<Refused>,
    /// The handles of its kernels, in the order of the image.
    pub(crate) kernels: Vec<u64>,
    /// Those of its variables that are managed, which all contexts share.
    managed: Addresses,
    /// Its modules, by the lives of their contexts; `None` once it is unloaded.
    modules: Mutex<Option<HashMap<u64, u64>>>,
}

/// A kernel of a library.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The handle of its library.
    pub(crate) library: u64,
    image: Arc<Image>,
    place: usize,
    /// Its name for C programs.
    pub(crate) name: CString,
    /// Its attributes on each device.
    attributes: Vec<Arc<Attributes>>,
}

impl Kernel {
    pub(crate) fn signature(&self) -> &Signature {
        &self.image.signatures[self.place]
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn attributes(&self, device: usize) -> &Arc<Attributes> {
        &self.attributes[device]
    }

    /// The handle of the kernel's function in a context.
    pub(crate) fn function(&self, global: &Global, context: &Arc<Context>) -> Result<u64> {
        let library = Library::find(global, self.library)?;
        let module = Module::find(global, library.module(global, context)?)?;
        module.functions.get(self.place).copied().ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }
}

impl Library {
    /// Makes a library: of an image, or of code that is refused. Returns its handle.
    pub(crate) fn load(global: &Global, image: Arc<Image>, refused: Option<Refused>) -> Result<u64> {
        let managed = place(global, None, &image, vec![None; image.variables.len()])?;
        let sequence = next_sequence();
        let library = global.libraries.handle(sequence);
        let kernel = |(place, signature): (usize, &Signature)| {
            let on_device = |_| Arc::new(Attributes::new(signature));
            let kernel = Kernel {
                library,
                image: image.clone(),
                place,
                name: CString::new(signature.name.as_str()).unwrap_or_default(),
                attributes: (0..global.devices.len()).map(on_device).collect(),
            };
            global.kernels.insert(next_sequence(), kernel).0
        };
        let kernels = image.signatures.iter().enumerate().map(kernel).collect();
        let made = Self { sequence, image, refused, kernels, managed, modules: Mutex::new(Some(HashMap::new())) };
        Ok(global.libraries.insert(sequence, made).0)
    }

    /// A library whose code is needed. Fails if that cannot be loaded.
    pub(crate) fn find(global: &Global, handle: u64) -> Result<Arc<Self>> {
        let library = global.libraries.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        match &library.refused {
            Some(refused) => {
                tell(&refused.text);
                Err(refused.code)
            }
            None => Ok(library),
        }
    }

    /// Frees what the library, which is not in the table any more, has. Waits for the contexts that use it.
    pub(crate) fn unload(&self, global: &Global) {
        // The lock is not held during a wait.
        let modules = lock(&self.modules).take();
        for handle in modules.into_iter().flat_map(HashMap::into_values) {
            if let Some(module) = global.modules.remove(handle) {
                module.context.synchronize();
                module.unload(global);
            }
        }
        self.kernels.iter().for_each(|handle| drop(global.kernels.remove(*handle)));
        for address in self.managed.iter().flatten() {
            global.memory.remove(*address, Allocation::is_variable);
        }
    }

    /// The handle of a kernel.
    pub(crate) fn kernel(&self, name: &[u8]) -> Option<u64> {
        self.kernels.get(self.image.kernel(name)?).copied()
    }

    /// The address and the size of a managed variable.
    pub(crate) fn managed(&self, name: &[u8]) -> Option<(u64, usize)> {
        let place = self.image.variable(name)?;
        Some(((*self.managed.get(place)?)?, self.image.variables[place].size))
    }

    /// The handle of the library's module in a context, which is loaded at the first use.
    pub(crate) fn module(&self, global: &Global, context: &Arc<Context>) -> Result<u64> {
        let mut modules = lock(&self.modules);
        let modules = modules.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let known = modules.get(&context.life()).copied().filter(|handle| global.modules.get(*handle).is_some());
        if let Some(handle) = known {
            return Ok(handle);
        }
        let attributes = |place: usize, signature: &Signature| {
            let kernel = self.kernels.get(place).and_then(|handle| global.kernels.get(*handle));
            kernel.map_or_else(
                || Arc::new(Attributes::new(signature)),
                |kernel| kernel.attributes(context.device).clone(),
            )
        };
        let handle = Module::with(global, context, self.image.clone(), attributes, self.managed.clone(), true)?;
        modules.insert(context.life(), handle);
        Ok(handle)
    }
}
