//! Where memory comes from and what owns it: sources, adaptors around them, and buffers.

mod adaptors;
mod bad_requests;
mod buffers;
mod driver_calls;
mod elements;
mod forgotten_values;
mod growable_buffers;
mod guarded;
mod host_memory_of_devices;
mod mapped_buffers;
mod metrics;
mod resources;
mod sources;
mod virtual_memory;
