//! Names of the routes that bytes take, and of the ways to copy over a route.

use core::fmt;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum Direction {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    FromDevice,
}

/// The type of memory on the host side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum HostSide {
    /// Memory of the heap, the stack or a file, which the operating system may move.
    Pageable,
    /// Page-locked memory: allocated by the driver, or registered with it.
    Pinned,
}

/// The type of memory on the device side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
pub enum DeviceSide {
    /// Device memory that the CPU can also address.
    Mapped,
    /// Device memory that the CPU cannot address.
    Plain,
}

/// What a copy connects. There are eight routes, and each has its own fastest ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct Route {
    /// The direction of the copy.
    pub direction: Direction,
    /// The host side.
    pub host: HostSide,
    /// The device side.
    pub device: DeviceSide,
}

impl Route {
    /// All routes.
    pub const ALL: [Self; 8] = {
        use {DeviceSide as D, Direction as W, HostSide as H};
        let mut all = [Route { direction: W::ToDevice, host: H::Pageable, device: D::Mapped }; 8];
        let mut index = 0;
        while index < 8 {
            all[index] = Route {
                direction: if index & 4 == 0 { W::ToDevice } else { W::FromDevice },
                host: if index & 2 == 0 { H::Pageable } else { H::Pinned },
                device: if index & 1 == 0 { D::Mapped } else { D::Plain },
            };
            index += 1;
        }
        all
    };

    /// The index in [`ALL`](Self::ALL).
    pub(crate) fn index(self) -> usize {
        (self.direction as usize) << 2 | (self.host as usize) << 1 | self.device as usize
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.host {
            HostSide::Pageable => "pageable",
            HostSide::Pinned => "pinned",
        };
        let device = match self.device {
            DeviceSide::Mapped => "mapped",
            DeviceSide::Plain => "device",
        };
        match self.direction {
            Direction::ToDevice => write!(f, "{host} to {device}"),
            Direction::FromDevice => write!(f, "{device} to {host}"),
        }
    }
}

/// A method of copying. Counts of threads include the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Way {
    /// The CPU makes streaming stores or loads. Only for mapped memory and host memory.
    Cpu {
        /// How many threads.
        threads: u8,
    },
    /// The driver makes one copy: directly if the host memory is page-locked, else through its own staging.
    Driver,
    /// The device's copy engine copies to or from page-locked staging of this library, while threads fill or empty the
    /// staging.
    Staged {
        /// How many threads.
        threads: u8,
    },
    /// Some threads store, and others fill staging for the device's copy engine. Only for copies to mapped memory.
    Mixed {
        /// How many threads store.
        storing: u8,
        /// How many threads fill staging.
        staging: u8,
    },
    /// The host's pages are locked during the copy, which is then direct. Too slow for a single copy: for repeated
    /// ones, keep the memory registered ([`RegisteredMemory`](crate::memory::RegisteredMemory)).
    Registered,
}

impl Way {
    /// How many threads the way uses, the calling thread included.
    pub fn threads(self) -> usize {
        match self {
            Way::Cpu { threads } | Way::Staged { threads } => usize::from(threads.max(1)),
            Way::Mixed { storing, staging } => usize::from(storing) + usize::from(staging),
            Way::Driver | Way::Registered => 1,
        }
    }

    /// Whether the way can copy over this route.
    pub fn serves(self, route: Route) -> bool {
        match self {
            Way::Driver => true,
            Way::Cpu { threads } => threads > 0 && route.device == DeviceSide::Mapped,
            Way::Staged { threads } => threads > 0 && route.host == HostSide::Pageable,
            Way::Registered => route.host == HostSide::Pageable,
            Way::Mixed { storing, staging } => {
                storing > 0
                    && staging > 0
                    && route.direction == Direction::ToDevice
                    && route.host == HostSide::Pageable
                    && route.device == DeviceSide::Mapped
            }
        }
    }

    /// The ways of a route that need at most `threads` threads, the calling thread included.
    pub fn all(route: Route, threads: usize) -> Vec<Self> {
        let counts = || [1u8, 2, 4, 8, 16].into_iter().filter(|count| usize::from(*count) <= threads.max(1));
        let mut ways = vec![Way::Driver, Way::Registered];
        ways.extend(counts().map(|threads| Way::Cpu { threads }));
        ways.extend(counts().map(|threads| Way::Staged { threads }));
        for (storing, staging) in [(1, 1), (1, 3), (1, 7), (2, 6), (2, 14)] {
            if usize::from(storing + staging) <= threads {
                ways.push(Way::Mixed { storing, staging });
            }
        }
        ways.retain(|way| way.serves(route));
        ways
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Cpu { threads: 1 } => f.write_str("CPU, 1 thread"),
            Way::Cpu { threads } => write!(f, "CPU, {threads} threads"),
            Way::Driver => f.write_str("driver"),
            Way::Staged { threads: 1 } => f.write_str("staged, 1 thread"),
            Way::Staged { threads } => write!(f, "staged, {threads} threads"),
            Way::Mixed { storing, staging } => write!(f, "mixed, {storing}+{staging} threads"),
            Way::Registered => f.write_str("registered"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_know_their_places() {
        for (index, route) in Route::ALL.into_iter().enumerate() {
            assert_eq!(route.index(), index, "{route}");
        }
        let route = Route { direction: Direction::FromDevice, host: HostSide::Pageable, device: DeviceSide::Plain };
        assert_eq!(route.to_string(), "device to pageable");
    }

    #[test]
    fn every_route_has_the_ways_that_serve_it_and_the_driver_always() {
        for route in Route::ALL {
            for threads in [0, 1, 2, 8, 64] {
                let ways = Way::all(route, threads);
                assert!(ways.contains(&Way::Driver));
                assert!(
                    ways.iter().all(|way| way.serves(route) && way.threads() <= threads.max(1)),
                    "{route}: {ways:?}"
                );
                assert_eq!(ways.contains(&Way::Cpu { threads: 1 }), route.device == DeviceSide::Mapped);
                assert_eq!(ways.contains(&Way::Staged { threads: 1 }), route.host == HostSide::Pageable);
            }
        }
        let pinned = Route { direction: Direction::ToDevice, host: HostSide::Pinned, device: DeviceSide::Mapped };
        assert!(!Way::Mixed { storing: 1, staging: 1 }.serves(pinned) && !Way::Registered.serves(pinned));
        assert!(!Way::Cpu { threads: 0 }.serves(pinned));
    }
}
