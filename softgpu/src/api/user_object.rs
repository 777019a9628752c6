//! User objects, and the references that graphs hold to them.

use super::graph;
use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::graphs::{Destructor, UserObject};
use cuda_sys::{CUgraph, CUhostFn, CUresult, CUuserObject, CUuserObject_flags, CUuserObjectRetain_flags};
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Makes a user object with references that the program owns. The one flag must be set: the destructor runs at any
    /// time after the last reference.
    fn cuUserObjectCreate[Started](
        object_out: *mut CUuserObject,
        ptr: *mut c_void,
        destroy: CUhostFn,
        initialRefcount: c_uint,
        flags: c_uint,
    ) {
        ensure(!object_out.is_null() && flags == CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0)?;
        let function = destroy.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let handle = UserObject::make(global, Destructor { function, data: ptr }, count(initialRefcount)?);
        put(object_out, ptr::without_provenance_mut(handle as usize))
    }

    /// Adds references that the program owns.
    fn cuUserObjectRetain[Started](object: CUuserObject, count: c_uint) {
        find(global, object)?.retain(self::count(count)?);
        Ok(())
    }

    /// Ends references that the program owns.
    fn cuUserObjectRelease[Started](object: CUuserObject, count: c_uint) {
        find(global, object)?.release(self::count(count)?)
    }

    /// Gives a graph references to a user object: new ones, or the program's.
    fn cuGraphRetainUserObject[Started](graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) {
        let moved = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE.0;
        ensure(flags & !moved == 0)?;
        let graph = graph::find(global, graph)?;
        graph.user_objects.add(find(global, object)?.share(self::count(count)?.into(), flags == moved)?);
        Ok(())
    }

    /// Takes references to a user object from a graph.
    fn cuGraphReleaseUserObject[Started](graph: CUgraph, object: CUuserObject, count: c_uint) {
        let graph = graph::find(global, graph)?;
        graph.user_objects.take(&find(global, object)?, self::count(count)?.into())
    }
}

fn find(global: &Global, object: CUuserObject) -> Result<Arc<UserObject>> {
    UserObject::find(global, object.addr() as u64)
}

/// A number of references. The driver accepts more than INT_MAX, which its documentation states as the limit.
fn count(count: c_uint) -> Result<u32> {
    ensure(count > 0)?;
    Ok(count)
}
