//! Pools of places other than the devices' own: of the host, of its NUMA nodes, and of managed memory.

use super::pool::{Place, Pool};
use crate::call::{Result, ensure};
use crate::state::Global;
use crate::sync::lock;
use cuda_sys::{CUmemAllocationType, CUmemLocation, CUmemLocationType, CUresult};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A pool with its handle.
pub(crate) type Named = (u64, Arc<Pool>);

/// A place, and whether its memory is managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    kind: u32,
    id: i32,
    managed: bool,
}

/// The pools of the places that calls have named: each place's default pool, and its current one.
pub(crate) type PlacePools = Mutex<HashMap<Spot, [Named; 2]>>;

impl Spot {
    /// The place that a call names.
    pub(crate) fn of(global: &Global, location: &CUmemLocation, kind: CUmemAllocationType) -> Result<Self> {
        let managed = match kind {
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED => false,
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED => true,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let id = match location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                ensure(global.device(location.id).is_ok())?;
                location.id
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => 0,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                ensure(location.id == 0)?;
                0
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE if managed => 0,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        Ok(Self { kind: location.type_.0, id, managed })
    }

    fn device(self) -> Option<usize> {
        let device = CUmemLocationType(self.kind) == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        device.then_some(self.id as usize)
    }

    fn place(self) -> Place {
        match self.device() {
            _ if self.managed => Place::Managed,
            Some(_) => Place::Device,
            None => Place::Host,
        }
    }

    /// Runs `work` on the place's default and current pool.
    fn pools<T>(self, global: &Global, work: impl FnOnce(&mut [Named; 2]) -> T) -> T {
        let mut all = lock(&global.place_pools);
        let pools = all.entry(self).or_insert_with(|| {
            let location = CUmemLocation { type_: CUmemLocationType(self.kind), id: self.id };
            let pool = Pool::builtin(self.device().unwrap_or(0), self.place(), location);
            let pool = global.pools.insert(pool.sequence, pool);
            [pool.clone(), pool]
        });
        work(pools)
    }

    /// The default pool.
    pub(crate) fn usual(self, global: &Global) -> Named {
        match self.device() {
            Some(device) if !self.managed => global.devices[device].default_pool.clone(),
            _ => self.pools(global, |pools| pools[0].clone()),
        }
    }

    /// The current pool.
    pub(crate) fn present(self, global: &Global) -> Named {
        match self.device() {
            Some(device) if !self.managed => global.devices[device].current_pool(),
            _ => self.pools(global, |pools| pools[1].clone()),
        }
    }

    /// Sets the current pool, which must have the same kind of memory.
    pub(crate) fn set(self, global: &Global, pool: Named) -> Result {
        ensure(pool.1.place == self.place())?;
        match self.device() {
            Some(device) if !self.managed => {
                ensure(pool.1.device == device)?;
                *lock(&global.devices[device].pool) = pool;
            }
            _ => self.pools(global, |pools| pools[1] = pool),
        }
        Ok(())
    }
}

/// Replaces a pool that has ended by the default pool wherever it is current.
pub(crate) fn forget(global: &Global, gone: &Arc<Pool>) {
    for device in &global.devices {
        let mut present = lock(&device.pool);
        if Arc::ptr_eq(&present.1, gone) {
            *present = device.default_pool.clone();
        }
    }
    for [usual, present] in lock(&global.place_pools).values_mut() {
        if Arc::ptr_eq(&present.1, gone) {
            *present = usual.clone();
        }
    }
}
