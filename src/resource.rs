//! Memory resources
//!
//! Buffers are allocated from resources: one of the driver's ways to allocate, a driver pool, mapped memory, or a pool
//! over another resource (cudamem_pool_create). Buffers keep their resource alive, so the program may destroy its
//! handle before them.

use crate::call::{self, Options, Out, Outcome, destroy, drop_object, fill, invalid, object, options, out, run};
use crate::callbacks::Callback;
use crate::device::device;
use crate::handles::cudamem_context;
use crate::handles::cudamem_resource;
use crate::made::new_resource;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use core::ops::ControlFlow;
use cuda_mem::MappedMemory;
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::ResourceHandle;
use cuda_mem::memory::{
    Accessibility, Attachment, DeviceMemory, DevicePool, DriverPoolOptions, ManagedMemory, ManagedPool, PinnedMemory,
    PinnedOptions, PinnedPool,
};
use cuda_mem_dynamic::Resource;

/// Makes a resource of device memory from cuMemAlloc: for large blocks that live long. A free waits for nothing, if the
/// device has memory pools (CUDA 11.2).
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_device(
    context: cudamem_context,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_device", || {
        let resource = out("resource", resource)?;
        resource.write(new_resource(DeviceMemory::new(&*object("context", context)?))?);
        Ok(())
    })
}

/// A flag of cudamem_resource_create_pinned: CPU writes bypass the CPU's caches. Device reads become faster, and CPU
/// reads very slow.
pub const CUDAMEM_PINNED_WRITE_COMBINED: u32 = 1;

/// Makes a resource of page-locked host memory. flags is 0 or CUDAMEM_PINNED_WRITE_COMBINED. With 0, blocks below 256 MiB
/// come from a pool of the driver, and their free waits for nothing. Larger ones are huge pages that several threads make
/// and the driver locks, in a fifth of the time that cuMemHostAlloc takes; their free waits for the device. With the flag,
/// or on drivers before CUDA 12.6, memory comes from cuMemHostAlloc: allocating is slow, and freeing waits for the device.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_pinned(
    context: cudamem_context,
    flags: u32,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_pinned", || {
        let resource = out("resource", resource)?;
        let settings = pinned_options(flags)?;
        resource.write(new_resource(PinnedMemory::with_options(&*object("context", context)?, settings))?);
        Ok(())
    })
}

/// The library calls this function while it allocates, on the allocating thread, with the bytes that are done and the bytes
/// of the allocation. user is the program's pointer. A result other than 0 cancels the allocation
/// (CUDAMEM_ERROR_CANCELED), of which nothing is left. The function must not unwind.
pub type cudamem_progress_callback = Option<extern "C" fn(done: usize, total: usize, user: *mut c_void) -> i32>;

/// As cudamem_resource_create_pinned, and calls progress during each allocation from 256 MiB on, several times for each
/// GiB. The first half of the bytes is done when the pages exist, the second when they are locked. progress and user must
/// stay valid until the resource and its last buffer have ended.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if progress is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_pinned_with_progress(
    context: cudamem_context,
    flags: u32,
    progress: cudamem_progress_callback,
    user: *mut c_void,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_pinned_with_progress", || {
        let resource = out("resource", resource)?;
        let settings = pinned_options(flags)?;
        let function = progress.ok_or_else(|| invalid("progress", "NULL", "it must be a function"))?;
        let callback = Callback { function, user };
        let progress = move |done, total| match callback.call(|function, user| function(done, total, user)) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        let context = object("context", context)?;
        resource.write(new_resource(PinnedMemory::on_progress(&context, settings, progress))?);
        Ok(())
    })
}

fn pinned_options(flags: u32) -> Outcome<PinnedOptions> {
    call::check_flags("flags", flags, CUDAMEM_PINNED_WRITE_COMBINED)?;
    let mut options = PinnedOptions::default();
    options.write_combined = flags & CUDAMEM_PINNED_WRITE_COMBINED != 0;
    Ok(options)
}

/// A flag of cudamem_resource_create_managed: kernels may use the memory only after it was attached to a stream, and
/// the CPU at any time. Devices with concurrent managed access ignore this flag.
pub const CUDAMEM_MANAGED_ATTACH_HOST: u32 = 1;

/// Makes a resource of managed memory, which the driver moves between device and host. flags is 0 or
/// CUDAMEM_MANAGED_ATTACH_HOST.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has no managed memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_managed(
    context: cudamem_context,
    flags: u32,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_managed", || {
        let resource = out("resource", resource)?;
        call::check_flags("flags", flags, CUDAMEM_MANAGED_ATTACH_HOST)?;
        let attachment = if flags == 0 { Attachment::Global } else { Attachment::Host };
        resource.write(new_resource(ManagedMemory::with_attachment(&*object("context", context)?, attachment)?)?);
        Ok(())
    })
}

/// Coherent if the device offers it.
pub const CUDAMEM_COHERENCE_PREFERRED: i32 = 0;
/// Coherent; otherwise an error.
pub const CUDAMEM_COHERENCE_REQUIRED: i32 = 1;
/// Treated as non-coherent even if it is coherent, to find missing flushes.
pub const CUDAMEM_COHERENCE_FORCED_NON_COHERENT: i32 = 2;

/// Makes a resource of mapped memory: device memory that the CPU addresses too. coherence is one of
/// CUDAMEM_COHERENCE_... . The first such resource of a process takes a tenth of a second or more.
///
/// Errors: CUDAMEM_ERROR_LOAD or CUDAMEM_ERROR_VKGDR if a library, Vulkan, or the device in Vulkan is missing. The
/// message names it.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_mapped(
    context: cudamem_context,
    coherence: i32,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_mapped", || {
        let resource = out("resource", resource)?;
        let policy = match coherence {
            CUDAMEM_COHERENCE_PREFERRED => CoherencePolicy::Preferred,
            CUDAMEM_COHERENCE_REQUIRED => CoherencePolicy::Required,
            CUDAMEM_COHERENCE_FORCED_NON_COHERENT => CoherencePolicy::ForcedNonCoherent,
            _ => return Err(invalid("coherence", coherence.to_string(), "it must be one of CUDAMEM_COHERENCE_...")),
        };
        resource.write(new_resource(MappedMemory::with_coherence(&*object("context", context)?, policy)?)?);
        Ok(())
    })
}

/// Device memory.
pub const CUDAMEM_MEMORY_DEVICE: i32 = 0;
/// Page-locked host memory.
pub const CUDAMEM_MEMORY_PINNED: i32 = 1;
/// Managed memory.
pub const CUDAMEM_MEMORY_MANAGED: i32 = 2;

/// A flag of cudamem_driver_pool_options: other processes may import the pool.
pub const CUDAMEM_DRIVER_POOL_SHAREABLE: u32 = 1;
/// A flag of cudamem_driver_pool_options: a pool of page-locked memory lies on the host's NUMA node numa_node. Other
/// processes can import no other pool of host memory.
pub const CUDAMEM_DRIVER_POOL_ON_NUMA_NODE: u32 = 2;

/// A flag of cudamem_driver_pool_options: no new pool, but the one that the context's device currently allocates from
/// (cuDeviceGetMemPool), which the whole process shares. All other options must be 0.
pub const CUDAMEM_DRIVER_POOL_CURRENT: u32 = 4;

/// How a driver pool is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_driver_pool_options {
    /// sizeof(cudamem_driver_pool_options).
    pub size: usize,
    /// One of CUDAMEM_MEMORY_... .
    pub memory: i32,
    /// CUDAMEM_DRIVER_POOL_... combined by |.
    pub flags: u32,
    /// The largest size of the pool in bytes. 0 means the size of the device's memory, or no limit for other memory.
    pub max_size: u64,
    /// How much unused memory the pool keeps when the program waits for a stream, in bytes. 0 for all of it.
    pub release_threshold: u64,
    /// The host's NUMA node, with CUDAMEM_DRIVER_POOL_ON_NUMA_NODE; otherwise 0.
    pub numa_node: i32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: numbers of 8 + 4 + 4 + 8 + 8 + 4 + 4 bytes.
unsafe impl Options for cudamem_driver_pool_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes a driver pool (cuMemPoolCreate), which allocates and frees in stream order. options may be NULL, for device
/// memory.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has no such pools.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_create_driver_pool(
    context: cudamem_context,
    options: *const cudamem_driver_pool_options,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_driver_pool", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        let known = CUDAMEM_DRIVER_POOL_SHAREABLE | CUDAMEM_DRIVER_POOL_ON_NUMA_NODE | CUDAMEM_DRIVER_POOL_CURRENT;
        call::check_flags("options.flags", chosen.flags, known)?;
        if chosen.flags & CUDAMEM_DRIVER_POOL_CURRENT != 0 {
            check_no_others(&chosen)?;
            let pool = DevicePool::current(&*object("context", context)?)?;
            resource.write(new_resource(pool.into_any())?);
            return Ok(());
        }
        check_numa_node(&chosen)?;
        let size = |argument, bytes: u64| {
            usize::try_from(bytes)
                .map_err(|_| invalid(argument, bytes.to_string(), "it must fit into the address space"))
        };
        let mut settings = DriverPoolOptions::default();
        settings.shareable = chosen.flags & CUDAMEM_DRIVER_POOL_SHAREABLE != 0;
        if chosen.max_size != 0 {
            settings.max_size = Some(size("options.max_size", chosen.max_size)?);
        }
        if chosen.release_threshold != 0 {
            settings.release_threshold = size("options.release_threshold", chosen.release_threshold)?;
        }
        let context = object("context", context)?;
        let made = match chosen.memory {
            CUDAMEM_MEMORY_DEVICE => DevicePool::new(&context, &settings)?.into_any(),
            CUDAMEM_MEMORY_PINNED if chosen.flags & CUDAMEM_DRIVER_POOL_ON_NUMA_NODE != 0 => {
                PinnedPool::on_numa_node(&context, chosen.numa_node, &settings)?.into_any()
            }
            CUDAMEM_MEMORY_PINNED => PinnedPool::new(&context, &settings)?.into_any(),
            CUDAMEM_MEMORY_MANAGED => ManagedPool::new(&context, &settings)?.into_any(),
            other => return Err(invalid("options.memory", other.to_string(), "it must be one of CUDAMEM_MEMORY_...")),
        };
        resource.write(new_resource(made)?);
        Ok(())
    })
}

/// Refuses options beside CUDAMEM_DRIVER_POOL_CURRENT.
fn check_no_others(options: &cudamem_driver_pool_options) -> Outcome {
    let cudamem_driver_pool_options { size: _, memory, flags, max_size, release_threshold, numa_node, reserved } =
        *options;
    if (memory, max_size, release_threshold, numa_node, reserved) == (0, 0, 0, 0, 0)
        && flags == CUDAMEM_DRIVER_POOL_CURRENT
    {
        return Ok(());
    }
    Err(invalid("options.flags", format!("{flags:#x}"), "all other options must be 0 with CUDAMEM_DRIVER_POOL_CURRENT"))
}

/// Refuses a node without its flag, and the flag for memory that has no node.
fn check_numa_node(options: &cudamem_driver_pool_options) -> Outcome {
    let on_node = options.flags & CUDAMEM_DRIVER_POOL_ON_NUMA_NODE != 0;
    if on_node && options.memory != CUDAMEM_MEMORY_PINNED {
        let rule = "it must be CUDAMEM_MEMORY_PINNED with CUDAMEM_DRIVER_POOL_ON_NUMA_NODE";
        return Err(invalid("options.memory", options.memory.to_string(), rule));
    }
    if !on_node && options.numa_node != 0 {
        let rule = "it must be 0 without CUDAMEM_DRIVER_POOL_ON_NUMA_NODE";
        return Err(invalid("options.numa_node", options.numa_node.to_string(), rule));
    }
    match options.reserved {
        0 => Ok(()),
        other => Err(invalid("options.reserved", other.to_string(), "it must be 0")),
    }
}

/// Kernels may address the memory.
pub const CUDAMEM_ACCESS_DEVICE: u32 = 1;
/// The CPU may address the memory.
pub const CUDAMEM_ACCESS_HOST: u32 = 2;
/// The driver moves the memory between the two.
pub const CUDAMEM_ACCESS_MANAGED: u32 = 4;

pub(crate) fn access_flags(accessibility: Accessibility) -> u32 {
    let flag = |on, flag| if on { flag } else { 0 };
    flag(accessibility.device, CUDAMEM_ACCESS_DEVICE)
        | flag(accessibility.host, CUDAMEM_ACCESS_HOST)
        | flag(accessibility.managed, CUDAMEM_ACCESS_MANAGED)
}

/// What a resource is. The figures of adaptors are 0 for all other resources.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_resource_info {
    /// sizeof(cudamem_resource_info), set by the program.
    pub size: usize,
    /// Who may address the memory: CUDAMEM_ACCESS_... combined by |.
    pub access: u32,
    /// 0.
    pub reserved: u32,
    /// Of virtual memory: the unit of its allocations in bytes.
    pub granularity: usize,
    /// Of CUDAMEM_ADAPTOR_LIMIT: the limit in bytes.
    pub limit: usize,
    /// Of CUDAMEM_ADAPTOR_LIMIT: the live bytes.
    pub used: usize,
    /// Of cudamem_resource_create_fallback: the number of live blocks from the second resource.
    pub fallback_blocks: usize,
    /// Of cudamem_resource_create_failing: how many allocations were requested since the rules were set.
    pub allocations: u64,
    /// Of cudamem_resource_create_failing: how many of these the rules failed.
    pub injected: u64,
}

// SAFETY: a size, two numbers of 4 bytes, and six of 8.
unsafe impl Options for cudamem_resource_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a resource. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_get_info(
    resource: cudamem_resource,
    info: *mut cudamem_resource_info,
) -> cudamem_status {
    run("cudamem_resource_get_info", || {
        let resource = object("resource", resource)?;
        let mut answer = cudamem_resource_info {
            size: size_of::<cudamem_resource_info>(),
            access: access_flags(resource.share().accessibility()),
            reserved: 0,
            granularity: 0,
            limit: 0,
            used: 0,
            fallback_blocks: 0,
            allocations: 0,
            injected: 0,
        };
        match &resource.resource {
            Resource::Virtual(memory) => answer.granularity = memory.granularity(),
            Resource::Limit(adaptor) => (answer.limit, answer.used) = (adaptor.limit(), adaptor.used()),
            Resource::Fallback(adaptor) => answer.fallback_blocks = adaptor.blocks_of_second(),
            Resource::FailureInjection(adaptor) => {
                (answer.allocations, answer.injected) = (adaptor.allocations(), adaptor.injected());
            }
            _ => {}
        }
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Lets another device's kernels and copies access all memory of a source, present and future, or takes that away if
/// allowed is false: device memory, driver pools, virtual memory, and pools and adaptors over these. For device memory it
/// concerns all plain memory of the context and the device's primary context; see cudamem_context_set_access for others.
/// Copies between devices give access at their first need. The first call for a source and a device verifies the access by
/// a small copy. The call that takes access away waits for the work of the device's primary context; work in other
/// contexts must have ended.
///
/// Errors: CUDAMEM_ERROR_NO_ACCESS if no path connects the devices, or the access does not work.
/// CUDAMEM_ERROR_INVALID_ARGUMENT if the device's own access to its memory would be taken away. CUDAMEM_ERROR_UNSUPPORTED
/// if the source has other memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_set_access(
    resource: cudamem_resource,
    ordinal: i32,
    allowed: bool,
) -> cudamem_status {
    run("cudamem_resource_set_access", || {
        let (resource, device) = (object("resource", resource)?, device(ordinal)?);
        Ok(match (&resource.resource, allowed) {
            // Also of host memory.
            (Resource::DriverPool(pool), true) => pool.allow_access(&device),
            (Resource::DriverPool(pool), false) => pool.deny_access(&device),
            (_, true) => resource.share().allow_access(&device),
            (_, false) => resource.share().deny_access(&device),
        }?)
    })
}

/// Makes another handle of the same resource. Each handle has its own memory of cudamem_resource_malloc.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_share(
    resource: cudamem_resource,
    other: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_share", || {
        let other = out("other", other)?;
        let shared = object("resource", resource)?.resource.clone();
        other.write(call::new_handle(shared.into())?);
        Ok(())
    })
}

/// Destroys the handle. The resource itself ends when no memory of it is left. Memory of cudamem_resource_malloc that was
/// not freed before stays until the process ends. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_destroy(resource: cudamem_resource) -> cudamem_status {
    run("cudamem_resource_destroy", || destroy("resource", resource, drop_object))
}
