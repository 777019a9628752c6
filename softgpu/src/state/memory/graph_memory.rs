//! Memory that graphs allocate. A capture fixes the address; a block has memory from a launch to a free.
//!
//! The address stays valid from the capture until the graph and everything made from it have ended. A block is *live*
//! from a launch until a free, in the order of the program's calls. It is *present* for kernels in the order in which
//! streams do their work. Freed memory stays reserved for the device's graphs until a trim.

use super::allocation::{Allocation, Storage};
use crate::call::{Result, ensure};
use crate::state::Global;
use crate::state::backing::{Charge, Store};
use crate::state::backing::{Mapping, PAGE};
use crate::state::handle::next_sequence;
use crate::sync::lock;
use cuda_sys::{CUgraphMem_attribute, CUresult};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct GraphMemory {
    store: Arc<Store>,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// The bytes that blocks have.
    held: u64,
    /// The memory that no block has now. The next launch takes it first.
    idle: Vec<Charge>,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

impl Account {
    /// The bytes reserved for graphs, in blocks and idle, before rounding up.
    fn taken(&self) -> u64 {
        self.held + self.idle.iter().map(Charge::size).sum::<u64>()
    }
}

/// The unit in which graphs reserve memory.
const STEP: u64 = 32 << 20;

impl GraphMemory {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), account: Mutex::default() }
    }

    fn take(&self, size: usize) -> Result<Charge> {
        let mut account = lock(&self.account);
        let fits = account.idle.iter().position(|charge| charge.size() == size as u64);
        let charge = match fits {
            Some(place) => account.idle.swap_remove(place),
            None => self.store.take(size).or_else(|_| {
                account.idle.clear();
                self.store.take(size)
            })?,
        };
        account.held += charge.size();
        account.reserved = account.reserved.max(account.taken().next_multiple_of(STEP));
        account.used_high = account.used_high.max(account.reserved);
        account.reserved_high = account.reserved_high.max(account.reserved);
        Ok(charge)
    }

    fn give_back(&self, charge: Charge) {
        let mut account = lock(&self.account);
        account.held -= charge.size();
        account.idle.push(charge);
    }

    /// Gives the idle memory back to the device.
    pub(crate) fn trim(&self) {
        let mut account = lock(&self.account);
        account.idle.clear();
        account.reserved = account.held.next_multiple_of(STEP);
    }

    /// An attribute, in bytes.
    pub(crate) fn attribute(&self, attribute: CUgraphMem_attribute) -> Result<u64> {
        let account = lock(&self.account);
        Ok(match attribute {
            // Used memory is all that graphs have reserved, in blocks and idle.
            CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
            | CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => account.reserved,
            CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => account.used_high,
            CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => account.reserved_high,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Resets a high-water mark to the present value.
    pub(crate) fn reset_mark(&self, attribute: CUgraphMem_attribute) -> Result {
        let mut account = lock(&self.account);
        match attribute {
            CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => account.used_high = account.reserved,
            CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => account.reserved_high = account.reserved,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct GraphBlock {
    pub(crate) base: u64,
    pub(crate) sequence: u64,
    /// In whole pages.
    size: usize,
    pub(crate) managed: bool,
    memory: Arc<GraphMemory>,
    state: Mutex<BlockState>,
    present: AtomicBool,
}

#[derive(Debug, Default)]
struct BlockState {
    live: bool,
    /// How many launches gave the block memory that no free has taken back yet.
    holders: u32,
    charge: Option<Charge>,
    /// Whether the graph and everything made from it have ended.
    abandoned: bool,
}

impl BlockState {
    /// Whether nobody can use the address any more.
    fn is_over(&self) -> bool {
        self.abandoned && !self.live && self.holders == 0
    }
}

impl GraphBlock {
    /// Makes a block at a new address, without memory. The CPU may use a `managed` block too.
    pub(crate) fn make(global: &Global, device: usize, size: usize, managed: bool) -> Result<Arc<Self>> {
        let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let pages = size.checked_next_multiple_of(PAGE).ok_or(full)?;
        let hidden = global.settings.strict && !managed;
        let storage = Mapping::anonymous(size).and_then(|own| Storage::device(own, size, hidden));
        let storage = storage.map_err(|_| full)?;
        let block = Arc::new(Self {
            base: storage.base() as u64,
            sequence: next_sequence(),
            size: pages,
            managed,
            memory: global.devices[device].graph_memory.clone(),
            state: Mutex::default(),
            present: AtomicBool::new(false),
        });
        global.memory.insert(Allocation::of_graph(&block, device, size, storage));
        Ok(block)
    }

    pub(crate) fn is_live(&self) -> bool {
        lock(&self.state).live
    }

    pub(crate) fn is_present(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    /// Takes the memory for one launch.
    pub(crate) fn hold(&self) -> Result {
        let mut state = lock(&self.state);
        if state.charge.is_none() {
            state.charge = Some(self.memory.take(self.size)?);
        }
        state.holders += 1;
        Ok(())
    }

    /// Ends one launch's use of the memory. The last one gives the memory back.
    pub(crate) fn release(&self) {
        let mut state = lock(&self.state);
        state.holders -= 1;
        if state.holders == 0
            && let Some(charge) = state.charge.take()
        {
            self.memory.give_back(charge);
        }
        self.forget_if_over(&state);
    }

    /// Records that a launch that allocates the block was queued.
    pub(crate) fn enliven(&self) {
        lock(&self.state).live = true;
    }

    /// Records that a free of the block was queued. Fails if the block is not live.
    pub(crate) fn retire(&self) -> Result {
        let was = std::mem::replace(&mut lock(&self.state).live, false);
        ensure(was)
    }

    /// Records that a stream has reached a launch of the block, or a free.
    pub(crate) fn set_present(&self, present: bool) {
        self.present.store(present, Ordering::Release);
    }

    /// Records that the graph and everything made from it have ended. A live block stays until it is freed.
    pub(crate) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.abandoned = true;
        self.forget_if_over(&state);
    }

    fn forget_if_over(&self, state: &BlockState) {
        if state.is_over()
            && let Ok(global) = Global::get()
        {
            global.memory.remove(self.base, |block| block.sequence == self.sequence);
        }
    }
}
