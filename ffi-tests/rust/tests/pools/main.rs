//! Pools: allocation, order of streams, threads, memory by address.

mod addresses;
mod addresses_left;
mod allocation;
mod in_place;
mod no_membarrier;
mod observed;
mod order;
mod rings;
mod sleep;
mod threads;
mod torch;
