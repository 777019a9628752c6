//! Descriptors: how a process describes shared memory or events to another.

mod block;
mod file;
mod key;
mod process;

use crate::{Context, Device, Error, Result, Uuid};
use core::ffi::c_char;
use core::fmt;

pub use crate::error::{DescriptorError, ExportKind, MAX_FILE_DESCRIPTORS, PoolId};
pub use block::BlockExport;
pub(crate) use file::{Sameness, adopt, compare, duplicate, length};
pub(crate) use key::{Key, Tag};
pub(crate) use process::random;

impl ExportKind {
    const ALL: [(u16, Self); 6] = [
        (1, Self::Pool),
        (2, Self::PoolMemory),
        (3, Self::DeviceMemory),
        (4, Self::Mapped),
        (5, Self::Event),
        (6, Self::VirtualMemory),
    ];

    fn number(self) -> u16 {
        match self {
            Self::Pool => 1,
            Self::PoolMemory => 2,
            Self::DeviceMemory => 3,
            Self::Mapped => 4,
            Self::Event => 5,
            Self::VirtualMemory => 6,
        }
    }

    fn is_memory(self) -> bool {
        matches!(self, Self::PoolMemory | Self::DeviceMemory | Self::Mapped | Self::VirtualMemory)
    }
}

/// Identifies a process, also among later ones with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// The system's number of the process.
    pub number: u32,
    /// A random number that the process chose at its first export.
    pub nonce: u64,
}

/// The data that an import needs besides the file descriptors. The sender may have bugs or lie, so each import checks
/// the data as [`ipc`](crate::ipc#what-is-protected) describes, and reaches only memory that the driver gives for it.
/// Exports create descriptors; [`from_bytes`](Self::from_bytes) reads them.
///
/// Sizes and offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    pub(crate) kind: ExportKind,
    pub(crate) files: u32,
    pub(crate) device: Uuid,
    pub(crate) pool: PoolId,
    pub(crate) process: ProcessId,
    /// The allocation's number in the exporting process; 0 where the kind needs none.
    pub(crate) allocation: u64,
    pub(crate) size: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// The driver's handle.
    pub(crate) payload: [u8; 64],
    /// The pool's signature; zeros unless the kind is memory of a pool.
    pub(crate) tag: Tag,
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("kind", &self.kind)
            .field("device", &self.device)
            .field("process", &self.process.number)
            .field("size", &self.size)
            .field("offset", &self.offset)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

const MAGIC: [u8; 8] = *b"cmShared";
const VERSION: u16 = 1;
/// The offset of the checksum, which covers all bytes before it.
const SUM_AT: usize = 176;
/// The offset of the NUMA node in a payload without a handle. The word before it tells whether there is one.
const NODE_AT: usize = 36;

impl Descriptor {
    /// The size of the form to send, in bytes.
    pub const SIZE: usize = SUM_AT + 8;

    /// A descriptor of this process.
    pub(crate) fn new(kind: ExportKind, context: &Context) -> Result<Self> {
        Ok(Self {
            kind,
            files: *kind.file_descriptors().start() as u32,
            device: context.device().uuid()?,
            pool: PoolId::NONE,
            process: process::this()?,
            allocation: 0,
            size: 0,
            offset: 0,
            length: 0,
            payload: [0; 64],
            tag: Tag::NONE,
        })
    }

    /// What it describes.
    pub fn kind(&self) -> ExportKind {
        self.kind
    }

    /// The device of the memory or event.
    pub fn device(&self) -> Uuid {
        self.device
    }

    /// The pool; [`PoolId::NONE`] outside of pools.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// The process that exported it first.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// The size of the allocation.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the exported part begins in the allocation.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length of the exported part.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How many file descriptors travel with it.
    pub fn file_descriptors(&self) -> usize {
        self.files as usize
    }

    /// The form to send: little-endian, with magic word, version and checksum.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.kind.number().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.files.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.device.0);
        bytes[32..48].copy_from_slice(&self.pool.0);
        bytes[48..52].copy_from_slice(&self.process.number.to_le_bytes());
        let numbers = [self.process.nonce, self.allocation, self.size, self.offset, self.length];
        for (place, number) in bytes[56..96].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[96..160].copy_from_slice(&self.payload);
        bytes[160..SUM_AT].copy_from_slice(&self.tag.0);
        let sum = checksum(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the result of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// Too few or too many bytes; no descriptor; a later version; changed bytes. An accepted descriptor's part always
    /// lies within its allocation.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let length = bytes.len();
        if length < 10 {
            return Err(DescriptorError::Truncated { length, size: Self::SIZE });
        }
        let found = array(bytes, 0);
        if found != MAGIC {
            return Err(DescriptorError::Magic { found, expected: MAGIC });
        }
        match u16::from_le_bytes(array(bytes, 8)) {
            VERSION => {}
            version if version > VERSION => return Err(DescriptorError::NewerVersion { version, newest: VERSION }),
            version => return Err(DescriptorError::UnknownVersion { version }),
        }
        if length < Self::SIZE {
            return Err(DescriptorError::Truncated { length, size: Self::SIZE });
        }
        if length > Self::SIZE {
            return Err(DescriptorError::Oversized { length, size: Self::SIZE });
        }
        let number = |at| u64::from_le_bytes(array(bytes, at));
        let word = |at| u32::from_le_bytes(array(bytes, at));
        let (found, computed) = (number(SUM_AT), checksum(&bytes[..SUM_AT]));
        if found != computed {
            return Err(DescriptorError::Checksum { found, computed });
        }
        let kind_number = u16::from_le_bytes(array(bytes, 10));
        let Some((_, kind)) = ExportKind::ALL.into_iter().find(|(number, _)| *number == kind_number) else {
            return Err(DescriptorError::UnknownKind { number: kind_number });
        };
        if !kind.file_descriptors().contains(&(word(12) as usize)) {
            return Err(DescriptorError::FileDescriptors { kind, count: word(12) });
        }
        if word(52) != 0 {
            return Err(DescriptorError::Reserved { found: word(52) });
        }
        let descriptor = Self {
            kind,
            files: word(12),
            device: Uuid(array(bytes, 16)),
            pool: PoolId(array(bytes, 32)),
            process: ProcessId { number: word(48), nonce: number(56) },
            allocation: number(64),
            size: number(72),
            offset: number(80),
            length: number(88),
            payload: array(bytes, 96),
            tag: Tag(array(bytes, 160)),
        };
        descriptor.check()?;
        Ok(descriptor)
    }

    /// Checks what needs no driver: the size is possible, and the part lies within the allocation.
    pub(crate) fn check(&self) -> Result<(), DescriptorError> {
        let Self { kind, offset, length, size, .. } = *self;
        let largest = if kind.is_memory() { isize::MAX as u64 } else { 0 };
        if size > largest || (kind == ExportKind::Mapped && size == 0) {
            return Err(DescriptorError::Size { kind, size });
        }
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(DescriptorError::Range { offset, length, size }),
        }
    }

    /// Checks the kind and the device for a call.
    pub(crate) fn expect(&self, call: &'static str, expected: ExportKind, context: &Context) -> Result<()> {
        match self.holder(call, expected, context)? {
            None => Ok(()),
            Some(_) => Err(self.wrong_device(call, context.device().uuid()?)),
        }
    }

    /// The device that holds the memory, if it is not the context's. Checks the rest as [`expect`](Self::expect).
    pub(crate) fn holder(&self, call: &'static str, expected: ExportKind, context: &Context) -> Result<Option<Device>> {
        if self.kind != expected {
            return Err(DescriptorError::WrongKind { call, found: self.kind, expected }.into());
        }
        self.check()?;
        let own = context.device().uuid()?;
        if self.device == own {
            return Ok(None);
        }
        for device in context.driver().devices()? {
            if device.uuid()? == self.device {
                return Ok(Some(device));
            }
        }
        Err(self.wrong_device(call, own))
    }

    pub(crate) fn wrong_device(&self, call: &'static str, expected: Uuid) -> Error {
        DescriptorError::WrongDevice { call, found: self.device, expected }.into()
    }

    /// The host's NUMA node of a pool or of virtual memory; `None` where it lies on a device.
    pub(crate) fn numa_node(&self) -> Option<i32> {
        (self.payload[NODE_AT - 4] != 0).then(|| i32::from_le_bytes(array(&self.payload, NODE_AT)))
    }

    /// Sets the NUMA node of a pool or of virtual memory. Their payload has room, because their handle is a file.
    pub(crate) fn set_numa_node(&mut self, node: Option<i32>) {
        self.payload[NODE_AT - 4] = u8::from(node.is_some());
        self.payload[NODE_AT..NODE_AT + 4].copy_from_slice(&node.unwrap_or(0).to_le_bytes());
    }

    /// Whether the descriptor names this process as its exporter. Anybody can write that, so it may only lead to a
    /// refusal.
    pub(crate) fn claims_own(&self) -> Result<bool> {
        Ok(self.process == process::this()?)
    }

    /// Checks that the driver gave no fewer bytes than the descriptor names.
    pub(crate) fn check_extent(&self, call: &'static str, extent: usize) -> Result<()> {
        let extent = extent as u64;
        if self.size > extent {
            return Err(Error::Descriptor(DescriptorError::TooLarge { call, size: self.size, extent }));
        }
        Ok(())
    }
}

/// The driver's handles consist of C's char.
pub(crate) fn to_driver(bytes: [u8; 64]) -> [c_char; 64] {
    bytes.map(|byte| c_char::from_ne_bytes([byte]))
}

pub(crate) fn from_driver(bytes: [c_char; 64]) -> [u8; 64] {
    bytes.map(|byte| byte.to_ne_bytes()[0])
}

/// `N` bytes of a slice that is long enough.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|index| bytes[at + index])
}

/// Detects accidents; signatures and the driver's checks stop forgers. FNV-1a: each byte changes the sum.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DESCRIPTOR: Descriptor = Descriptor {
        kind: ExportKind::PoolMemory,
        files: 0,
        device: Uuid([7; 16]),
        pool: PoolId([9; 16]),
        process: ProcessId { number: 1234, nonce: 0x0123_4567_89ab_cdef },
        allocation: 3,
        size: 4096,
        offset: 1024,
        length: 512,
        payload: [0xa5; 64],
        tag: Tag([3; 16]),
    };

    /// The bytes with some replaced, and a matching checksum.
    fn forged(at: usize, with: &[u8]) -> [u8; Descriptor::SIZE] {
        let mut bytes = DESCRIPTOR.to_bytes();
        bytes[at..at + with.len()].copy_from_slice(with);
        let sum = checksum(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn arbitrary() -> impl Strategy<Value = Descriptor> {
        let numbers = (any::<u32>(), any::<u64>(), any::<u64>(), 1..=isize::MAX as u64, any::<u64>(), any::<u64>());
        (0..6_usize, any::<[u8; 16]>(), any::<[u8; 16]>(), numbers, any::<[u8; 32]>()).prop_map(
            |(kind, device, pool, (number, nonce, allocation, size, a, b), half)| {
                let kind = ExportKind::ALL[kind].1;
                let size = if kind.is_memory() { size } else { 0 };
                let offset = a % (size + 1);
                let length = b % (size - offset + 1);
                let payload = core::array::from_fn(|index| half[index / 2]);
                let process = ProcessId { number, nonce };
                let files = *kind.file_descriptors().end() as u32;
                let (device, pool, tag) = (Uuid(device), PoolId(pool), Tag(array(&half, 16)));
                Descriptor { kind, files, device, pool, process, allocation, size, offset, length, payload, tag }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_descriptor_survives_the_way(descriptor in arbitrary()) {
            prop_assert_eq!(Descriptor::from_bytes(&descriptor.to_bytes()), Ok(descriptor));
        }

        #[test]
        fn any_bytes_are_refused_or_stay_inside(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Descriptor::from_bytes(&bytes).is_err());
        }

        #[test]
        fn a_forged_one_is_refused_or_stays_inside(
            descriptor in arbitrary(), at in 0..SUM_AT, byte in any::<u8>(), more in 0..SUM_AT, value in any::<u8>(),
        ) {
            let mut bytes = descriptor.to_bytes();
            (bytes[at], bytes[more]) = (byte, value);
            let sum = checksum(&bytes[..SUM_AT]);
            bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(read) = Descriptor::from_bytes(&bytes) {
                prop_assert!(u128::from(read.offset) + u128::from(read.length) <= u128::from(read.size));
                prop_assert!(read.size <= isize::MAX as u64);
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_change_of_any_byte_is_refused() {
        let good = DESCRIPTOR.to_bytes();
        let changes: &[u8] = if cfg!(miri) { &[1] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 255] };
        for at in 0..good.len() {
            for change in changes {
                let mut bytes = good;
                bytes[at] ^= change;
                assert!(Descriptor::from_bytes(&bytes).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn each_way_to_be_wrong_has_its_own_error() {
        use DescriptorError as Wrong;
        let (good, read) = (DESCRIPTOR.to_bytes(), |bytes: &[u8]| Descriptor::from_bytes(bytes));
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), Err(Wrong::Truncated { length, size: 184 }));
        }
        assert_eq!(read(&[&good[..], &[0]].concat()), Err(Wrong::Oversized { length: 185, size: 184 }));
        assert_eq!(read(&[b'x'; Descriptor::SIZE]), Err(Wrong::Magic { found: [b'x'; 8], expected: MAGIC }));
        assert_eq!(read(&forged(8, &[2, 0])), Err(Wrong::NewerVersion { version: 2, newest: 1 }));
        assert_eq!(read(&forged(8, &[2, 0])[..20]), Err(Wrong::NewerVersion { version: 2, newest: 1 }));
        assert_eq!(read(&forged(8, &[0, 0])), Err(Wrong::UnknownVersion { version: 0 }));
        let mut changed = good;
        changed[100] ^= 1;
        assert!(matches!(read(&changed), Err(Wrong::Checksum { .. })));
        assert_eq!(read(&forged(10, &[7, 0])), Err(Wrong::UnknownKind { number: 7 }));
        let kind = ExportKind::PoolMemory;
        assert_eq!(read(&forged(12, &[1])), Err(Wrong::FileDescriptors { kind, count: 1 }));
        assert_eq!(read(&forged(52, &[1])), Err(Wrong::Reserved { found: 1 }));
        let (offset, length, size) = (4000, 512, 4096);
        assert_eq!(read(&forged(80, &4000_u64.to_le_bytes())), Err(Wrong::Range { offset, length, size }));
        let length = u64::MAX;
        assert_eq!(read(&forged(88, &[0xff; 8])), Err(Wrong::Range { offset: 1024, length, size }));
        assert_eq!(read(&forged(72, &[0xff; 8])), Err(Wrong::Size { kind, size: u64::MAX }));
        let texts = [&good[..3], &forged(8, &[2, 0])].map(|bytes| read(bytes).unwrap_err().to_string());
        assert!(texts[0].contains("3 bytes instead of 184") && texts[1].contains("version 2"), "{texts:?}");
    }
}
