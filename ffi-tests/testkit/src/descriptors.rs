//! Descriptors with changed bytes.

use core::hash::Hasher;
use cuda_mem::ipc::{Descriptor, DescriptorError};
use siphasher::sip128::{Hasher128, SipHasher24};

/// Changes bytes of a descriptor and recomputes its checksum, as an attacker can.
///
/// # Errors
///
/// The bytes are no longer a descriptor.
pub fn forged(descriptor: &Descriptor, at: usize, bytes: &[u8]) -> Result<Descriptor, DescriptorError> {
    let mut all = descriptor.to_bytes();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    checked(all)
}

/// Reads bytes after it has set the right checksum.
///
/// # Errors
///
/// The bytes are not a descriptor.
pub fn checked(mut all: [u8; Descriptor::SIZE]) -> Result<Descriptor, DescriptorError> {
    let (body, sum) = all.split_at_mut(Descriptor::SIZE - 8);
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    sum.copy_from_slice(&body.iter().fold(0xcbf2_9ce4_8422_2325, mix).to_le_bytes());
    Descriptor::from_bytes(&all)
}

/// The same descriptor with one byte changed.
///
/// # Errors
///
/// As [`forged`].
pub fn flipped(descriptor: &Descriptor, at: usize) -> Result<Descriptor, DescriptorError> {
    forged(descriptor, at, &[descriptor.to_bytes()[at] ^ 0x10])
}

/// The same descriptor for another part.
///
/// # Errors
///
/// As [`forged`].
pub fn part(descriptor: &Descriptor, offset: u64, length: u64) -> Result<Descriptor, DescriptorError> {
    forged(descriptor, at::OFFSET, &[offset.to_le_bytes(), length.to_le_bytes()].concat())
}

/// Signs a descriptor again. Every process that received the pool can do that, because the pool's export contains the
/// key.
///
/// # Panics
///
/// Never: a descriptor with another tag is still a descriptor.
pub fn signed(descriptor: &Descriptor, pool: &Descriptor) -> Descriptor {
    let mut bytes = descriptor.to_bytes();
    bytes[at::TAG..at::TAG + 16].fill(0);
    let read = |bytes| checked(bytes).expect("a descriptor with another tag is one");
    let key = core::array::from_fn(|index| pool.to_bytes()[at::PAYLOAD + index]);
    let mut hasher = SipHasher24::new_with_key(&key);
    hasher.write(&read(bytes).to_bytes());
    bytes[at::TAG..at::TAG + 16].copy_from_slice(&hasher.finish128().as_bytes());
    read(bytes)
}

/// The positions of the fields in a descriptor's bytes.
pub mod at {
    /// The kind's number.
    pub const KIND: usize = 10;
    /// The number of files that belong to it.
    pub const FILES: usize = 12;
    /// The device.
    pub const DEVICE: usize = 16;
    /// The pool.
    pub const POOL: usize = 32;
    /// The process number.
    pub const PROCESS: usize = 48;
    /// The process's random number.
    pub const NONCE: usize = 56;
    /// The number of the allocation.
    pub const NUMBER: usize = 64;
    /// The allocation's size.
    pub const SIZE: usize = 72;
    /// The offset of the part.
    pub const OFFSET: usize = 80;
    /// The length of the part.
    pub const LENGTH: usize = 88;
    /// The driver's handle.
    pub const PAYLOAD: usize = 96;
    /// The signature.
    pub const TAG: usize = 160;
}
