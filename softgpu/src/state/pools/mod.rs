//! Pools: what they have handed out, who may use it, and which pool is a place's current one.

mod place_pools;
mod places;
mod pool;

pub(crate) use place_pools::{PlacePools, Spot, forget};
pub(crate) use pool::{Attribute, Place, Pool, Share, Shared};
