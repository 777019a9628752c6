//! Functions: kernels in a context.

use super::launch::{find, known_parameters, told_of_parameters};
use crate::call::{driver_calls, ensure, put};
use crate::state::Global;
use crate::state::modules::{best_block, blocks_at_once, clusters_at_once, shared_left};
use cuda_sys::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUlaunchConfig, CUmodule,
    CUoccupancy_flags, CUoccupancyB2DSize, CUresult,
};
use std::ffi::{c_char, c_int, c_uint};
use std::ptr;

driver_calls! {
    |global: &'static Global|

    /// Returns an attribute of a kernel.
    fn cuFuncGetAttribute[Started](pi: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction) {
        ensure(!pi.is_null())?;
        let function = find(global, hfunc)?;
        put(pi, function.attributes.get(attrib, function.signature(), function.image())?)
    }

    /// Sets an attribute of a kernel.
    fn cuFuncSetAttribute[Started](hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int) {
        let function = find(global, hfunc)?;
        function.attributes.set(attrib, value, function.signature())
    }

    /// Checks its arguments. softgpu has no caches.
    fn cuFuncSetCacheConfig[Started](hfunc: CUfunction, config: CUfunc_cache) {
        find(global, hfunc)?;
        ensure(config.0 <= CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0)
    }

    /// Returns the module of a kernel.
    fn cuFuncGetModule[Started](hmod: *mut CUmodule, hfunc: CUfunction) {
        put(hmod, ptr::without_provenance_mut(find(global, hfunc)?.module as usize))
    }

    /// Returns the name of a kernel. It ends with the module.
    fn cuFuncGetName[Started](name: *mut *const c_char, hfunc: CUfunction) {
        put(name, find(global, hfunc)?.name.as_ptr())
    }

    /// Returns the number of parameters.
    fn cuFuncGetParamCount[Started](func: CUfunction, paramCount: *mut usize) {
        put(paramCount, known_parameters(global, find(global, func)?.signature())?.len())
    }

    /// Returns the place and the size of a parameter.
    fn cuFuncGetParamInfo[Started](
        func: CUfunction,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) {
        told_of_parameters(global, find(global, func)?.signature(), paramIndex, paramOffset, paramSize)
    }

    /// Returns whether a kernel is loaded.
    fn cuFuncIsLoaded[Started](state: *mut CUfunctionLoadingState, function: CUfunction) {
        put(state, match find(global, function)?.is_loaded() {
            true => CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED,
            false => CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED,
        })
    }

    /// Loads a kernel.
    fn cuFuncLoad[Started](function: CUfunction) {
        find(global, function)?.load();
        Ok(())
    }

    /// Returns how many blocks of a kernel a multiprocessor runs at once.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor[Started](
        numBlocks: *mut c_int,
        func: CUfunction,
        blockSize: c_int,
        dynamicSMemSize: usize,
    ) {
        active(global, numBlocks, func, blockSize, dynamicSMemSize, 0)
    }

    /// As cuOccupancyMaxActiveBlocksPerMultiprocessor. The flags have no effect.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags[Started](
        numBlocks: *mut c_int,
        func: CUfunction,
        blockSize: c_int,
        dynamicSMemSize: usize,
        flags: c_uint,
    ) {
        active(global, numBlocks, func, blockSize, dynamicSMemSize, flags)
    }

    /// Returns the block size with which most threads run at once, and how many such blocks run on the device.
    fn cuOccupancyMaxPotentialBlockSize[Started](
        minGridSize: *mut c_int,
        blockSize: *mut c_int,
        func: CUfunction,
        blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: c_int,
    ) {
        let shared = (blockSizeToDynamicSMemSize, dynamicSMemSize);
        potential(global, minGridSize, blockSize, func, shared, blockSizeLimit, 0)
    }

    /// As cuOccupancyMaxPotentialBlockSize. The flags have no effect.
    fn cuOccupancyMaxPotentialBlockSizeWithFlags[Started](
        minGridSize: *mut c_int,
        blockSize: *mut c_int,
        func: CUfunction,
        blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: c_int,
        flags: c_uint,
    ) {
        let shared = (blockSizeToDynamicSMemSize, dynamicSMemSize);
        potential(global, minGridSize, blockSize, func, shared, blockSizeLimit, flags)
    }

    /// Returns the shared memory that a launch may add to each of some blocks of a multiprocessor.
    fn cuOccupancyAvailableDynamicSMemPerBlock[Started](
        dynamicSmemSize: *mut usize,
        func: CUfunction,
        numBlocks: c_int,
        blockSize: c_int,
    ) {
        ensure(!dynamicSmemSize.is_null() && numBlocks > 0 && blockSize > 0)?;
        let function = find(global, func)?;
        ensure(numBlocks as u32 <= blocks_at_once(function.signature(), blockSize as u32, 0))?;
        put(dynamicSmemSize, shared_left(function.signature(), &function.attributes, numBlocks as u32))
    }

    /// Returns the largest cluster of a launch.
    fn cuOccupancyMaxPotentialClusterSize[Started](
        clusterSize: *mut c_int,
        func: CUfunction,
        config: *const CUlaunchConfig,
    ) {
        ensure(!clusterSize.is_null() && !config.is_null())?;
        put(clusterSize, find(global, func)?.attributes.most_of_cluster())
    }

    /// Returns how many clusters of a launch run at once.
    fn cuOccupancyMaxActiveClusters[Started](
        numClusters: *mut c_int,
        func: CUfunction,
        config: *const CUlaunchConfig,
    ) {
        let config = config.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(!numClusters.is_null())?;
        let function = find(global, func)?;
        let threads = config.blockDimX.saturating_mul(config.blockDimY).saturating_mul(config.blockDimZ);
        ensure(threads > 0)?;
        let cluster = super::launch::cluster(config)?;
        let shared = config.sharedMemBytes as usize;
        put(numClusters, clusters_at_once(function.signature(), threads, shared, cluster) as c_int)
    }
}

/// # Safety
///
/// `out` is null or writable.
unsafe fn active(
    global: &Global,
    out: *mut c_int,
    function: CUfunction,
    threads: c_int,
    shared: usize,
    flags: c_uint,
) -> crate::call::Result {
    ensure(!out.is_null() && threads > 0)?;
    ensure(flags <= CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0)?;
    let blocks = blocks_at_once(find(global, function)?.signature(), threads as u32, shared);
    // SAFETY: by this function's contract.
    unsafe { put(out, blocks as c_int) }
}

/// # Safety
///
/// The pointers are null or writable. The function, if there is one, takes any size of a block.
unsafe fn potential(
    global: &Global,
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    (of_block, shared): (CUoccupancyB2DSize, usize),
    limit: c_int,
    flags: c_uint,
) -> crate::call::Result {
    ensure(!grid.is_null() && !block.is_null() && limit >= 0)?;
    ensure(flags <= CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0)?;
    let function = find(global, function)?;
    // SAFETY: by this function's contract.
    let shared = |size: u32| of_block.map_or(shared, |of_block| unsafe { of_block(size as c_int) });
    let (size, blocks) = best_block(function.signature(), limit as u32, &shared);
    // SAFETY: as above.
    unsafe {
        put(grid, blocks as c_int)?;
        put(block, size as c_int)
    }
}
