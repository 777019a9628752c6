//! Launches of kernels.

use super::event;
use crate::call::{Result, driver_calls, ensure, offer, put, tell};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::graphs::{KernelParams, Params};
use crate::state::kernels::{self, Launch};
use crate::state::modules::{Arguments, Function, Parameter, Shape, Signature};
use crate::state::streams::Stream;
use cuda_sys::{
    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, CU_LAUNCH_PARAM_END_AS_INT,
    CUDA_KERNEL_NODE_PARAMS_v2, CUevent, CUfunction, CUlaunchConfig, CUresult, CUstream,
};
use std::borrow::Cow;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Runs a kernel in stream order, with the present values of the parameters.
    fn cuLaunchKernel[Locked, cuLaunchKernel_ptsz](
        f: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ]);
        launch(global, f, Shape { grid, block, shared: sharedMemBytes }, hStream, kernelParams, extra)
    }

    /// As cuLaunchKernel. Blocks may form clusters, and events may be recorded after the kernel. Other attributes have no
    /// effect.
    fn cuLaunchKernelEx[Locked, cuLaunchKernelEx_ptsz](
        config: *const CUlaunchConfig,
        f: CUfunction,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let config = config.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if cluster(config)? > find(global, f)?.attributes.most_of_cluster() as u32 {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let mut events = Vec::new();
        for attribute in attributes(config)? {
            if [PROGRAMMATIC_EVENT, LAUNCH_COMPLETION_EVENT].contains(&attribute.number) {
                events.push(event::find(global, attribute.words.as_ptr().cast::<CUevent>().read())?);
            }
        }
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        let shape = Shape { grid, block, shared: config.sharedMemBytes };
        launch(global, f, shape, config.hStream, kernelParams, extra)?;
        let stream = Stream::find(global, config.hStream)?;
        events.iter().try_for_each(|event| event.record(&stream))
    }

    /// As cuLaunchKernel: a launch here may always wait for all its threads, because its code runs once.
    fn cuLaunchCooperativeKernel[Locked, cuLaunchCooperativeKernel_ptsz](
        f: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
    ) {
        let (grid, block) = ([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ]);
        launch(global, f, Shape { grid, block, shared: sharedMemBytes }, hStream, kernelParams, std::ptr::null_mut())
    }
}

/// Attributes of launches, by their numbers.
const CLUSTER_DIMENSION: c_uint = 4;
const PROGRAMMATIC_EVENT: c_uint = 7;
const LAUNCH_COMPLETION_EVENT: c_uint = 12;

/// An attribute of a launch, as all releases lay it out.
#[repr(C)]
struct Attribute {
    number: c_uint,
    unused: c_uint,
    /// Its value, of which each kind uses some bytes.
    words: [u64; 8],
}

/// # Safety
///
/// The list of attributes is null or as long as the configuration says.
unsafe fn attributes(config: &CUlaunchConfig) -> Result<&[Attribute]> {
    if config.numAttrs == 0 {
        return Ok(&[]);
    }
    ensure(!config.attrs.is_null())?;
    // SAFETY: by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(config.attrs.cast(), config.numAttrs as usize) })
}

/// The number of blocks of a cluster of a launch. Fails if the clusters do not divide the grid.
///
/// # Safety
///
/// As for [`attributes`].
pub(super) unsafe fn cluster(config: &CUlaunchConfig) -> Result<u32> {
    // SAFETY: by this function's contract.
    let attributes = unsafe { attributes(config) }?;
    let Some(attribute) = attributes.iter().find(|attribute| attribute.number == CLUSTER_DIMENSION) else {
        return Ok(1);
    };
    let [low, high] = [attribute.words[0], attribute.words[1]];
    let sizes = [low as u32, (low >> 32) as u32, high as u32];
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let divides = sizes.iter().zip(grid).all(|(size, blocks)| *size > 0 && blocks % *size == 0);
    if divides {
        Ok(sizes.into_iter().fold(1, u32::saturating_mul))
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE)
    }
}

/// A kernel in a context by the handle of the function, or by that of the kernel of a library.
pub(super) fn find(global: &Global, handle: CUfunction) -> Result<Arc<Function>> {
    let invalid = CUresult::CUDA_ERROR_INVALID_HANDLE;
    let handle = handle.addr() as u64;
    match global.kernels.get(handle) {
        Some(kernel) => global.functions.get(kernel.function(global, &current(global)?)?).ok_or(invalid),
        None => global.functions.get(handle).ok_or(invalid),
    }
}

/// Queues a launch.
///
/// # Safety
///
/// As for [`arguments`].
unsafe fn launch(
    global: &Global,
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    list: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result {
    let function = find(global, handle)?;
    let stream = Stream::find(global, stream)?;
    if !Arc::ptr_eq(&function.context, &stream.context) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    // SAFETY: by this function's contract.
    let arguments = Arc::new(unsafe { arguments(global, function.signature(), list, extra) }?);
    let params = || Params::Kernel(KernelParams::new(shown(handle, shape), &arguments));
    Launch::new(global, &function, shape, arguments.clone())?.begin(&stream, params)
}

/// The parameters of a node that launches a kernel, without its arguments.
fn shown(func: CUfunction, shape: Shape) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    let (grid, block) = (shape.grid, shape.block);
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shape.shared,
        ..Default::default()
    }
}

/// The arguments of a launch, from a list of addresses or from one buffer.
///
/// # Safety
///
/// The list is null or has the addresses of all arguments; `extra` is null or as the driver's interface says.
pub(super) unsafe fn arguments(
    global: &Global,
    signature: &Signature,
    list: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Arguments> {
    ensure(list.is_null() || extra.is_null())?;
    let places = match kernels::parameters(global, signature) {
        Some(places) => places,
        // Without arguments, it does not matter that the number of parameters is unknown.
        None if list.is_null() && extra.is_null() => Cow::default(),
        None => return Err(unknown_parameters(signature)),
    };
    if extra.is_null() {
        // SAFETY: by this function's contract.
        return unsafe { Arguments::from_list(&places, list) };
    }
    let (mut buffer, mut size, mut at) = (std::ptr::null(), 0, extra);
    loop {
        // SAFETY: by this function's contract, the list goes on until its end.
        let (key, value) = unsafe { (at.read().addr(), at.add(1)) };
        match u32::try_from(key).unwrap_or(u32::MAX) {
            CU_LAUNCH_PARAM_END_AS_INT => break,
            // SAFETY: as above.
            CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT => buffer = unsafe { value.read() }.cast_const().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT => {
                // SAFETY: as above.
                let place = unsafe { value.read() }.cast::<usize>();
                ensure(!place.is_null())?;
                // SAFETY: as above.
                size = unsafe { place.read() };
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: as above.
        at = unsafe { at.add(2) };
    }
    // SAFETY: by this function's contract.
    unsafe { Arguments::from_buffer(&places, buffer, size) }
}

/// Tells that the parameters of a kernel of a cubin are unknown. Returns the code for it.
fn unknown_parameters(signature: &Signature) -> CUresult {
    tell(&format!(
        "softgpu: the cubin states the parameters of the kernel `{0}` in a form that is not documented: compile to PTX, or \
         state their sizes, in Rust by softgpu::register_parameters, in C in an array `{0}_parameters` of the library that \
         SOFTGPU_KERNELS names",
        signature.name
    ));
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// The parameters of a kernel. Fails if they are unknown.
pub(super) fn known_parameters<'a>(global: &Global, signature: &'a Signature) -> Result<Cow<'a, [Parameter]>> {
    kernels::parameters(global, signature).ok_or_else(|| unknown_parameters(signature))
}

/// Returns the place and the size of a parameter.
///
/// # Safety
///
/// The pointers are null or writable.
pub(super) unsafe fn told_of_parameters(
    global: &Global,
    signature: &Signature,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result {
    let places = known_parameters(global, signature)?;
    let place = places.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: by this function's contract.
    unsafe {
        put(offset, place.offset)?;
        offer(size, place.size);
    }
    Ok(())
}
