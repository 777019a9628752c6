//! Times of copies on a machine: the figures that decide the method of a copy.

use super::method::{CopyMethod, Route};

/// A method counts as equally fast if it takes at most this many times the best time.
const NEAR: f64 = 1.05;

/// The measured time of a copy of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct Sample {
    /// The size in bytes.
    pub bytes: usize,
    /// The time in nanoseconds.
    pub nanoseconds: f64,
}

/// Times of one way on a route, in ascending order of size.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct MethodProfile {
    /// The method.
    pub method: CopyMethod,
    /// The figures.
    pub samples: Vec<Sample>,
}

/// Times of the methods on a route.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct RouteProfile {
    /// The route.
    pub route: Route,
    /// The measured methods.
    pub methods: Vec<MethodProfile>,
}

/// Times of copies on one machine with one device. `cuda-mem bench copy --json` measures one (its `profile`). With the
/// feature `json`, serde reads it, and [`CopyEngine::set_profile`](super::CopyEngine::set_profile) uses it.
///
/// ```
/// use cuda_mem::copy::{DeviceSide, Direction, HostSide, MachineProfile, Route, CopyMethod};
/// let profile = MachineProfile::typical();
/// let route = Route { direction: Direction::ToDevice, host: HostSide::Pageable, device: DeviceSide::Mapped };
/// assert_eq!(profile.choose(route, 64, 8), CopyMethod::Cpu { threads: 1 }); // a store takes 0.1 us
/// assert_ne!(profile.choose(route, 1 << 28, 8), CopyMethod::Cpu { threads: 1 });
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MachineProfile {
    /// The version of the format: [`MachineProfile::FORMAT`].
    pub format: u32,
    /// The machine and device, in words.
    pub machine: String,
    /// The measured figures.
    pub routes: Vec<RouteProfile>,
}

impl MachineProfile {
    /// The format that this version reads and writes.
    pub const FORMAT: u32 = 1;

    /// A profile without figures.
    pub fn empty() -> Self {
        Self { format: Self::FORMAT, machine: String::new(), routes: vec![] }
    }

    /// Rounded figures of one NVIDIA H200 over PCIe Gen5, which engines use by default. On an H100 the method that they
    /// choose is within 10% of the best in 204 of 209 cases.
    pub fn typical() -> Self {
        let mut profile = Self { machine: "typical (NVIDIA H200, PCIe Gen5)".into(), ..Self::empty() };
        profile.routes = Route::ALL.iter().map(|route| super::typical::route(*route)).collect();
        profile
    }

    /// The figures of a route, if it was measured.
    pub fn route(&self, route: Route) -> Option<&RouteProfile> {
        self.routes.iter().find(|known| known.route == route)
    }

    /// Adds figures of a route, and replaces its earlier figures.
    pub fn set_route(&mut self, measured: RouteProfile) {
        self.routes.retain(|known| known.route != measured.route);
        self.routes.push(measured);
        self.routes.sort_by_key(|known| known.route);
    }

    /// The time of a copy, in nanoseconds; `None` if the method was not measured on that route.
    pub fn estimate(&self, route: Route, method: CopyMethod, bytes: usize) -> Option<f64> {
        let methods = &self.route(route)?.methods;
        methods.iter().find(|known| known.method == method)?.estimate(bytes)
    }

    /// The fastest method to copy `bytes` bytes with at most `threads` threads, the calling thread included. Of the
    /// methods within 5% of the fastest, it takes that with the fewest threads. For an unknown route it takes the
    /// driver.
    pub fn choose(&self, route: Route, bytes: usize, threads: usize) -> CopyMethod {
        self.route(route).map_or(CopyMethod::Driver, |known| known.choose(bytes, threads))
    }

    /// Whether every figure makes sense: times above zero, sizes in ascending order, methods that serve their routes. A
    /// file may contain anything.
    pub fn is_valid(&self) -> bool {
        let sample = |sample: &Sample| sample.nanoseconds.is_finite() && sample.nanoseconds > 0.0 && sample.bytes > 0;
        let grows = |samples: &[Sample]| samples.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
        self.format == Self::FORMAT
            && self.routes.windows(2).all(|pair| pair[0].route < pair[1].route)
            && self.routes.iter().all(|known| {
                known.methods.iter().all(|method| {
                    method.method.serves(known.route) && method.samples.iter().all(sample) && grows(&method.samples)
                })
            })
    }
}

impl RouteProfile {
    /// The fastest method on this route to copy `bytes` bytes with at most `threads` threads, the calling thread
    /// included. Of the methods within 5% of the fastest, it takes that with the fewest threads.
    pub fn choose(&self, bytes: usize, threads: usize) -> CopyMethod {
        let usable = || self.methods.iter().filter(|known| known.method.threads() <= threads.max(1));
        // A method that was measured only at larger sizes is not assumed to be good at small ones.
        let measured = |known: &&MethodProfile| known.samples.first().is_some_and(|first| first.bytes <= bytes.max(64));
        let known = if usable().any(|known| measured(&known)) {
            usable().filter(measured).collect()
        } else {
            Vec::from_iter(usable())
        };
        let timed = known.into_iter().filter_map(|known| Some((known.method, known.estimate(bytes)?)));
        let timed: Vec<(CopyMethod, f64)> = timed.collect();
        let best = timed.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        // Above the measured sizes, more threads tend to pay off more: caches are full by then.
        let measured = self.methods.iter().filter_map(|known| known.samples.last()).any(|last| bytes <= last.bytes);
        let near_enough = if measured { NEAR } else { 1.0 };
        // Threads have a cost, and figures are never exact. Time breaks ties, so that the same profile always gives the
        // same choice.
        let near = timed.into_iter().filter(|(_, time)| *time <= best * near_enough);
        let chosen =
            near.min_by(|left, right| left.0.threads().cmp(&right.0.threads()).then(left.1.total_cmp(&right.1)));
        chosen.map_or(CopyMethod::Driver, |(method, _)| method)
    }
}

impl MethodProfile {
    /// The time of a copy, in nanoseconds, interpolated between the two nearest sizes. Below the smallest size the time
    /// stays constant; above the largest the rate stays constant.
    pub fn estimate(&self, bytes: usize) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        if bytes <= first.bytes {
            return Some(first.nanoseconds);
        }
        if bytes >= last.bytes {
            return Some(last.nanoseconds * (bytes as f64 / last.bytes as f64));
        }
        let above = self.samples.partition_point(|sample| sample.bytes < bytes);
        let (low, high) = (self.samples[above - 1], self.samples[above]);
        let part = (bytes - low.bytes) as f64 / (high.bytes - low.bytes) as f64;
        Some(low.nanoseconds + part * (high.nanoseconds - low.nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::{DeviceSide, Direction, HostSide};
    use super::*;
    use proptest::prelude::*;

    const ROUTE: Route = Route { direction: Direction::ToDevice, host: HostSide::Pageable, device: DeviceSide::Mapped };

    fn method(method: CopyMethod, samples: &[(usize, f64)]) -> MethodProfile {
        let samples = samples.iter().map(|(bytes, nanoseconds)| Sample { bytes: *bytes, nanoseconds: *nanoseconds });
        MethodProfile { method, samples: samples.collect() }
    }

    fn profile() -> MachineProfile {
        let mut profile = MachineProfile::empty();
        let methods = vec![
            method(CopyMethod::Driver, &[(100, 1000.0), (1000, 1000.0), (10_000, 2000.0)]),
            method(CopyMethod::Cpu { threads: 1 }, &[(100, 100.0), (10_000, 10_000.0)]),
            method(CopyMethod::Cpu { threads: 2 }, &[(100, 500.0), (10_000, 5000.0)]),
        ];
        profile.set_route(RouteProfile { route: ROUTE, methods });
        profile
    }

    #[test]
    fn estimates_lie_on_lines_between_the_figures() {
        let profile = profile();
        let driver = |bytes| profile.estimate(ROUTE, CopyMethod::Driver, bytes).unwrap();
        assert_eq!((driver(0), driver(100), driver(550), driver(1000)), (1000.0, 1000.0, 1000.0, 1000.0));
        assert_eq!((driver(5500), driver(10_000), driver(20_000)), (1500.0, 2000.0, 4000.0));
        assert_eq!(profile.estimate(ROUTE, CopyMethod::Registered, 5), None);
        assert_eq!(method(CopyMethod::Driver, &[]).estimate(5), None);
    }

    #[test]
    fn the_fastest_method_is_chosen_among_those_that_the_threads_allow() {
        let profile = profile();
        assert_eq!(profile.choose(ROUTE, 0, 2), CopyMethod::Cpu { threads: 1 });
        assert_eq!(profile.choose(ROUTE, 1000, 2), CopyMethod::Cpu { threads: 2 });
        // Two threads take 863 ns, one thread takes 900 ns.
        assert_eq!(profile.choose(ROUTE, 900, 2), CopyMethod::Cpu { threads: 1 });
        assert_eq!(profile.choose(ROUTE, 900, 1), CopyMethod::Cpu { threads: 1 });
        assert_eq!(profile.choose(ROUTE, 900, 0), CopyMethod::Cpu { threads: 1 });
        assert_eq!(profile.choose(ROUTE, 5000, 2), CopyMethod::Driver);
        let elsewhere = Route { direction: Direction::FromDevice, ..ROUTE };
        assert_eq!(profile.choose(elsewhere, 1, 8), CopyMethod::Driver);
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code, with more steps than Miri has time for")]
    fn a_profile_is_the_same_after_a_file_and_nonsense_is_refused() {
        for profile in [MachineProfile::typical(), profile(), MachineProfile::empty()] {
            assert!(profile.is_valid());
            let text = serde_json::to_string(&profile).unwrap();
            assert_eq!(serde_json::from_str::<MachineProfile>(&text).unwrap(), profile);
        }
        let broken = |change: &dyn Fn(&mut MachineProfile)| {
            let mut profile = profile();
            change(&mut profile);
            !profile.is_valid()
        };
        assert!(broken(&|profile| profile.format = 2));
        assert!(broken(&|profile| profile.routes[0].methods[0].samples[1].nanoseconds = f64::NAN));
        assert!(broken(&|profile| profile.routes[0].methods[0].samples[1].nanoseconds = -1.0));
        assert!(broken(&|profile| profile.routes[0].methods[0].samples[1].bytes = 100));
        assert!(broken(&|profile| profile.routes[0].methods[0].samples[0].bytes = 0));
        assert!(broken(&|profile| profile.routes[0].methods[0].method = CopyMethod::Cpu { threads: 0 }));
        assert!(broken(&|profile| profile.routes.push(profile.routes[0].clone())));
    }

    #[test]
    fn typical_profile_covers_all_routes_and_prefers_fast_methods() {
        let profile = MachineProfile::typical();
        assert_eq!(profile.routes.len(), Route::ALL.len());
        for host in [HostSide::Pageable, HostSide::Pinned] {
            for direction in [Direction::ToDevice, Direction::FromDevice] {
                let route = Route { direction, host, device: DeviceSide::Mapped };
                assert_eq!(profile.choose(route, 256, 8), CopyMethod::Cpu { threads: 1 }, "{route}");
            }
            let route = Route { host, ..ROUTE };
            let large = profile.choose(route, 1 << 28, 8);
            assert!(
                matches!(large, CopyMethod::Driver | CopyMethod::Staged { .. } | CopyMethod::Mixed { .. }),
                "{route}: {large}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_choice_is_never_slower_than_another_method_by_much(bytes in 0usize..1 << 33, threads in 0usize..20, route in 0usize..8) {
            let (profile, route) = (MachineProfile::typical(), Route::ALL[route]);
            let chosen = profile.choose(route, bytes, threads);
            prop_assert!(chosen.threads() <= threads.max(1));
            let least = profile.estimate(route, chosen, bytes).unwrap();
            for known in &profile.route(route).unwrap().methods {
                if known.method.threads() <= threads.max(1) {
                    prop_assert!(known.estimate(bytes).unwrap() * NEAR >= least);
                }
            }
        }
    }
}
