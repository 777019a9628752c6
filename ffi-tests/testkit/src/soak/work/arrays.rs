//! Memory that is exported to other libraries and imported from them: DLPack, array interfaces, Arrow.

use crate::soak::{Done, Hands, Trouble};
use cuda_mem::Stream;
use cuda_mem::interchange::arrow::ArrayNode;
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{Consumer, ExportOptions, Release, SharedTensor};
use std::sync::{Arc, PoisonError};

/// Does one export and import.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (held, theirs) = (hands.take()?, hands.stream()?);
    let (ours, model) = (held.buffer.stream().clone(), held.model);
    let buffer = held.buffer.into_shared();
    match hands.below(4) {
        0 => {
            hands.doing("DLPack");
            let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
            let seen = take(buffer.tensor().to_dlpack(&options)?, &ours, &theirs)?;
            drop(buffer);
            hands.same("a tensor of DLPack", &seen.memory()?.to_vec()?, &model)?;
        }
        1 => {
            hands.doing("DLPack, let go after the context's work");
            let options = ExportOptions { release: Release::AfterContext, ..Default::default() };
            let exported = buffer.tensor().to_dlpack(&options)?;
            let captures = hands.world.captures.write().unwrap_or_else(PoisonError::into_inner);
            drop(exported);
            drop(captures);
            hands.same("memory after its export", &buffer.to_vec()?, &model)?;
        }
        2 => {
            hands.doing("an array interface");
            let tensor = buffer.tensor();
            if buffer.host_pointer_if_any().is_none() {
                let said = tensor.cuda_array_interface()?;
                // SAFETY: the tensor owns the memory.
                let seen = unsafe { said.import_cuda(Arc::new(tensor), &theirs, false) }?;
                hands.same("an array interface", &seen.memory()?.to_vec()?, &model)?;
            }
        }
        _ => {
            hands.doing("an Arrow array");
            let column = buffer.tensor().memory()?.clone();
            let buffers = vec![None, Some(column)];
            let node = ArrayNode { length: model.len(), buffers, ..Default::default() };
            let array = node.export(&theirs)?.check().map_err(|error| Trouble::Wrong(error.to_string()))?;
            drop(node);
            // SAFETY: the array was exported just now.
            unsafe { array.wait(&ours)? };
            // SAFETY: as above, and the size is the model's.
            let seen = unsafe { array.buffer(array.node().buffers[1], model.len(), &ours) }?;
            hands.same("an Arrow array", &seen.to_vec()?, &model)?;
            drop(seen);
            array.release_after(&ours)?;
        }
    }
    Ok(())
}

/// Imports an exported tensor.
fn take(managed: ManagedTensor, ours: &Stream, theirs: &Stream) -> Done<SharedTensor> {
    let wrong = |error: cuda_mem::interchange::dlpack::DlpackError| Trouble::Wrong(error.to_string());
    // SAFETY: the tensor was exported just now.
    let managed = unsafe { ManagedTensor::from_versioned(managed.into_versioned()) }.map_err(wrong)?;
    // SAFETY: the memory is as the tensor describes it, and the call gets its stream.
    Ok(unsafe { managed.check().map_err(wrong)?.into_shared(theirs, Some(ours)) }?)
}
