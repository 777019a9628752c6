//! The names of things: routes that bytes take, and ways in which a route is gone.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    FromDevice,
}

/// What the memory on the host's side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostSide {
    /// Memory of the heap, the stack or a file, which the operating system may move.
    Pageable,
    /// Page-locked memory: allocated by the driver, or registered with it.
    Pinned,
}

/// What the memory on the device's side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceSide {
    /// Device memory that the CPU addresses too.
    Mapped,
    /// Device memory that it does not address.
    Plain,
}

/// What a copy connects. There are eight, and each has its own best ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// Which way the bytes go.
    pub direction: Direction,
    /// The host's side.
    pub host: HostSide,
    /// The device's side.
    pub device: DeviceSide,
}

impl Route {
    /// All of them.
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

    /// The place in [`ALL`](Self::ALL).
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

/// How a copy is done. Threads count the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Way {
    /// By streaming stores or loads of the CPU, of so many threads. Mapped memory, and memory of the host, only.
    Cpu {
        /// How many threads.
        threads: u8,
    },
    /// By one copy of the driver: direct where the host's memory is page-locked, else through the driver's own staging.
    Driver,
    /// By the device's copy engine from or to page-locked staging of this library, which so many threads fill or empty
    /// meanwhile.
    Staged {
        /// How many threads.
        threads: u8,
    },
    /// Some threads store, and others fill staging for the device's copy engine. To mapped memory only.
    Mixed {
        /// How many threads store.
        storing: u8,
        /// How many threads fill staging.
        staging: u8,
    },
    /// The host's pages are locked for the time of the copy, which is direct. Dear for one copy: whoever uses the memory
    /// again keeps it registered ([`RegisteredMemory`](crate::memory::RegisteredMemory)).
    Registered,
}

impl Way {
    /// How many threads it takes, the caller's own included.
    pub fn threads(self) -> usize {
        match self {
            Way::Cpu { threads } | Way::Staged { threads } => usize::from(threads.max(1)),
            Way::Mixed { storing, staging } => usize::from(storing) + usize::from(staging),
            Way::Driver | Way::Registered => 1,
        }
    }

    /// Whether copies of this route can be done so.
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

    /// The ways of a route that `threads` threads can go, the caller's own included.
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
