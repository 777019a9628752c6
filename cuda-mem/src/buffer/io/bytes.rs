//! The buffers of bytes, owned or borrowed, that readers and writers use.

use crate::Buffer;
use crate::buffer::Access;
use crate::memory::resource::Kind;
use std::sync::Arc;

/// A [`Buffer`] of bytes, or a type that owns or borrows such a buffer.
pub trait ByteBuffer {
    /// The kind of its memory.
    type Kind: Kind;
    /// Whether the buffer is exclusive or shared.
    type Access: Access;

    /// The buffer. Every call returns the same buffer.
    fn buffer(&self) -> &Buffer<u8, Self::Kind, Self::Access>;
}

/// A writable [`Buffer`] of bytes, or a type that owns or mutably borrows such a buffer.
pub trait ByteBufferMut: ByteBuffer {
    /// The buffer. Every call returns the same buffer.
    fn buffer_mut(&mut self) -> &mut Buffer<u8, Self::Kind, Self::Access>;
}

impl<K: Kind, A: Access> ByteBuffer for Buffer<u8, K, A> {
    type Kind = K;
    type Access = A;

    fn buffer(&self) -> &Buffer<u8, K, A> {
        self
    }
}

impl<K: Kind, A: Access> ByteBufferMut for Buffer<u8, K, A> {
    fn buffer_mut(&mut self) -> &mut Buffer<u8, K, A> {
        self
    }
}

macro_rules! forward {
    ($($holder:ty),*) => { $(
        impl<B: ByteBuffer + ?Sized> ByteBuffer for $holder {
            type Kind = B::Kind;
            type Access = B::Access;

            fn buffer(&self) -> &Buffer<u8, B::Kind, B::Access> {
                (**self).buffer()
            }
        }
    )* };
}
forward!(&B, &mut B, Box<B>, Arc<B>);

impl<B: ByteBufferMut + ?Sized> ByteBufferMut for &mut B {
    fn buffer_mut(&mut self) -> &mut Buffer<u8, B::Kind, B::Access> {
        (**self).buffer_mut()
    }
}

impl<B: ByteBufferMut + ?Sized> ByteBufferMut for Box<B> {
    fn buffer_mut(&mut self) -> &mut Buffer<u8, B::Kind, B::Access> {
        (**self).buffer_mut()
    }
}
