//! Figures of one machine, for as long as a machine's own are not known: docs/measurements says where they come from.

use super::profile::{RouteProfile, Sample, WayProfile};
use super::way::{DeviceMemory, Direction, HostMemory, Route, Way};

const SIZES: [usize; 8] = [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20];

type Figures = (Way, [f64; 8]);

/// Microseconds for each size.
const TO_MAPPED: [Figures; 3] = [
    (Way::Cpu { threads: 1 }, [0.11, 0.31, 3.6, 13.5, 57.0, 230.0, 1080.0, 28_300.0]),
    (Way::Cpu { threads: 2 }, [0.6, 0.8, 2.4, 8.0, 30.7, 122.0, 500.0, 13_500.0]),
    (Way::Cpu { threads: 4 }, [0.9, 1.1, 2.8, 8.2, 31.0, 124.0, 500.0, 8060.0]),
];
const FROM_MAPPED: [Figures; 2] = [
    (Way::Cpu { threads: 1 }, [0.97, 3.97, 67.0, 268.0, 1087.0, 4350.0, 17_400.0, 278_000.0]),
    (Way::Cpu { threads: 4 }, [1.5, 3.6, 22.0, 84.0, 335.0, 1340.0, 5360.0, 85_800.0]),
];
const PINNED: [Figures; 1] = [(Way::Driver, [6.9, 7.5, 9.2, 12.7, 26.5, 83.0, 312.0, 4870.0])];
const PAGEABLE_TO: [Figures; 4] = [
    (Way::Driver, [6.2, 6.9, 17.1, 26.9, 88.6, 340.0, 1238.0, 40_400.0]),
    (Way::Staged { threads: 1 }, [8.0, 8.6, 12.5, 27.0, 70.0, 260.0, 1100.0, 27_000.0]),
    (Way::Staged { threads: 4 }, [9.0, 9.6, 13.5, 24.0, 45.0, 130.0, 480.0, 9000.0]),
    (Way::Staged { threads: 8 }, [10.0, 10.6, 14.5, 25.0, 43.0, 115.0, 400.0, 6800.0]),
];
const PAGEABLE_FROM: [Figures; 4] = [
    (Way::Driver, [8.6, 8.2, 15.0, 32.0, 104.0, 400.0, 1600.0, 26_000.0]),
    (Way::Staged { threads: 1 }, [8.0, 8.4, 12.0, 24.0, 62.0, 240.0, 1000.0, 24_000.0]),
    (Way::Staged { threads: 4 }, [9.0, 9.4, 13.0, 22.0, 42.0, 125.0, 480.0, 9500.0]),
    (Way::Staged { threads: 8 }, [10.0, 10.4, 14.0, 23.0, 42.0, 115.0, 420.0, 8000.0]),
];

/// What is known of a route.
pub(super) fn route(route: Route) -> RouteProfile {
    let mut known: Vec<Figures> = Vec::new();
    known.extend(match (route.host, route.direction) {
        (HostMemory::Pinned, _) => &PINNED[..],
        (HostMemory::Pageable, Direction::ToDevice) => &PAGEABLE_TO[..],
        (HostMemory::Pageable, Direction::FromDevice) => &PAGEABLE_FROM[..],
    });
    if route.device == DeviceMemory::Mapped {
        known.extend(match route.direction {
            Direction::ToDevice => &TO_MAPPED[..],
            Direction::FromDevice => &FROM_MAPPED[..],
        });
    }
    let ways = known.into_iter().map(|(way, times)| {
        let sample = |(bytes, time): (usize, f64)| Sample { bytes, nanoseconds: time * 1000.0 };
        WayProfile { way, samples: SIZES.into_iter().zip(times).map(sample).collect() }
    });
    RouteProfile { route, ways: ways.collect() }
}
