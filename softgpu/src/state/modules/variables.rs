//! Memory of variables: those of one image and one kind have one mapping, because the system limits the number of
//! mappings. To the program each variable is an allocation of its own.

use super::image::{Image, Variable};
use crate::call::Result;
use crate::state::Global;
use crate::state::backing::{Mapping, PAGE};
use crate::state::contexts::Context;
use crate::state::memory::{Allocation, Origin, Storage};
use cuda_sys::CUresult;
use std::io;
use std::ptr;
use std::sync::Arc;

/// The addresses of an image's variables, in its order; `None` for those that have none here.
pub(super) type Addresses = Vec<Option<u64>>;

/// Gives addresses and initial values to the variables that have no address yet: in a context, or else to those of a
/// library that are managed. They end with the context, or when the owner removes them.
pub(super) fn place(
    global: &Global,
    context: Option<&Arc<Context>>,
    image: &Image,
    mut addresses: Addresses,
) -> Result<Addresses> {
    let mut blocks = Vec::new();
    for managed in [false, true] {
        let missing = addresses.iter().zip(&image.variables).enumerate().filter(|(_, (address, variable))| {
            address.is_none() && variable.managed == managed && (managed || context.is_some())
        });
        let places: Vec<usize> = missing.map(|(place, _)| place).collect();
        let variables: Vec<&Variable> = places.iter().map(|place| &image.variables[*place]).collect();
        blocks.extend(places.into_iter().zip(allocate(global, context, managed, &variables)?));
    }
    blocks.iter().for_each(|(place, block)| addresses[*place] = Some(block.base));
    // Others have an address for each context, so none in a library.
    let of_name = |name: &str| addresses[image.variable(name.as_bytes())?];
    for (place, block) in &blocks {
        initialise(block, &image.variables[*place], &of_name);
    }
    blocks.into_iter().for_each(|(_, block)| drop(global.memory.insert(block)));
    Ok(addresses)
}

/// One mapping for variables of a kind, and an allocation in it for each.
fn allocate(
    global: &Global,
    context: Option<&Arc<Context>>,
    managed: bool,
    variables: &[&Variable],
) -> Result<Vec<Allocation>> {
    let full = |_: io::Error| CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let device = context.map_or(0, |context| context.device);
    let store = if managed { &global.host } else { &global.devices[device].store };
    let (mut charges, mut offsets, mut end) = (Vec::new(), Vec::new(), 0_usize);
    for variable in variables {
        let size = variable.size.max(1);
        charges.push(store.take(size)?);
        // The mapping begins at a page. No larger alignment is known to the driver either.
        let offset = end.next_multiple_of(variable.align.clamp(1, PAGE));
        offsets.push((offset, size));
        end = offset + size;
    }
    if variables.is_empty() {
        return Ok(Vec::new());
    }
    let mapping = Mapping::anonymous(end).map_err(full)?;
    let (origin, whole) = match managed {
        true => (Origin::ManagedVariable, Storage::Own(mapping)),
        false => (Origin::Variable, Storage::device(mapping, end, global.settings.strict).map_err(full)?),
    };
    let whole = Arc::new(whole);
    let block = |((offset, size), charge)| {
        let part = Storage::Part { whole: whole.clone(), offset };
        Allocation::variable(context, device, origin, size, part, charge)
    };
    Ok(offsets.into_iter().zip(charges).map(block).collect())
}

/// Writes the initial value of a variable, with the addresses of others.
fn initialise(block: &Allocation, variable: &Variable, of_name: &dyn Fn(&str) -> Option<u64>) {
    let mut bytes = variable.initial.clone();
    for address in &variable.addresses {
        let value = of_name(&address.of).map_or(0, |base| base.wrapping_add_signed(address.plus)).to_le_bytes();
        let end = address.offset + address.size.min(value.len());
        if let Some(place) = bytes.get_mut(address.offset..end) {
            place.copy_from_slice(&value[..place.len()]);
        }
    }
    let length = bytes.len().min(block.size);
    // SAFETY: the allocation is new and has at least that many bytes, and nobody else knows it.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut(block.access), length) };
    block.note_contents();
}
