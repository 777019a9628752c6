//! Graphs, and the memory that they hold.

use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::capture;
use crate::state::graph::Graph;
use crate::state::stream::Stream;
use cuda_sys::{CUdevice, CUgraph, CUgraphExec, CUgraphMem_attribute, CUgraphNode, CUresult, CUstream};
use std::ffi::{c_ulonglong, c_void};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    /// Returns a graph's nodes, or only their number.
    fn cuGraphGetNodes[Started](hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) {
        ensure(!numNodes.is_null())?;
        let all = find(Global::get()?, hGraph)?.nodes();
        if nodes.is_null() {
            return put(numNodes, all.len());
        }
        // The rest of the array is filled with nulls.
        for place in 0..numNodes.read() {
            let handle = all.get(place).map_or(0, |node| node.handle());
            nodes.add(place).write(ptr::without_provenance_mut(handle));
        }
        put(numNodes, all.len().min(numNodes.read()))
    }

    /// Makes an executable graph.
    fn cuGraphInstantiateWithFlags[Locked](phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: c_ulonglong) {
        ensure(!phGraphExec.is_null())?;
        let global = Global::get()?;
        let executable = find(global, hGraph)?.instantiate(global, flags)?;
        put(phGraphExec, ptr::without_provenance_mut(executable as usize))
    }

    /// Does a graph's work in stream order.
    fn cuGraphLaunch[Locked](hGraphExec: CUgraphExec, hStream: CUstream) {
        let global = Global::get()?;
        let executable = global.executables.get(hGraphExec.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        executable.launch(&Stream::find(global, hStream)?)
    }

    /// Destroys an executable graph. Launches under way continue to their end.
    fn cuGraphExecDestroy[Uncaptured](hGraphExec: CUgraphExec) {
        let gone = Global::get()?.executables.remove(hGraphExec.addr() as u64);
        gone.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.end();
        Ok(())
    }

    /// Destroys a graph. Executable graphs that were made from it stay.
    fn cuGraphDestroy[Locked](hGraph: CUgraph) {
        let global = Global::get()?;
        ensure(!capture::is_recording(global, &find(global, hGraph)?))?;
        global.graphs.remove(hGraph.addr() as u64);
        Ok(())
    }

    /// Returns an attribute of the memory that graphs hold.
    fn cuDeviceGetGraphMemAttribute[Started](device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let (_, device) = Global::get()?.device(device)?;
        put(value.cast(), device.graph_memory.attribute(attr)?)
    }

    /// Resets a high-water mark, with 0. Nothing else can be set.
    fn cuDeviceSetGraphMemAttribute[Started](device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let (_, device) = Global::get()?.device(device)?;
        ensure(!value.is_null() && value.cast::<u64>().read() == 0)?;
        device.graph_memory.reset_mark(attr)
    }

    /// Frees memory that graphs hold and do not use.
    fn cuDeviceGraphMemTrim[Started](device: CUdevice) {
        let (_, device) = Global::get()?.device(device)?;
        device.graph_memory.trim();
        Ok(())
    }
}

fn find(global: &Global, handle: CUgraph) -> Result<Arc<Graph>> {
    global.graphs.get(handle.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
