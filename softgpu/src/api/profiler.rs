//! Profiling. softgpu has no profiler, so the calls do nothing, as in a driver that no profiler observes.

use crate::call::driver_calls;
use crate::state::Global;
use crate::state::contexts::current;

driver_calls! {
    |global: &'static Global|

    /// Starts profiling.
    fn cuProfilerStart[Started]() {
        current(global).map(drop)
    }

    /// Stops profiling.
    fn cuProfilerStop[Started]() {
        current(global).map(drop)
    }
}
