//! What the fuzz target of modules calls.

use crate::state::Global;
use crate::state::contexts::Context;
use crate::state::kernels;
use crate::state::modules::{Image, Module};
use cuda_sys::CUresult;
use std::sync::{Arc, Once};

/// Variables larger than this are not allocated: they would only test the system's memory.
const MOST: usize = 1 << 20;

/// Reads an image, checks what it declares, and loads it.
pub fn module(bytes: &[u8]) {
    let Ok(image) = kernels::read(bytes) else { return };
    for signature in &image.signatures {
        let mut end = 0;
        for place in signature.parameters.iter().flatten() {
            assert!(place.offset >= end && place.size > 0 || place.size == 0, "parameters overlap: {signature:?}");
            end = place.offset + place.size;
        }
    }
    for variable in &image.variables {
        assert!(variable.initial.len() <= variable.size, "an initial value is longer than its variable: {variable:?}");
        assert!(variable.align.is_power_of_two(), "an alignment is no power of two: {variable:?}");
    }
    if image.variables.iter().map(|variable| variable.size).sum::<usize>() <= MOST {
        load(image);
    }
}

fn load(image: Image) {
    static START: Once = Once::new();
    START.call_once(|| Global::start().expect("the driver starts"));
    let global = Global::get().expect("the driver has started");
    let context: &Arc<Context> = &global.devices[0].primary;
    let names: Vec<_> = image.variables.iter().map(|variable| (variable.name.clone(), variable.size)).collect();
    let handle = match Module::load(global, context, Arc::new(image)) {
        Ok(handle) => handle,
        Err(code) => {
            assert_eq!(code, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            return;
        }
    };
    let module = global.modules.remove(handle).expect("the module is loaded");
    for (name, size) in names {
        let (address, found) = module.variable(name.as_bytes()).expect("a variable has its name");
        assert_eq!(found, size);
        assert!(global.memory.at(address).is_some());
    }
    module.unload(global);
    assert!(global.memory.each(|block| block.is_variable()).is_empty(), "a variable is left");
}
