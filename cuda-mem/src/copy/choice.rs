//! Precomputed choice of a method: a profile turned into tables of sizes.

use super::method::{CopyMethod, DeviceSide, Direction, HostSide, Route};
use super::profile::MachineProfile;

/// For each route, methods with the largest size for which each is chosen.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub profile: MachineProfile,
    routes: [Vec<(usize, CopyMethod)>; 8],
}

/// Sizes for which the choice is precomputed, in bytes: four per power of two.
fn sizes() -> impl Iterator<Item = usize> {
    let quarters = |power: u32| (4..8).map(move |quarter| (1usize << power) / 4 * quarter);
    (2..=36).flat_map(quarters)
}

impl Choice {
    /// Makes the tables for at most `threads` threads, the calling thread included. [`CopyMethod::Registered`] is never
    /// chosen: locking pages fails if any of them is locked already, by any owner.
    pub fn new(profile: MachineProfile, threads: usize) -> Self {
        let mut routes: [Vec<(usize, CopyMethod)>; 8] = Default::default();
        let mut usable = profile.clone();
        for known in &mut usable.routes {
            known.methods.retain(|known| known.method != CopyMethod::Registered);
        }
        for (route, table) in Route::ALL.iter().zip(&mut routes) {
            for size in sizes() {
                let method = usable.choose(*route, size, threads);
                match table.last_mut() {
                    Some((upto, last)) if *last == method => *upto = size,
                    _ => table.push((size, method)),
                }
            }
        }
        Self { profile, routes }
    }

    /// The method for a size.
    pub fn method(&self, route: Route, size: usize) -> CopyMethod {
        let table = &self.routes[route.index()];
        let place = table.partition_point(|(upto, _)| *upto < size);
        table.get(place).or(table.last()).map_or(CopyMethod::Driver, |(_, method)| *method)
    }

    /// The largest size for which one thread's stores or loads are the method to access mapped memory, for any host
    /// memory.
    pub fn single_thread_upto(&self, direction: Direction) -> usize {
        let upto = |host| {
            let table = &self.routes[Route { direction, host, device: DeviceSide::Mapped }.index()];
            match table.first() {
                Some((upto, CopyMethod::Cpu { threads: 1 })) => *upto,
                _ => 0,
            }
        };
        upto(HostSide::Pageable).min(upto(HostSide::Pinned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg_attr(miri, ignore = "safe code, with more steps than Miri has time for")]
    fn small_mapped_copies_use_one_cpu_thread_in_both_directions() {
        let choice = Choice::new(MachineProfile::typical(), 8);
        assert!(choice.single_thread_upto(Direction::ToDevice) >= 4096);
        assert!(choice.single_thread_upto(Direction::FromDevice) >= 1024);
        let none = Choice::new(MachineProfile::empty(), 8);
        assert_eq!(none.single_thread_upto(Direction::ToDevice), 0);
        assert_eq!(none.method(Route::ALL[0], 5), CopyMethod::Driver);
    }

    proptest! {
        /// Between two sizes of a table the method may be a neighbour's, but it never costs much more.
        #[test]
        #[cfg_attr(miri, ignore = "safe code, with more steps than Miri has time for")]
        fn the_table_gives_nearly_what_the_profile_would(size in 1usize..1 << 32, route in 0usize..8, threads in 1usize..10) {
            let (profile, route) = (MachineProfile::typical(), Route::ALL[route]);
            let chosen = Choice::new(profile.clone(), threads).method(route, size);
            let best = profile.estimate(route, profile.choose(route, size, threads), size).unwrap();
            let taken = profile.estimate(route, chosen, size).unwrap();
            prop_assert!(taken <= best * 1.2, "{route}, {size} bytes: {chosen} takes {taken}, the best {best}");
        }
    }
}
