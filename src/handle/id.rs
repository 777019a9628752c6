//! The 64 bits of a handle: the slot's index, the kind, and the generation. Pure.

/// The kind of object that a handle names. The numbers are part of the interface: programs may print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Text = 1,
    Context = 2,
    Stream = 3,
    Event = 4,
    Resource = 5,
    Buffer = 6,
    Mapped = 7,
    Engine = 8,
    View = 9,
    ArrowSchema = 10,
    ArrowArray = 11,
    ArrowStream = 12,
    Signals = 13,
    Flag = 14,
    Counter = 15,
    Ring = 16,
    PendingRead = 17,
    Graph = 18,
    Executable = 19,
    Physical = 20,
    Export = 21,
    Channel = 22,
    Listener = 23,
    FrameRing = 24,
    Frame = 25,
}

impl Kind {
    const ALL: [Kind; 25] = [
        Kind::Text,
        Kind::Context,
        Kind::Stream,
        Kind::Event,
        Kind::Resource,
        Kind::Buffer,
        Kind::Mapped,
        Kind::Engine,
        Kind::View,
        Kind::ArrowSchema,
        Kind::ArrowArray,
        Kind::ArrowStream,
        Kind::Signals,
        Kind::Flag,
        Kind::Counter,
        Kind::Ring,
        Kind::PendingRead,
        Kind::Graph,
        Kind::Executable,
        Kind::Physical,
        Kind::Export,
        Kind::Channel,
        Kind::Listener,
        Kind::FrameRing,
        Kind::Frame,
    ];

    /// The kind's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Context => "a context",
            Kind::Stream => "a stream",
            Kind::Event => "an event",
            Kind::Resource => "a memory resource",
            Kind::Buffer => "a buffer",
            Kind::Mapped => "mapped memory",
            Kind::Engine => "a copy engine",
            Kind::View => "a view",
            Kind::ArrowSchema => "an Arrow schema",
            Kind::ArrowArray => "an Arrow array",
            Kind::ArrowStream => "a stream of Arrow arrays",
            Kind::Signals => "the memory of signals",
            Kind::Flag => "a flag",
            Kind::Counter => "a counter",
            Kind::Ring => "a ring",
            Kind::PendingRead => "a pending read",
            Kind::Graph => "a graph",
            Kind::Executable => "an executable graph",
            Kind::Physical => "physical memory",
            Kind::Export => "an export",
            Kind::Channel => "a channel",
            Kind::Listener => "a listener",
            Kind::FrameRing => "a ring of frames",
            Kind::Frame => "a frame",
        }
    }
}

const INDEX_BITS: u32 = 27;
const KIND_BITS: u32 = 5;

/// One more than the largest number that a kind can have.
pub const KINDS: usize = 1 << KIND_BITS;

/// How many slots a kind may have.
pub const CAPACITY: u32 = 1 << INDEX_BITS;

/// A handle's parts. The generation is at least 1, so that no handle is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    pub index: u32,
    pub kind: Kind,
    pub generation: u32,
}

impl Id {
    #[inline]
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.kind as u8) << INDEX_BITS | u64::from(self.index)
    }

    /// The slot's index and the generation of a handle of one kind; `None` for any other number.
    #[inline]
    pub fn of_kind(bits: u64, kind: Kind) -> Option<(u32, u32)> {
        let same = (bits as u32) >> INDEX_BITS == kind as u32;
        same.then_some((bits as u32 & (CAPACITY - 1), (bits >> 32) as u32))
    }

    /// The parts of a number that could be a handle.
    pub fn unpack(bits: u64) -> Option<Self> {
        let number = bits as u32 >> INDEX_BITS;
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == number)?;
        let (index, generation) = Self::of_kind(bits, kind)?;
        (generation != 0).then_some(Self { index, kind, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_handle_is_what_it_was_made_of_and_never_null(index in 0..CAPACITY, generation in 1u32.., kind in 0..Kind::ALL.len()) {
            let id = Id { index, kind: Kind::ALL[kind], generation };
            prop_assert_ne!(id.pack(), 0);
            prop_assert_eq!(Id::unpack(id.pack()), Some(id));
            for other in Kind::ALL {
                let expected = (other == id.kind).then_some((index, generation));
                prop_assert_eq!(Id::of_kind(id.pack(), other), expected);
            }
        }

        #[test]
        fn a_number_is_a_handle_or_none_and_a_handle_has_one_number(bits: u64) {
            if let Some(id) = Id::unpack(bits) {
                prop_assert_eq!(id.pack(), bits);
            }
        }
    }
}
