//! Helpers for the tests of capture and graphs.

use super::Machine;
use crate::cu;
use cuda_sys::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphMem_attribute, CUmodule, CUresult,
    CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use std::ffi::{CStr, c_void};
use std::ptr;

pub const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
pub const THREAD: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
pub const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
pub const MODES: [CUstreamCaptureMode; 3] = [GLOBAL, THREAD, RELAXED];

pub const VALUE: u32 = CUresult::CUDA_ERROR_INVALID_VALUE.0;
pub const UNSUPPORTED: u32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0;
pub const INVALIDATED: u32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.0;

impl Machine {
    pub fn begin(&self, stream: CUstream, mode: CUstreamCaptureMode) {
        assert_eq!(cu!(self, cuStreamBeginCapture_v2(stream, mode)), 0);
    }

    pub fn end(&self, stream: CUstream) -> CUgraph {
        let mut graph = ptr::null_mut();
        assert_eq!(cu!(self, cuStreamEndCapture(stream, &mut graph)), 0);
        graph
    }

    /// Ends a capture that was invalidated.
    pub fn lost(&self, stream: CUstream) {
        let mut graph = ptr::dangling_mut();
        assert_eq!(cu!(self, cuStreamEndCapture(stream, &mut graph)), INVALIDATED);
        assert!(graph.is_null());
        assert_eq!(self.status(stream), 0);
    }

    pub fn status(&self, stream: CUstream) -> u32 {
        let mut status = CUstreamCaptureStatus(77);
        assert_eq!(cu!(self, cuStreamIsCapturing(stream, &mut status)), 0);
        status.0
    }

    pub fn instantiate(&self, graph: CUgraph, flags: u64) -> CUgraphExec {
        let mut executable = ptr::null_mut();
        assert_eq!(cu!(self, cuGraphInstantiateWithFlags(&mut executable, graph, flags)), 0);
        executable
    }

    /// Makes an executable graph, and destroys the graph.
    pub fn ready(&self, graph: CUgraph, flags: u64) -> CUgraphExec {
        let executable = self.instantiate(graph, flags);
        assert_eq!(cu!(self, cuGraphDestroy(graph)), 0);
        executable
    }

    pub fn run(&self, executable: CUgraphExec, stream: CUstream) {
        assert_eq!(cu!(self, cuGraphLaunch(executable, stream)), 0);
        assert_eq!(cu!(self, cuStreamSynchronize(stream)), 0);
    }

    pub fn nodes(&self, graph: CUgraph) -> usize {
        let mut count = 99;
        assert_eq!(cu!(self, cuGraphGetNodes(graph, ptr::null_mut(), &mut count)), 0);
        count
    }

    pub fn event(&self) -> CUevent {
        let mut event = ptr::null_mut();
        assert_eq!(cu!(self, cuEventCreate(&mut event, 2)), 0);
        event
    }

    pub fn allocate(&self, size: usize, stream: CUstream) -> CUdeviceptr {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAllocAsync(&mut address, size, stream)), 0);
        address
    }

    /// Loads device code, and gives the launch of one thread of a kernel of it.
    pub fn one_thread(&self, image: &CStr, kernel: &CStr) -> (CUmodule, CUDA_KERNEL_NODE_PARAMS_v2) {
        let (mut module, mut func) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(cu!(self, cuModuleLoadData(&mut module, image.as_ptr().cast())), 0);
        assert_eq!(cu!(self, cuModuleGetFunction(&mut func, module, kernel.as_ptr())), 0);
        let mut params = CUDA_KERNEL_NODE_PARAMS_v2 { func, ..Default::default() };
        (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
        (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
        (module, params)
    }

    /// Adds 1 to 32-bit words with a kernel.
    pub fn increment(&self, memory: CUdeviceptr, count: u64, stream: CUstream) {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let mut relaxed = RELAXED;
        cu!(self, cuThreadExchangeStreamCaptureMode(&mut relaxed));
        assert_eq!(cu!(self, cuModuleLoadData(&mut module, c"softgpu kernels".as_ptr().cast())), 0);
        cu!(self, cuThreadExchangeStreamCaptureMode(&mut relaxed));
        assert_eq!(cu!(self, cuModuleGetFunction(&mut function, module, c"increment_u32".as_ptr())), 0);
        let (mut memory, mut count) = (memory, count);
        let mut parameters = [(&raw mut memory).cast::<c_void>(), (&raw mut count).cast()];
        let parameters = parameters.as_mut_ptr();
        let none = ptr::null_mut();
        assert_eq!(cu!(self, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, none)), 0);
    }

    /// Bytes used, used at most, reserved, reserved at most.
    pub fn graph_memory(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|which| {
            let mut value = 99_u64;
            let attribute = CUgraphMem_attribute(which);
            assert_eq!(cu!(self, cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast())), 0);
            value
        })
    }
}

/// Ends a machine on which a test of capture left only what the end of the context frees.
pub fn done(m: Machine) {
    for which in [1, 3] {
        assert_eq!(
            cu!(m, cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute(which), ptr::from_mut(&mut 0_u64).cast())),
            0
        );
    }
    m.finish();
}
