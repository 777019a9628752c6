//! The steps of a copy between two layouts, with as few calls of a driver as possible. Nothing here calls a driver.

use crate::Numbers;
use crate::pattern::{Pattern, Strides};
use smallvec::SmallVec;

/// Rows of fewer bytes are packed before they cross between host and device, because each row costs a transaction.
const NARROW: u64 = 64;
/// At most this many runs are sent one by one instead of packed, if each has at least `LONG` bytes.
const FEW: u64 = 8;
/// See [`FEW`].
const LONG: u64 = 1 << 16;
/// The CPU reorders up to this many bytes faster than a kernel starts.
const CHEAP: u64 = 1 << 16;
/// The largest pitch that drivers accept.
const MOST_PITCH: u64 = i32::MAX as u64;

/// Which processors can address a side of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Only the CPU.
    Host,
    /// Every device, and the CPU.
    Everyone,
    /// One device.
    Device(i32),
}

/// A side of the copy.
#[derive(Clone, Debug)]
pub struct Side {
    /// The positions of the elements.
    pub strides: Strides,
    /// The processors that can address them.
    pub reached: Reached,
    /// Whether the CPU can address it.
    pub on_host: bool,
}

/// Memory that a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Temporary host memory.
    HostTemporary,
    /// Temporary memory of the source's device.
    SourceTemporary,
    /// Temporary memory of the destination's device.
    DestinationTemporary,
}

/// How a step copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the CPU.
    Processor,
    /// One driver copy of a single run.
    Run,
    /// One driver copy between devices.
    Peer,
    /// One driver copy of rows.
    Rows,
    /// One driver copy of rows of planes.
    Planes,
    /// A batch of driver copies.
    Runs,
    /// A kernel.
    Kernel,
}

/// A step of a copy.
#[derive(Clone, Debug)]
pub struct Step {
    /// How it copies.
    pub how: How,
    /// The memory that it writes.
    pub to: Place,
    /// The memory that it reads.
    pub from: Place,
    /// The bytes that it copies.
    pub pattern: Pattern,
}

/// The steps of a copy: at most three. `kernels` says whether devices can run a kernel that copies patterns.
pub fn plan(shape: &[i64], item_size: usize, to: &Side, from: &Side, kernels: bool) -> Vec<Step> {
    let Some(whole) = Pattern::simplest(shape, item_size, &to.strides, &from.strides) else { return vec![] };
    let copy = Planner { shape, item_size, to, from, kernels };
    match (to.reached, from.reached) {
        (Reached::Host, Reached::Host) => vec![step(How::Processor, Place::Destination, Place::Source, whole)],
        (Reached::Device(here), Reached::Device(there)) if here != there => copy.across_devices(whole),
        (Reached::Host, _) => copy.download(whole),
        (_, Reached::Host) => copy.upload(whole),
        _ => vec![step(copy.on_device(&whole), Place::Destination, Place::Source, whole)],
    }
}

/// The size of temporary memory in bytes; `None` if no step uses it.
pub fn size_of_temporary(steps: &[Step], place: Place) -> Option<usize> {
    steps.iter().find(|step| step.to == place).map(|step| step.pattern.bytes() as usize)
}

fn step(how: How, to: Place, from: Place, pattern: Pattern) -> Step {
    Step { how, to, from, pattern }
}

/// A copy for which a plan is made.
struct Planner<'a> {
    shape: &'a [i64],
    item_size: usize,
    to: &'a Side,
    from: &'a Side,
    kernels: bool,
}

/// A dense layout for temporary memory. Elements that the source repeats occur once.
struct PackedLayout {
    strides: Strides,
    /// The copy's shape, with extent 1 for axes that the source repeats.
    shape: Numbers,
}

impl Planner<'_> {
    /// How a device copies if it can address both sides.
    fn on_device(&self, pattern: &Pattern) -> How {
        match by_the_driver(pattern) {
            Some(How::Run) => How::Run,
            _ if self.kernels => How::Kernel,
            Some(how) => how,
            None => How::Runs,
        }
    }

    /// How to copy in one step between a host and a device that cannot address each other's memory; `None` if the
    /// elements should be packed first.
    fn across(&self, pattern: &Pattern) -> Option<How> {
        match by_the_driver(pattern) {
            Some(How::Run) => Some(How::Run),
            Some(how) if pattern.width >= NARROW => Some(how),
            _ if pattern.runs() <= FEW && pattern.width >= LONG => Some(How::Runs),
            _ => None,
        }
    }

    /// Whether a kernel would reorder the elements faster than the CPU.
    fn is_for_the_device(&self, whole: &Pattern) -> bool {
        self.kernels && whole.bytes() > CHEAP
    }

    fn upload(&self, whole: Pattern) -> Vec<Step> {
        use Place::{Destination, DestinationTemporary, HostTemporary, Source};
        if let Some(how) = self.across(&whole) {
            return vec![step(how, Destination, Source, whole)];
        }
        let between = self.between(&self.to.strides);
        let (Some(packed), Some(unpacked)) = (self.pack(&between), self.unpack(&between)) else { return vec![] };
        // A source that is dense on the host needs no packing.
        let as_it_is = self.between(&self.from.strides);
        let dense = self.pack(&as_it_is).filter(Pattern::is_run).zip(self.unpack(&as_it_is));
        let across = self.across(&unpacked);
        if let Some(how) = across
            && !(dense.is_some() && self.is_for_the_device(&whole))
        {
            let (packs, sends) = (How::Processor, how);
            return vec![step(packs, HostTemporary, Source, packed), step(sends, Destination, HostTemporary, unpacked)];
        }
        // Otherwise the device unpacks.
        if let Some((sent, unpacked)) = dense {
            return vec![
                step(How::Run, DestinationTemporary, Source, sent),
                step(self.on_device(&unpacked), Destination, DestinationTemporary, unpacked),
            ];
        }
        let sent = Pattern { to: 0, from: 0, width: packed.bytes(), axes: SmallVec::new() };
        vec![
            step(How::Processor, HostTemporary, Source, packed),
            step(How::Run, DestinationTemporary, HostTemporary, sent),
            step(self.on_device(&unpacked), Destination, DestinationTemporary, unpacked),
        ]
    }

    fn download(&self, whole: Pattern) -> Vec<Step> {
        use Place::{Destination, HostTemporary, Source, SourceTemporary};
        if let Some(how) = self.across(&whole) {
            return vec![step(how, Destination, Source, whole)];
        }
        let between = self.between(&self.from.strides);
        let (Some(packed), Some(unpacked)) = (self.pack(&between), self.unpack(&between)) else { return vec![] };
        // A destination that is dense on the host can receive the bytes in their final order.
        let as_it_will_be = self.between(&self.to.strides);
        let dense = self.pack(&as_it_will_be).zip(self.unpack(&as_it_will_be).filter(Pattern::is_run));
        let across = self.across(&packed);
        if let Some(how) = across
            && !(dense.is_some() && self.is_for_the_device(&whole))
        {
            return vec![
                step(how, HostTemporary, Source, packed),
                step(How::Processor, Destination, HostTemporary, unpacked),
            ];
        }
        // Otherwise the device packs.
        if let Some((packed, sent)) = dense {
            return vec![
                step(self.on_device(&packed), SourceTemporary, Source, packed),
                step(How::Run, Destination, SourceTemporary, sent),
            ];
        }
        let sent = Pattern { to: 0, from: 0, width: packed.bytes(), axes: SmallVec::new() };
        vec![
            step(self.on_device(&packed), SourceTemporary, Source, packed),
            step(How::Run, HostTemporary, SourceTemporary, sent),
            step(How::Processor, Destination, HostTemporary, unpacked),
        ]
    }

    fn across_devices(&self, whole: Pattern) -> Vec<Step> {
        use Place::{Destination, DestinationTemporary, Source, SourceTemporary};
        if whole.is_run() {
            return vec![step(How::Peer, Destination, Source, whole)];
        }
        let between = self.between(&self.from.strides);
        let (Some(packed), Some(unpacked)) = (self.pack(&between), self.unpack(&between)) else { return vec![] };
        let mut sent = Pattern { to: 0, from: 0, width: packed.bytes(), axes: SmallVec::new() };
        let (packs, unpacks) = (!packed.is_run(), !unpacked.is_run());
        let mut steps = vec![];
        let source = if packs { SourceTemporary } else { Source };
        let destination = if unpacks { DestinationTemporary } else { Destination };
        (sent.from, sent.to) = (if packs { 0 } else { packed.from }, if unpacks { 0 } else { unpacked.to });
        if packs {
            steps.push(step(self.on_device(&packed), SourceTemporary, Source, packed));
        }
        steps.push(step(How::Peer, destination, source, sent));
        if unpacks {
            steps.push(step(self.on_device(&unpacked), Destination, DestinationTemporary, unpacked));
        }
        steps
    }

    /// A dense layout with the axes in the order of a side's strides.
    fn between(&self, side: &Strides) -> PackedLayout {
        let once = |axis: usize| if self.from.strides.strides[axis] == 0 { 1 } else { self.shape[axis] };
        let shape: Numbers = (0..self.shape.len()).map(once).collect();
        let mut axes: SmallVec<[usize; 6]> = (0..shape.len()).collect();
        axes.sort_by_key(|&axis| side.strides[axis].unsigned_abs());
        let (mut offset, mut strides): (i64, Numbers) = (0, SmallVec::from_elem(0, shape.len()));
        let mut next = self.item_size as i64;
        for axis in axes {
            let extent = shape[axis];
            if extent == 1 {
                continue;
            }
            strides[axis] = next;
            if side.strides[axis] < 0 {
                // Keeps the side's direction, so that a dense side that runs backwards is a single run too.
                strides[axis] = -next;
                offset += (extent - 1) * next;
            }
            next *= extent;
        }
        PackedLayout { strides: Strides { offset, strides }, shape }
    }

    fn pack(&self, between: &PackedLayout) -> Option<Pattern> {
        Pattern::simplest(&between.shape, self.item_size, &between.strides, &self.from.strides)
    }

    fn unpack(&self, between: &PackedLayout) -> Option<Pattern> {
        Pattern::simplest(self.shape, self.item_size, &self.to.strides, &between.strides)
    }
}

/// How the driver copies a pattern in one call; `None` if it has no such call.
fn by_the_driver(pattern: &Pattern) -> Option<How> {
    let fits = |pitch: u64| pitch <= MOST_PITCH;
    if pattern.is_run() {
        return Some(How::Run);
    }
    if let Some((to, from)) = pattern.rows() {
        return (fits(to) && fits(from)).then_some(How::Rows);
    }
    let [to, from] = pattern.planes()?;
    (fits(to.pitch) && fits(from.pitch)).then_some(How::Planes)
}
