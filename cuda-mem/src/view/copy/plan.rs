//! What a copy between two views takes: the fewest calls of the driver. Nothing here calls it.

use super::pattern::{Pattern, Strides};
use smallvec::SmallVec;

/// Rows that are narrower than this are not worth a transfer of rows between host and device: each costs a transaction.
const NARROW: u64 = 64;
/// So many runs, each so long, are sent one by one rather than packed.
const FEW: u64 = 8;
const LONG: u64 = 1 << 16;
/// So many bytes the CPU puts in order sooner than a kernel is launched for them.
const CHEAP: u64 = 1 << 16;
/// What drivers take as a pitch.
const MOST_PITCH: u64 = i32::MAX as u64;

/// Who addresses a side of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// The CPU alone.
    Host,
    /// Every device, and the CPU.
    Everyone,
    /// One device.
    Device(i32),
}

/// A side of the copy.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub strides: Strides,
    pub reached: Reached,
    /// Whether the CPU addresses it.
    pub on_host: bool,
}

/// Memory that a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Source,
    Destination,
    /// Temporary memory of the host.
    HostTemporary,
    /// Temporary memory of the device that has the source.
    SourceTemporary,
    /// Temporary memory of the device that has the destination.
    DestinationTemporary,
}

/// Who does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The CPU.
    Processor,
    /// One copy.
    Run,
    /// One copy between devices.
    Peer,
    /// One copy of rows.
    Rows,
    /// One copy of rows of planes.
    Planes,
    /// A batch of copies.
    Runs,
    /// A kernel.
    Kernel,
}

/// A step of a copy.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub how: How,
    pub to: Place,
    pub from: Place,
    pub pattern: Pattern,
}

/// The steps of a copy. `kernels` says whether devices take the built-in ones.
pub(super) fn plan(shape: &[i64], item_size: usize, to: &Side, from: &Side, kernels: bool) -> Vec<Step> {
    let Some(whole) = Pattern::simplest(shape, item_size, &to.strides, &from.strides) else { return vec![] };
    let copy = Copy { shape, item_size, to, from, kernels };
    match (to.reached, from.reached) {
        (Reached::Host, Reached::Host) => vec![step(How::Processor, Place::Destination, Place::Source, whole)],
        (Reached::Device(here), Reached::Device(there)) if here != there => copy.across_devices(whole),
        (Reached::Host, _) => copy.download(whole),
        (_, Reached::Host) => copy.upload(whole),
        _ => vec![step(copy.on_device(&whole), Place::Destination, Place::Source, whole)],
    }
}

/// How large a temporary memory has to be, in bytes; none where no step uses it.
pub(super) fn size_of_temporary(steps: &[Step], place: Place) -> Option<usize> {
    steps.iter().find(|step| step.to == place).map(|step| step.pattern.bytes() as usize)
}

fn step(how: How, to: Place, from: Place, pattern: Pattern) -> Step {
    Step { how, to, from, pattern }
}

struct Copy<'a> {
    shape: &'a [i64],
    item_size: usize,
    to: &'a Side,
    from: &'a Side,
    kernels: bool,
}

/// A dense layout on the way, in which elements that the source repeats stand once.
struct Between {
    strides: Strides,
    /// What is written to it.
    shape: SmallVec<[i64; 6]>,
}

impl Copy<'_> {
    /// How one device, which addresses both sides, copies.
    fn on_device(&self, pattern: &Pattern) -> How {
        match by_the_driver(pattern) {
            Some(How::Run) => How::Run,
            _ if self.kernels => How::Kernel,
            Some(how) => how,
            None => How::Runs,
        }
    }

    /// How a device and the host, of which neither addresses the other's memory, copy; none where the elements are to be
    /// packed first.
    fn across(&self, pattern: &Pattern) -> Option<How> {
        match by_the_driver(pattern) {
            Some(How::Run) => Some(How::Run),
            Some(how) if pattern.width >= NARROW => Some(how),
            _ if pattern.runs() <= FEW && pattern.width >= LONG => Some(How::Runs),
            _ => None,
        }
    }

    /// Whether a kernel changes the order sooner than the CPU.
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
        // What is dense on the host already can be sent as it is.
        let as_it_is = self.between(&self.from.strides);
        let dense = self.pack(&as_it_is).filter(Pattern::is_run).zip(self.unpack(&as_it_is));
        let across = self.across(&unpacked);
        if let Some(how) = across
            && !(dense.is_some() && self.is_for_the_device(&whole))
        {
            let (packs, sends) = (How::Processor, how);
            return vec![step(packs, HostTemporary, Source, packed), step(sends, Destination, HostTemporary, unpacked)];
        }
        // The device unpacks.
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
        // What is dense on the host can be put into its order before it is sent.
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
        // The device packs.
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

    /// A dense layout whose axes are in the order of a side's strides.
    fn between(&self, side: &Strides) -> Between {
        let once = |axis: usize| if self.from.strides.strides[axis] == 0 { 1 } else { self.shape[axis] };
        let shape: SmallVec<[i64; 6]> = (0..self.shape.len()).map(once).collect();
        let mut axes: SmallVec<[usize; 6]> = (0..shape.len()).collect();
        axes.sort_by_key(|&axis| side.strides[axis].unsigned_abs());
        let (mut offset, mut strides): (i64, SmallVec<[i64; 6]>) = (0, SmallVec::from_elem(0, shape.len()));
        let mut next = self.item_size as i64;
        for axis in axes {
            let extent = shape[axis];
            if extent == 1 {
                continue;
            }
            strides[axis] = next;
            if side.strides[axis] < 0 {
                // As the side goes, so that what is dense backwards is one run too.
                strides[axis] = -next;
                offset += (extent - 1) * next;
            }
            next *= extent;
        }
        Between { strides: Strides { offset, strides }, shape }
    }

    fn pack(&self, between: &Between) -> Option<Pattern> {
        Pattern::simplest(&between.shape, self.item_size, &between.strides, &self.from.strides)
    }

    fn unpack(&self, between: &Between) -> Option<Pattern> {
        Pattern::simplest(self.shape, self.item_size, &self.to.strides, &between.strides)
    }
}

/// How the driver copies a pattern in one call; none where it has no such call.
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
