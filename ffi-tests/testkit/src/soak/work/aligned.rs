//! Elements that need a larger alignment than a page.

use crate::soak::{Done, Hands};
use bytemuck::{Pod, Zeroable};
use cuda_mem::adaptor::Aligned;
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::memory::kind::Pinned;
use cuda_mem::memory::{PinnedMemory, VirtualMemory, VirtualOptions};
use cuda_mem::{Buffer, Context, Error, HostBuffer};

/// An element of 64 KiB.
#[derive(Clone, Copy)]
#[repr(C, align(65536))]
struct Wide([u64; 8192]);

// SAFETY: the struct consists of integers, and zero is a value of each.
unsafe impl Zeroable for Wide {}
// SAFETY: integers fill the struct without padding, and any bits are a value.
unsafe impl Pod for Wide {}

fn is_aligned(address: u64) -> bool {
    address.is_multiple_of(align_of::<Wide>() as u64)
}

/// Page-locked memory with that alignment. The driver aligns only to pages.
fn pinned(context: &Context) -> Result<Aligned<Pinned>, Error> {
    Aligned::new(&PinnedMemory::new(context), align_of::<Wide>())
}

/// Uses elements in memory of any source.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (stream, context) = (hands.stream()?, &hands.world.context);
    let count = 1 + hands.below(3);
    let value = Wide([hands.number(); 8192]);
    match hands.below(4) {
        0 => {
            hands.doing("wide elements of any source");
            let source = hands.source();
            let made = Buffer::<Wide, _>::zeroed(&source.resource, count, &stream);
            let mut buffer = match made {
                // A source refuses alignments that it lacks.
                Err(
                    Error::Misaligned { .. }
                    | Error::Alignment { .. }
                    | Error::InvalidArgument { .. }
                    | Error::OutOfRange { .. },
                ) => {
                    return Ok(());
                }
                made => made?,
            };
            hands.ensure(is_aligned(buffer.device_pointer()), || {
                format!("{}: wide elements at {:#x}", source.name, buffer.device_pointer())
            })?;
            let mut halves = buffer.split_at(count / 2).map_err(|refused| refused.error)?;
            halves.1.copy_from_slice(0, &[value])?;
            let seen = halves.1.to_vec()?;
            hands.ensure(seen[0].0 == value.0 && seen[1..].iter().all(|rest| rest.0 == [0; 8192]), || {
                format!("{}: wide elements", source.name)
            })?;
            buffer = halves.0;
            drop(buffer);
            Ok(())
        }
        1 => {
            hands.doing("wide elements as a slice");
            let mut host = HostBuffer::<Wide>::zeroed(&pinned(context)?, count)?;
            host[count - 1] = value;
            let mut buffer = host.into_buffer(&stream)?;
            if count > 1 {
                buffer.copy_within(count - 1..count, 0)?;
            }
            let seen = buffer.to_vec()?;
            hands.ensure(seen[0].0 == value.0, || "wide elements as a slice".to_owned())
        }
        2 => {
            hands.doing("wide elements under a guard");
            let mut buffer = Buffer::<Wide, _>::zeroed(&pinned(context)?, count, &stream)?;
            buffer.write(count - 1..)?.fill(value);
            buffer.copy_from_slice(0, &vec![value; count - 1])?;
            let seen = buffer.read(..)?;
            hands.ensure(seen.iter().all(|element| element.0 == value.0), || "wide elements under a guard".to_owned())
        }
        _ => {
            hands.doing("wide elements that grow");
            let memory = VirtualMemory::new(context, &VirtualOptions::default())?;
            let mut buffer = GrowableBuffer::<Wide>::with_capacity(&memory, count, &stream)?;
            let mut length = 0;
            for _ in 0..3 {
                length += 1 + hands.below(40);
                buffer.grow_to(length).map(drop)?;
                hands.ensure(is_aligned(buffer.device_pointer()), || "wide elements that grew".to_owned())?;
                buffer.copy_from_slice(length - 1, &[value])?;
            }
            let seen = buffer.to_vec()?;
            hands.ensure(seen[length - 1].0 == value.0, || "wide elements that grew".to_owned())
        }
    }
}
