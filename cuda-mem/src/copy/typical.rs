//! Measured figures of one machine, by which engines choose unless they are given others. docs/measurements describes
//! their origin.

use super::method::{CopyMethod, DeviceSide, Direction, HostSide, Route};
use super::profile::{MethodProfile, RouteProfile, Sample};

const SIZES: [usize; 8] = [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20];

type Figures = (CopyMethod, [f64; 8]);

/// Microseconds for each size.
const TO_MAPPED: [Figures; 4] = [
    (CopyMethod::Cpu { threads: 1 }, [0.14, 0.31, 3.5, 14.3, 59.0, 240.0, 1100.0, 26_000.0]),
    (CopyMethod::Cpu { threads: 2 }, [3.0, 3.1, 3.8, 8.7, 32.0, 125.0, 508.0, 13_600.0]),
    (CopyMethod::Cpu { threads: 4 }, [5.0, 5.0, 5.2, 8.8, 32.5, 124.0, 502.0, 8000.0]),
    (CopyMethod::Mixed { storing: 2, staging: 6 }, [7.0, 8.2, 16.1, 35.0, 45.0, 114.0, 415.0, 5760.0]),
];
const FROM_MAPPED: [Figures; 2] = [
    (CopyMethod::Cpu { threads: 1 }, [1.02, 4.1, 70.0, 280.0, 1120.0, 4480.0, 17_900.0, 286_000.0]),
    (CopyMethod::Cpu { threads: 4 }, [5.0, 5.8, 28.0, 91.0, 320.0, 1280.0, 5120.0, 82_000.0]),
];
const PINNED: [Figures; 1] = [(CopyMethod::Driver, [6.5, 7.1, 8.6, 12.2, 26.5, 83.5, 311.0, 4850.0])];
const PAGEABLE_TO: [Figures; 4] = [
    (CopyMethod::Driver, [6.4, 7.0, 15.7, 26.2, 80.0, 268.0, 1000.0, 33_000.0]),
    (CopyMethod::Staged { threads: 1 }, [7.1, 7.7, 14.8, 28.3, 73.6, 284.0, 1040.0, 28_000.0]),
    (CopyMethod::Staged { threads: 4 }, [7.1, 7.8, 16.5, 29.0, 45.8, 125.0, 412.0, 8500.0]),
    (CopyMethod::Staged { threads: 8 }, [7.1, 7.7, 16.8, 28.1, 45.4, 125.0, 430.0, 5940.0]),
];
const PAGEABLE_FROM: [Figures; 4] = [
    (CopyMethod::Driver, [7.3, 7.8, 14.0, 31.0, 100.0, 310.0, 1080.0, 16_000.0]),
    (CopyMethod::Staged { threads: 1 }, [7.3, 7.6, 12.3, 27.0, 105.0, 300.0, 1060.0, 17_000.0]),
    (CopyMethod::Staged { threads: 4 }, [7.4, 7.6, 14.2, 26.3, 67.0, 190.0, 368.0, 5170.0]),
    (CopyMethod::Staged { threads: 8 }, [7.4, 7.6, 14.0, 24.8, 65.0, 187.0, 400.0, 6500.0]),
];

/// The figures of one route.
pub(super) fn route(route: Route) -> RouteProfile {
    let mut known: Vec<Figures> = Vec::new();
    known.extend(match (route.host, route.direction) {
        (HostSide::Pinned, _) => &PINNED[..],
        (HostSide::Pageable, Direction::ToDevice) => &PAGEABLE_TO[..],
        (HostSide::Pageable, Direction::FromDevice) => &PAGEABLE_FROM[..],
    });
    if route.device == DeviceSide::Mapped {
        known.extend(match route.direction {
            Direction::ToDevice => &TO_MAPPED[..],
            Direction::FromDevice => &FROM_MAPPED[..],
        });
    }
    let methods = known.into_iter().filter(|(method, _)| method.serves(route)).map(|(method, times)| {
        let sample = |(bytes, time): (usize, f64)| Sample { bytes, nanoseconds: time * 1000.0 };
        MethodProfile { method, samples: SIZES.into_iter().zip(times).map(sample).collect() }
    });
    RouteProfile { route, methods: methods.collect() }
}
