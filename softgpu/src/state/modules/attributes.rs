//! Attributes of kernels, and how many blocks run at once.

use super::image::{Image, Signature};
use crate::call::{Result, ensure};
use crate::state::devices::attribute;
use cuda_sys::{CUdevice_attribute, CUfunction_attribute, CUresult};
use std::sync::atomic::{AtomicI32, Ordering};

/// The registers of a thread. softgpu compiles nothing, so it knows no better number.
const REGISTERS: u32 = 32;
/// The most blocks of a cluster, and of one whose size a program must allow.
const CLUSTER: [i32; 2] = [8, 16];

/// What a program has set.
#[derive(Debug)]
pub(crate) struct Attributes {
    dynamic_shared: AtomicI32,
    carveout: AtomicI32,
    cluster: [AtomicI32; 3],
    large_cluster: AtomicI32,
    scheduling: AtomicI32,
}

/// A limit of a device; 0 if it has none of this name.
fn limit(which: CUdevice_attribute) -> u32 {
    attribute(which, 0).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

fn shared_of_block() -> u32 {
    limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)
}

fn most_threads(signature: &Signature) -> u32 {
    let most = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    signature.most_threads.map_or(most, |bound| bound.min(most))
}

fn number(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}

impl Attributes {
    pub(crate) fn new(signature: &Signature) -> Self {
        let shared = number(signature.shared);
        Self {
            dynamic_shared: AtomicI32::new((shared_of_block() as i32 - shared).max(0)),
            carveout: AtomicI32::new(-1),
            cluster: [const { AtomicI32::new(0) }; 3],
            large_cluster: AtomicI32::new(0),
            scheduling: AtomicI32::new(0),
        }
    }

    /// Where a value that programs may set is stored.
    fn place(&self, which: CUfunction_attribute) -> Option<&AtomicI32> {
        use CUfunction_attribute as A;
        Some(match which {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => &self.dynamic_shared,
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => &self.carveout,
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => &self.cluster[0],
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => &self.cluster[1],
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => &self.cluster[2],
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => &self.large_cluster,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => &self.scheduling,
            _ => return None,
        })
    }

    pub(crate) fn get(&self, which: CUfunction_attribute, signature: &Signature, image: &Image) -> Result<i32> {
        use CUfunction_attribute as A;
        if let Some(place) = self.place(which) {
            return Ok(place.load(Ordering::Relaxed));
        }
        let device = 10 * limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
            + limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        Ok(match which {
            A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => most_threads(signature) as i32,
            A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => number(signature.shared),
            A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => number(signature.local),
            A::CU_FUNC_ATTRIBUTE_NUM_REGS => REGISTERS as i32,
            A::CU_FUNC_ATTRIBUTE_PTX_VERSION if image.target != 0 => image.target as i32,
            A::CU_FUNC_ATTRIBUTE_PTX_VERSION | A::CU_FUNC_ATTRIBUTE_BINARY_VERSION => device as i32,
            A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
            | A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA
            | A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => 0,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    pub(crate) fn set(&self, which: CUfunction_attribute, value: i32, signature: &Signature) -> Result {
        use CUfunction_attribute as A;
        let place = self.place(which).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let most = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) as i32;
        let range = match which {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => 0..=most - number(signature.shared).min(most),
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => -1..=100,
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => 0..=1,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => 0..=2,
            _ => 0..=CLUSTER[1],
        };
        ensure(range.contains(&value))?;
        place.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// The most bytes of shared memory that a launch may add.
    pub(crate) fn most_dynamic_shared(&self) -> u32 {
        u32::try_from(self.dynamic_shared.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The most blocks of a cluster.
    pub(crate) fn most_of_cluster(&self) -> i32 {
        CLUSTER[usize::from(self.large_cluster.load(Ordering::Relaxed) != 0)]
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory that it adds.
    pub(crate) shared: u32,
}

impl Shape {
    /// The number of threads; `u64::MAX` if there are more.
    pub(crate) fn threads(&self) -> u64 {
        self.grid.iter().chain(&self.block).fold(1, |all, size| all.saturating_mul(u64::from(*size)))
    }

    /// Fails if a device cannot run the kernel in this shape.
    pub(crate) fn check(&self, signature: &Signature, attributes: &Attributes) -> Result {
        use CUdevice_attribute as A;
        let grid = [
            A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
            A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
            A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
        ];
        let block = [
            A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
            A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
            A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
        ];
        for (sizes, most) in [(self.grid, grid), (self.block, block)] {
            ensure(sizes.iter().zip(most).all(|(size, most)| *size > 0 && *size <= limit(most)))?;
        }
        let threads = self.block.iter().fold(1_u32, |all, size| all.saturating_mul(*size));
        ensure(threads <= most_threads(signature))?;
        ensure(signature.required.is_none_or(|shape| shape == self.block))?;
        ensure(self.shared <= attributes.most_dynamic_shared())
    }
}

/// How many blocks of some threads, each with some bytes of shared memory, a multiprocessor runs at once. As for the driver,
/// the kernel's own bound of threads does not matter.
pub(crate) fn blocks_at_once(signature: &Signature, threads: u32, shared: usize) -> u32 {
    use CUdevice_attribute as A;
    if threads > limit(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
        return 0;
    }
    let threads = threads.next_multiple_of(limit(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1));
    let reserved = limit(A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) as usize;
    let shared = signature.shared.saturating_add(shared).saturating_add(reserved);
    let by_shared = limit(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) as usize / shared.max(1);
    [
        limit(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
        limit(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / threads,
        limit(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / (threads * REGISTERS),
        u32::try_from(by_shared).unwrap_or(u32::MAX),
    ]
    .into_iter()
    .min()
    .unwrap_or(0)
}

/// The block size with which most threads run at once, of those up to `most` (0 for no bound), and the number of blocks
/// that then run on the device.
pub(crate) fn best_block(signature: &Signature, most: u32, shared: &dyn Fn(u32) -> usize) -> (u32, u32) {
    let warp = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1);
    let bound = most_threads(signature);
    let most = if most == 0 { bound } else { most.min(bound) };
    let sizes = (1..=most.div_ceil(warp)).map(|warps| (warps * warp).min(most));
    let running = |size: u32| blocks_at_once(signature, size, shared(size));
    let best = sizes.max_by_key(|size| (running(*size) * size, *size)).unwrap_or(most);
    let processors = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    (best, running(best) * processors)
}

/// The shared memory that a launch may add to each of some blocks that run at once on a multiprocessor.
pub(crate) fn shared_left(signature: &Signature, attributes: &Attributes, blocks: u32) -> usize {
    use CUdevice_attribute as A;
    let whole = limit(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / blocks;
    let own = signature.shared + limit(A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) as usize;
    (whole as usize).saturating_sub(own).min(attributes.most_dynamic_shared() as usize)
}

/// How many clusters of some blocks run at once on a device.
pub(crate) fn clusters_at_once(signature: &Signature, threads: u32, shared: usize, cluster: u32) -> u32 {
    let processors = limit(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    blocks_at_once(signature, threads, shared) * processors / cluster.max(1)
}
