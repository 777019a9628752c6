//! Buffers for the copies of a copy engine.

use super::{Access, Buffer};
use crate::copy_memory::{Memory, Place, sealed};
use crate::host_copy;
use crate::resource::Kind;
use crate::{Result, Stream};

impl<T, K: Kind, A: Access> sealed::Side<T> for Buffer<T, K, A> {
    fn place(&self, call: &'static str, offset: usize, count: usize) -> Result<Place<'_>> {
        let range = self.span(call, offset, count)?;
        let host = self.host_address();
        let accessibility = self.accessibility();
        let memory = if accessibility.managed {
            Memory::Managed
        } else if host.is_null() || !accessibility.host {
            Memory::Device
        } else if self.resource().is_some_and(|resource| resource.is_on_device()) {
            if self.is_coherent() { Memory::Mapped } else { Memory::NonCoherent }
        } else {
            Memory::Host
        };
        Ok(Place {
            context: self.context(),
            device: self.address(range.start),
            host: if host.is_null() { host.cast() } else { host.wrapping_add(range.start).cast() },
            size: range.len() * size_of::<T>(),
            memory,
            home: Some(self.stream()),
        })
    }

    #[inline]
    fn settle(&self) -> Result<()> {
        Buffer::settle(self)
    }

    fn begin_device_work(&self) {
        self.mark_busy();
    }

    fn store(&self, place: &Place<'_>, source: &[u8]) -> Result<()> {
        self.hand_over(place)?;
        let length = source.len().min(place.size);
        // SAFETY: the place lies within the buffer, whose memory the CPU may address; the caller's slice does not
        // overlap it.
        unsafe { host_copy::store(source.as_ptr(), place.host, length) };
        Ok(())
    }

    fn load(&self, place: &Place<'_>, destination: &mut [u8]) -> Result<()> {
        self.hand_over(place)?;
        let length = destination.len().min(place.size);
        // SAFETY: as above; the device work is done. No slices of the memory exist, which others may also access.
        unsafe { host_copy::load(place.host, destination.as_mut_ptr(), length) };
        Ok(())
    }

    fn flush(&self, place: &Place<'_>) -> Result<()> {
        self.flush_bytes(place.host, place.size)
    }

    fn hand_over(&self, place: &Place<'_>) -> Result<()> {
        match self.resource() {
            // SAFETY: the engine has exclusive access, or the memory is shared and nobody has a reference to it.
            Some(resource) if place.size > 0 => unsafe { resource.invalidate(place.host, place.size) },
            _ => Ok(()),
        }
    }
}

impl<T, K: Kind, A: Access> sealed::Ordered for Buffer<T, K, A> {
    fn order_before(&self, stream: &Stream) -> Result<()> {
        stream.follow(self.stream())
    }

    fn order_after(&mut self, stream: &Stream) -> Result<()> {
        let ordered = self.stream().follow_work(stream);
        self.mark_busy();
        ordered
    }

    fn is_idle(&self) -> Result<bool> {
        self.stream().is_done()
    }
}
