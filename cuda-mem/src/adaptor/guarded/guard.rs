//! The resource that surrounds blocks with red zones.

use super::GuardOptions;
use super::bytes::{Bytes, is_by_cpu};
use super::damage::{ALLOCATED, FREED, RED_ZONE, first_damage};
use super::quarantine::Quarantine;
use super::zones::{UNIT, Zones};
use crate::adaptor::current_name;
use crate::driver::context::Liveness;
use crate::driver::relaxed::RelaxedCalls;
use crate::error::callback::or_undo;
use crate::error::{Damage, DamagedPlace, forked, unless_forked};
use crate::locks::{Mutex, MutexGuard};
use crate::memory::asleep;
use crate::memory::peers::PeerSource;
use crate::memory::resource::{Accessibility, Block, MemoryResource, PendingUse, SharedResource, check_request};
use crate::{Context, Error, Result, Stream};
use core::cell::RefCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_sys::CUdeviceptr;
use std::collections::HashMap;
use std::sync::Arc;

const ALLOCATE: &str = "Guarded::allocate";

/// A resource that surrounds the blocks of another with red zones.
#[derive(Debug)]
pub(super) struct Guard {
    upstream: SharedResource,
    options: GuardOptions,
    /// Orders the fills, reads and frees of blocks in quarantine.
    own: Stream,
    /// Zones are multiples of this, the largest atom of a block so far.
    unit: AtomicUsize,
    state: Mutex<GuardedBlocks>,
}

/// The blocks that the guard has to check.
#[derive(Debug)]
struct GuardedBlocks {
    /// The live blocks, by the program's device address.
    live: HashMap<CUdeviceptr, GuardedBlock>,
    quarantine: Quarantine<GuardedBlock>,
    /// Checks that read blocks now, without the lock. No block leaves the quarantine meanwhile, and blocks of any size
    /// enter it, so that no thread waits for a check: the source that it reads may be the program's.
    checks: usize,
    /// The end of the last check frees all of the quarantine, not only what exceeds the limit.
    all_is_due: bool,
}

/// A block, and the upstream block around it.
#[derive(Clone, Debug)]
struct GuardedBlock {
    whole: Block,
    zones: Zones,
    name: Option<Arc<str>>,
    /// Its damage was reported, so the next free is not refused for it.
    reported: bool,
    /// A free of it was refused. Without another free, the guard frees it at its end.
    refused: bool,
}

/// The stage of a block's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckPhase {
    /// The program uses it.
    InUse,
    /// The program is freeing it.
    Returned,
    /// It was freed and is in quarantine.
    Freed,
}

impl GuardedBlock {
    fn address(&self) -> CUdeviceptr {
        self.whole.device_pointer() + self.zones.block().start as CUdeviceptr
    }

    fn damage(&self, place: DamagedPlace, freed: bool, at: usize, found: &[u8], expected: u8) -> Damage {
        Damage {
            address: self.address(),
            size: self.zones.block().len(),
            name: self.name.clone(),
            place,
            freed,
            offset: at as i64 - self.zones.block().start as i64,
            found: found.into(),
            expected,
        }
    }
}

impl Guard {
    pub fn new(upstream: SharedResource, options: GuardOptions) -> Result<Self> {
        let own = Stream::new(upstream.context())?;
        let quarantine = Quarantine::new(options.quarantine);
        Ok(Self {
            upstream,
            options,
            own,
            unit: AtomicUsize::new(UNIT),
            state: Mutex::new(GuardedBlocks { live: HashMap::new(), quarantine, checks: 0, all_is_due: false }),
        })
    }

    fn state(&self) -> MutexGuard<'_, GuardedBlocks> {
        self.state.lock()
    }

    /// Keeps the guard's calls out of captures of other code, also of other libraries.
    fn relaxed(&self) -> Result<RelaxedCalls<'_>> {
        RelaxedCalls::begin(self.context().driver())
    }

    fn bytes(&self, record: &GuardedBlock) -> Bytes<'_> {
        Bytes { resource: &self.upstream, block: record.whole, by_cpu: is_by_cpu(&self.upstream) }
    }

    /// Whether the block belongs to a pool that sleeps, so that it can be freed and not looked at.
    fn is_away(&self, record: &GuardedBlock) -> bool {
        asleep::is_away(self.context().driver(), record.whole.device_pointer())
    }

    /// Writes the patterns of a new block.
    fn prepare(&self, record: &GuardedBlock, stream: &Stream) -> Result<()> {
        if is_by_cpu(&self.upstream) {
            // Work of the memory's previous owner may still be queued on the stream.
            stream.wait_for_work()?;
        }
        let (bytes, zones) = (self.bytes(record), &record.zones);
        bytes.fill(zones.before(), RED_ZONE, stream)?;
        bytes.fill(zones.block(), ALLOCATED, stream)?;
        bytes.fill(zones.after(), RED_ZONE, stream)
    }

    /// The first damage of a block whose work is done. The block itself is checked only if it was freed.
    fn look(&self, record: &GuardedBlock, phase: CheckPhase, stream: &Stream) -> Result<Option<Damage>> {
        if self.is_away(record) {
            return Ok(None);
        }
        let (mut bytes, zones, freed) = (self.bytes(record), &record.zones, phase == CheckPhase::Freed);
        if phase == CheckPhase::InUse && !self.upstream.is_coherent(record.whole) {
            // The CPU may be writing in atoms that the block shares with a zone: an invalidate could undo that.
            bytes.by_cpu = false;
        }
        let within = if freed { zones.block() } else { 0..0 };
        for (range, place, pattern) in [
            (zones.before(), DamagedPlace::Before, RED_ZONE),
            (within, DamagedPlace::Within, FREED),
            (zones.after(), DamagedPlace::After, RED_ZONE),
        ] {
            let damage = bytes.read(range, stream, |start, piece| {
                let (at, found) = first_damage(piece, pattern)?;
                Some(record.damage(place, freed, start + at, found, pattern))
            })?;
            if damage.is_some() {
                return Ok(damage);
            }
        }
        Ok(None)
    }

    /// Checks a returned block, fills it, and quarantines or frees it. On an error the block stays live.
    fn retire(&self, record: &mut GuardedBlock, stream: &Stream) -> Result<()> {
        if self.is_away(record) {
            // SAFETY: as below.
            return unsafe { self.upstream.deallocate(record.whole, stream) };
        }
        let held = {
            let state = self.state();
            state.checks > 0 || self.options.quarantine > 0 && state.quarantine.admits(record.whole.size())
        };
        if held || !record.zones.before().is_empty() || is_by_cpu(&self.upstream) {
            stream.wait_for_work()?;
        }
        if !record.reported
            && let Some(damage) = self.look(record, CheckPhase::Returned, stream)?
        {
            record.reported = true;
            return Err(Error::Damaged(Box::new(damage)));
        }
        let stream = if held { &self.own } else { stream };
        self.bytes(record).fill(record.zones.block(), FREED, stream)?;
        if held {
            if record.reported {
                // Damage that is found from now on is new.
                self.bytes(record).fill(record.zones.before(), RED_ZONE, stream)?;
                self.bytes(record).fill(record.zones.after(), RED_ZONE, stream)?;
                record.reported = false;
            }
            let mut state = self.state();
            state.quarantine.hold(record.clone(), record.whole.size());
            return Ok(());
        }
        // SAFETY: the caller of `deallocate` gives up the block, and with it the whole upstream block.
        unsafe { self.upstream.deallocate(record.whole, stream) }
    }

    /// Frees blocks from the quarantine: all, or those above its limit. During a check, its end does so. Errors become
    /// drop errors: no call caused them.
    fn let_go(&self, all: bool) {
        loop {
            let taken = {
                let mut state = self.state();
                if state.checks > 0 {
                    state.all_is_due |= all;
                    return;
                }
                if all { state.quarantine.take_oldest() } else { state.quarantine.take_excess() }
            };
            let Some((mut record, size)) = taken else { return };
            if let Err(error) = self.end(&mut record) {
                self.report("freeing a block in quarantine", error);
                // The block is not freed; a later call tries again.
                self.state().quarantine.put_back(record, size);
                return;
            }
        }
    }

    /// Checks a block in quarantine and frees it.
    fn end(&self, record: &mut GuardedBlock) -> Result<()> {
        if !record.reported {
            match self.look(record, CheckPhase::Freed, &self.own) {
                Ok(None) => {}
                Ok(Some(damage)) => self.report("checking a block in quarantine", Error::Damaged(Box::new(damage))),
                Err(error) => self.report("checking a block in quarantine", error),
            }
            record.reported = true;
        }
        // SAFETY: the program gave up the block, and the block has left the quarantine.
        unsafe { self.upstream.deallocate(record.whole, &self.own) }
    }

    fn report(&self, doing: &'static str, error: Error) {
        if !error.is_teardown() {
            self.context().drop_errors().push(doing, error);
        }
    }

    pub fn check(&self) -> Result<Vec<Damage>> {
        let _relaxed = self.relaxed()?;
        self.context().synchronize()?;
        let check = Check::begin(self);
        let look = |(record, phase): &(_, _)| self.look(record, *phase, &self.own).transpose();
        let found: Result<Vec<Damage>> = check.records.iter().filter_map(look).collect();
        drop(check);
        let all = core::mem::take(&mut self.state().all_is_due);
        if self.context().liveness() == Liveness::Alive {
            self.let_go(all);
        }
        let mut found = found?;
        found.sort_unstable_by_key(|damage| damage.address);
        Ok(found)
    }

    pub fn release_quarantine(&self) {
        match self.relaxed() {
            Ok(_relaxed) => self.let_go(true),
            Err(error) => self.report("freeing blocks in quarantine", error),
        }
    }

    pub fn quarantined(&self) -> usize {
        unless_forked(|| self.state().quarantine.bytes())
    }

    /// The upstream's block around a block of the guard.
    fn whole(&self, block: Block) -> Block {
        self.state().live.get(&block.device_pointer()).map_or(block, |record| record.whole)
    }

    /// Removes and returns the record of a live block.
    fn take(&self, block: Block) -> Result<GuardedBlock> {
        let mut state = self.state();
        let wrong = |text: String, rule| {
            let value = format!("{:#x} of {} bytes{text}", block.device_pointer(), block.size());
            Err(Error::invalid("Guarded::deallocate", "block", value, rule))
        };
        match state.live.remove(&block.device_pointer()) {
            Some(record) if record.zones.block().len() == block.size() => Ok(record),
            Some(record) => {
                let text = format!(", allocated with {}", record.zones.block().len());
                state.live.insert(block.device_pointer(), record);
                wrong(text, "a block must be freed with the size that it was allocated with")
            }
            None => {
                let held = state.quarantine.iter().find(|record| record.address() == block.device_pointer());
                let name = held.and_then(|record| record.name.as_deref());
                let text = name.map_or_else(String::new, |name| format!(" ({name})"));
                wrong(
                    text,
                    "it must be a live block of this resource: this one was freed before, or came from elsewhere",
                )
            }
        }
    }

    /// Allocates a block with its zones, so that the block shares no atom with a neighbour. Only an allocated block
    /// reveals its atom: if this is larger than all before, the block is freed, and another one allocated.
    fn allocate_guarded(&self, size: usize, alignment: usize, stream: &Stream) -> Result<(Block, Zones)> {
        loop {
            let unit = self.unit.load(Ordering::Relaxed);
            let Some(zones) = Zones::new(size, alignment, self.options.red_zone, unit) else {
                let value = format!("{size} bytes, with red zones of {} bytes", self.options.red_zone);
                let rule = "the block and its red zones together must fit into isize";
                return Err(Error::invalid(ALLOCATE, "size", value, rule));
            };
            let whole = self.allocate_whole(zones.total(), alignment, stream)?;
            let atom = self.upstream.atom(whole);
            if self.options.red_zone == 0 || unit.is_multiple_of(atom) {
                return Ok((whole, zones));
            }
            self.unit.fetch_max(atom, Ordering::Relaxed);
            // SAFETY: the upstream has just returned the block, and nobody uses it.
            unsafe { self.upstream.deallocate(whole, stream) }?;
        }
    }

    /// Allocates from the upstream. When that is out of memory, empties the quarantine and tries again.
    fn allocate_whole(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        match self.upstream.allocate(size, alignment, stream) {
            Err(error) if error.is_out_of_memory() && self.quarantined() > 0 => {
                self.let_go(true);
                self.upstream.allocate(size, alignment, stream)
            }
            other => other,
        }
    }
}

/// A check of all blocks. While it lives, the blocks that it reads stay.
struct Check<'guard> {
    of: &'guard Guard,
    records: Vec<(GuardedBlock, CheckPhase)>,
}

impl<'guard> Check<'guard> {
    fn begin(of: &'guard Guard) -> Self {
        let mut state = of.state();
        state.checks += 1;
        let live = state.live.values().map(|record| (record.clone(), CheckPhase::InUse));
        let freed = state.quarantine.iter().map(|record| (record.clone(), CheckPhase::Freed));
        Self { of, records: live.chain(freed).collect() }
    }
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        self.of.state().checks -= 1;
    }
}

// SAFETY: a block is the inner part of an upstream block of its own. It is aligned as requested, because the zone
// before it is a multiple of the alignment.
unsafe impl MemoryResource for Guard {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_request(ALLOCATE, (size, alignment), usize::MAX, self.context(), stream)?;
        stream.check_may_allocate(ALLOCATE)?;
        let _relaxed = self.relaxed()?;
        let (whole, zones) = self.allocate_guarded(size, alignment, stream)?;
        let record = GuardedBlock { whole, zones, name: current_name(), reported: false, refused: false };
        if let Err(error) = self.prepare(&record, stream) {
            // SAFETY: the upstream has just returned the block, and nobody uses it.
            if let Err(error) = unsafe { self.upstream.deallocate(whole, stream) } {
                self.report("giving back a block that cannot be guarded", error);
            }
            return Err(error);
        }
        // The guard has queued writes of the zones, and may reuse the memory.
        let whole = whole.with_pending_use(whole.pending_use().max(PendingUse::InStreamOrder));
        let block = whole.part(zones.block().start, size);
        self.state().live.insert(block.device_pointer(), record);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        let _relaxed = self.relaxed()?;
        // Removed before the free: afterwards another thread may get the address.
        let record = RefCell::new(self.take(block)?);
        let undo = || {
            let record = GuardedBlock { refused: true, ..record.borrow().clone() };
            self.state().live.insert(block.device_pointer(), record);
        };
        let retired = or_undo(|| self.retire(&mut record.borrow_mut(), stream), undo);
        self.let_go(false);
        retired
    }

    unsafe fn abandon(&self, block: Block) {
        let Ok(record) = self.take(block) else { return };
        let mut state = self.state();
        if state.checks > 0 {
            // The guard's end abandons it.
            let size = record.whole.size();
            return state.quarantine.hold(record, size);
        }
        drop(state);
        // SAFETY: the caller's contract; the whole block is the upstream's.
        unsafe { self.upstream.abandon(record.whole) };
    }

    fn context(&self) -> &Context {
        self.upstream.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.upstream.accessibility()
    }

    fn peer_source(&self) -> Option<PeerSource<'_>> {
        self.upstream.peer_source()
    }

    fn is_on_device(&self) -> bool {
        self.upstream.is_on_device()
    }

    fn atom(&self, block: Block) -> usize {
        self.upstream.atom(self.whole(block))
    }

    fn is_coherent(&self, block: Block) -> bool {
        self.upstream.is_coherent(self.whole(block))
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.invalidate(start, length) }
    }

    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.begin_write(start, length) }
    }

    unsafe fn store(&self, start: *mut u8, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.store(start, bytes) }
    }

    unsafe fn load(&self, start: *mut u8, to: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.load(start, to, length) }
    }

    unsafe fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.flush(start, length) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        let live = core::mem::take(&mut self.state().live);
        // Other live blocks still belong to a program that keeps them without their resource.
        let refused: Vec<GuardedBlock> = live.into_values().filter(|record| record.refused).collect();
        let liveness = self.context().liveness();
        if liveness == Liveness::Alive {
            let _relaxed = RelaxedCalls::begin(self.context().driver());
            while let Some((mut record, _)) = { self.state().quarantine.take_oldest() } {
                if let Err(error) = self.end(&mut record) {
                    self.report("freeing a block in quarantine", error);
                }
            }
            for record in refused {
                // SAFETY: the refused free gave up the block, and nobody is left who could free it again.
                if let Err(error) = unsafe { self.upstream.deallocate(record.whole, &self.own) } {
                    self.report("freeing a block whose free was refused", error);
                }
            }
            return;
        }
        if liveness == Liveness::Gone {
            let held = core::iter::from_fn(|| self.state().quarantine.take_oldest().map(|(record, _)| record));
            // SAFETY: the program gave up these blocks, each is in one record, and the context has ended.
            held.chain(refused).for_each(|record| unsafe { self.upstream.abandon(record.whole) });
        }
    }
}
