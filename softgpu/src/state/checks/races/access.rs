//! Checks that access between devices changes apart from the copies that may use it.
//!
//! The driver (580.159, on two H200) breaks the context of a copy between devices if access to the memory of the other
//! device or of the copying device changes while the copy is being queued. It also does so if one of these devices loses
//! access to either memory while the copy runs. Changes of access to memory that the copy does not use do no harm.

use super::{Mark, QueueId, Races, is_on, with};
use crate::misuse::{Misuse, report_after};
use crate::state::contexts::Context;
use crate::state::memory::Allocation;
use cuda_sys::{CUmemAccessDesc, CUmemLocationType};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// How long a change of access takes at least, so that a copy that is queued beside it meets it.
const CHANGE_TAKES: Duration = Duration::from_micros(50);

/// Memory to which devices get access as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    /// Plain memory of a context, by the number of the context's life.
    Plain(u64),
    /// A pool's memory, by the pool's number.
    Pool(u64),
    /// A mapping, by the allocation's number.
    Virtual(u64),
}

/// Memory of a copy between devices to which access must not change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Far {
    domain: Domain,
    /// The devices of the source and of the destination, and the device that copies.
    devices: [usize; 3],
    /// The program's address of the allocation.
    address: u64,
    /// The number of the allocation.
    block: u64,
}

impl Far {
    /// Memory of a copy between `devices`; `None` if no call changes access to it.
    pub(crate) fn new(block: &Allocation, devices: [usize; 3]) -> Option<Self> {
        let domain = block.domain()?;
        Some(Self { domain, devices, address: block.base, block: block.sequence })
    }
}

/// A change of access to memory of other devices.
#[derive(Debug)]
pub(crate) struct Change {
    domain: Domain,
    /// The devices that lose access.
    taken: Vec<usize>,
}

impl Change {
    /// A device gets access to a context's plain memory.
    pub(crate) fn given(context: &Context) -> Self {
        Self { domain: Domain::Plain(context.life()), taken: Vec::new() }
    }

    /// A device loses access to a context's plain memory.
    pub(crate) fn taken(context: &Context, device: usize) -> Self {
        Self { domain: Domain::Plain(context.life()), taken: vec![device] }
    }

    /// A change of rights to a device's memory; `None` if it concerns no other device. `allows` tells which devices have
    /// rights before.
    pub(crate) fn of_rights(
        domain: Domain,
        owner: usize,
        wishes: &[CUmemAccessDesc],
        allows: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let device = |wish: &CUmemAccessDesc| {
            let is_device = wish.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
            usize::try_from(wish.location.id).ok().filter(|device| is_device && *device != owner)
        };
        let mut others = wishes.iter().filter_map(|wish| Some((device(wish)?, wish.flags.0))).peekable();
        others.peek()?;
        let taken = others.filter(|(device, flags)| *flags == 0 && allows(*device)).map(|(device, _)| device);
        Some(Self { domain, taken: taken.collect() })
    }
}

/// The copies between devices, and the changes of access.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// The number of the last entry.
    last: u64,
    /// The memory of copies that are inside of their calls.
    copying: BTreeMap<u64, Vec<Far>>,
    /// The changes of access that are inside of their calls.
    changing: BTreeMap<u64, (Vec<Change>, &'static str)>,
    /// The last copy of each device and queue, unless the host has seen its end.
    queued: BTreeMap<(Domain, [usize; 3], QueueId), (Mark, Far)>,
}

impl Races {
    /// Enters the call of a copy. Returns the entry's number, and a change of access that is under way.
    fn copy(
        &mut self,
        queue: Option<QueueId>,
        far: Vec<Far>,
        call: &'static str,
    ) -> (u64, Option<(Far, &'static str)>) {
        let mut queued = std::mem::take(&mut self.access.queued);
        queued.retain(|_, (mark, _)| !self.is_over(mark));
        if let Some(queue) = queue {
            let number = self.lines.get(&queue).map_or(0, |line| line.number);
            let mark = Mark { queue, number, call };
            queued.extend(far.iter().map(|one| ((one.domain, one.devices, queue), (mark, *one))));
        }
        let access = &mut self.access;
        access.queued = queued;
        let met = far.iter().find_map(|one| {
            let is_of_it = |change: &Change| change.domain == one.domain;
            let (_, call) = access.changing.values().find(|(changes, _)| changes.iter().any(is_of_it))?;
            Some((*one, *call))
        });
        access.last += 1;
        access.copying.insert(access.last, far);
        (access.last, met)
    }

    /// Enters a call that changes access. Returns the entry's number, and a copy that is being queued, or that may still run
    /// from or to a device that loses access.
    fn change(&mut self, changes: Vec<Change>, call: &'static str) -> (u64, Option<(Far, &'static str)>) {
        let Access { copying, queued, .. } = &self.access;
        let is_met = |far: &Far| changes.iter().any(|change| change.domain == far.domain);
        let is_taken = |far: &Far| {
            let mut changes = changes.iter().filter(|change| change.domain == far.domain);
            changes.any(|change| change.taken.iter().any(|device| far.devices.contains(device)))
        };
        let inside =
            copying.values().flatten().find(|far| is_met(far)).map(|far| (*far, "a copy that is being queued"));
        let behind = || queued.values().find(|(mark, far)| is_taken(far) && !self.is_over(mark));
        let met = inside.or_else(|| behind().map(|(mark, far)| (*far, mark.call)));
        self.access.last += 1;
        self.access.changing.insert(self.access.last, (changes, call));
        (self.access.last, met)
    }
}

/// A call that copies between devices or changes access. Dropping the value marks its end.
#[derive(Debug)]
#[must_use = "the call is inside only while this lives"]
pub(crate) struct Inside(Option<u64>);

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            with(|races| {
                races.access.copying.remove(&number);
                races.access.changing.remove(&number);
            });
        }
    }
}

fn report(call: &'static str, met: Option<(Far, &'static str)>) {
    if let Some((far, other)) = met {
        report_after(Misuse::AccessChange, call, far.address, Some(far.block), Some(other));
    }
}

/// Begins the call of a copy. Its work is the last one of `queue`, or done inside of the call.
pub(crate) fn copy(queue: Option<QueueId>, call: &'static str, far: impl FnOnce() -> Vec<Far>) -> Inside {
    let far = if is_on() { far() } else { Vec::new() };
    if far.is_empty() {
        return Inside(None);
    }
    let Some((number, met)) = with(|races| races.copy(queue, far, call)) else { return Inside(None) };
    report(call, met);
    thread::yield_now();
    Inside(Some(number))
}

/// Begins a call that changes access to memory of other devices.
pub(crate) fn change(call: &'static str, changes: impl FnOnce() -> Vec<Change>) -> Inside {
    let changes = if is_on() { changes() } else { Vec::new() };
    if changes.is_empty() {
        return Inside(None);
    }
    let Some((number, met)) = with(|races| races.change(changes, call)) else { return Inside(None) };
    report(call, met);
    thread::sleep(CHANGE_TAKES);
    Inside(Some(number))
}
