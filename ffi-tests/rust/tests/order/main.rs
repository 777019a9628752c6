//! What runs after what: streams, events, captures of others, waits of the CPU.

mod borrows;
mod device_waits;
mod foreign_captures;
mod forgotten_guards;
mod futures;
mod handover;
mod memory_order;
mod orders;
mod short_lived_streams;
mod slow_waits;
mod waits;
mod watched_waits;
