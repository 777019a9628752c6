//! Names of the routes that bytes take, and of the methods to copy over a route.

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

/// What a copy connects. There are eight routes, and each has its own fastest methods.
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
pub enum CopyMethod {
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

impl CopyMethod {
    /// How many threads the method uses, the calling thread included.
    pub fn threads(self) -> usize {
        match self {
            CopyMethod::Cpu { threads } | CopyMethod::Staged { threads } => usize::from(threads.max(1)),
            CopyMethod::Mixed { storing, staging } => usize::from(storing) + usize::from(staging),
            CopyMethod::Driver | CopyMethod::Registered => 1,
        }
    }

    /// Whether the method can copy over this route.
    pub fn serves(self, route: Route) -> bool {
        match self {
            CopyMethod::Driver => true,
            CopyMethod::Cpu { threads } => threads > 0 && route.device == DeviceSide::Mapped,
            CopyMethod::Staged { threads } => threads > 0 && route.host == HostSide::Pageable,
            CopyMethod::Registered => route.host == HostSide::Pageable,
            CopyMethod::Mixed { storing, staging } => {
                storing > 0
                    && staging > 0
                    && route.direction == Direction::ToDevice
                    && route.host == HostSide::Pageable
                    && route.device == DeviceSide::Mapped
            }
        }
    }

    /// The methods of a route that need at most `threads` threads, the calling thread included.
    pub fn all(route: Route, threads: usize) -> Vec<Self> {
        let counts = || [1u8, 2, 4, 8, 16].into_iter().filter(|count| usize::from(*count) <= threads.max(1));
        let mut methods = vec![CopyMethod::Driver, CopyMethod::Registered];
        methods.extend(counts().map(|threads| CopyMethod::Cpu { threads }));
        methods.extend(counts().map(|threads| CopyMethod::Staged { threads }));
        for (storing, staging) in [(1, 1), (1, 3), (1, 7), (2, 6), (2, 14)] {
            if usize::from(storing + staging) <= threads {
                methods.push(CopyMethod::Mixed { storing, staging });
            }
        }
        methods.retain(|method| method.serves(route));
        methods
    }
}

impl fmt::Display for CopyMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyMethod::Cpu { threads: 1 } => f.write_str("CPU, 1 thread"),
            CopyMethod::Cpu { threads } => write!(f, "CPU, {threads} threads"),
            CopyMethod::Driver => f.write_str("driver"),
            CopyMethod::Staged { threads: 1 } => f.write_str("staged, 1 thread"),
            CopyMethod::Staged { threads } => write!(f, "staged, {threads} threads"),
            CopyMethod::Mixed { storing, staging } => write!(f, "mixed, {storing}+{staging} threads"),
            CopyMethod::Registered => f.write_str("registered"),
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
    fn every_route_has_the_methods_that_serve_it_and_the_driver_always() {
        for route in Route::ALL {
            for threads in [0, 1, 2, 8, 64] {
                let methods = CopyMethod::all(route, threads);
                assert!(methods.contains(&CopyMethod::Driver));
                assert!(
                    methods.iter().all(|method| method.serves(route) && method.threads() <= threads.max(1)),
                    "{route}: {methods:?}"
                );
                assert_eq!(methods.contains(&CopyMethod::Cpu { threads: 1 }), route.device == DeviceSide::Mapped);
                assert_eq!(methods.contains(&CopyMethod::Staged { threads: 1 }), route.host == HostSide::Pageable);
            }
        }
        let pinned = Route { direction: Direction::ToDevice, host: HostSide::Pinned, device: DeviceSide::Mapped };
        assert!(!CopyMethod::Mixed { storing: 1, staging: 1 }.serves(pinned) && !CopyMethod::Registered.serves(pinned));
        assert!(!CopyMethod::Cpu { threads: 0 }.serves(pinned));
    }
}
