//! The figures of `bench copy`, as text and as JSON.

use super::Machine;
use crate::bytes;
use cuda_mem::copy::{CopyMethod, MachineProfile, MethodProfile, Route, RouteProfile, Sample};
use serde::Serialize;
use std::fmt::Write;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) profile: MachineProfile,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(machine: Machine, rows: Vec<Row>) -> Self {
        Self { profile: profile(machine.headline(), &rows), machine, rows }
    }
}

/// What was measured, in the form that engines take.
fn profile(machine: String, rows: &[Row]) -> MachineProfile {
    let mut profile = MachineProfile::empty();
    profile.machine = machine;
    for row in rows {
        let known = profile.route(row.route).cloned();
        let mut known = known.unwrap_or(RouteProfile { route: row.route, methods: vec![] });
        for timed in &row.methods {
            let sample = Sample { bytes: row.bytes, nanoseconds: timed.ns };
            match known.methods.iter_mut().find(|known| known.method == timed.method) {
                Some(known) => known.samples.push(sample),
                None => known.methods.push(MethodProfile { method: timed.method, samples: vec![sample] }),
            }
        }
        profile.set_route(known);
    }
    profile
}

/// One size of one route. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(serialize_with = "as_text")]
    pub(super) route: Route,
    pub(super) bytes: usize,
    /// The engine, which chooses the method.
    pub(super) engine_ns: f64,
    #[serde(serialize_with = "as_text")]
    pub(super) chosen: CopyMethod,
    /// cuMemcpyHtoD or cuMemcpyDtoH.
    pub(super) cu_memcpy_ns: f64,
    pub(super) methods: Vec<Timed>,
}

/// The time of one way.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Timed {
    #[serde(serialize_with = "as_text")]
    pub(super) method: CopyMethod,
    pub(super) ns: f64,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Row {
    /// The fastest method, if any was measured.
    pub(super) fn best(&self) -> Option<Timed> {
        self.methods.iter().copied().min_by(|left, right| left.ns.total_cmp(&right.ns))
    }
}

/// A table for each route.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine.headline());
    let mut routes: Vec<Route> = report.rows.iter().map(|row| row.route).collect();
    routes.dedup();
    for route in routes {
        let _ = writeln!(text, "\n{route}");
        let _ = writeln!(
            text,
            "{:>9} {:>12} {:>9} {:>12} {:>8}  {:<22} {:<22} {:>6}",
            "size", "engine", "GB/s", "cuMemcpy", "faster", "chosen", "best", "to it"
        );
        for row in report.rows.iter().filter(|row| row.route == route) {
            let (best, ratio) = match row.best() {
                Some(best) => (best.method.to_string(), format!("{:.2}", row.engine_ns / best.ns)),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let _ = writeln!(
                text,
                "{:>9} {:>12} {:>9.2} {:>12} {:>8.1}  {:<22} {:<22} {:>6}",
                bytes::size(row.bytes as u64),
                bytes::duration(row.engine_ns / 1e9),
                row.bytes as f64 / row.engine_ns,
                bytes::duration(row.cu_memcpy_ns / 1e9),
                row.cu_memcpy_ns / row.engine_ns,
                row.chosen.to_string(),
                best,
                ratio,
            );
        }
    }
    text.push_str(
        "\nfaster: how many times faster than cuMemcpy. to it: the engine's time divided by that of the best single method.\n",
    );
    text + report.machine.caution()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::machine;
    use cuda_mem::copy::{DeviceSide, Direction, HostSide};

    pub(in super::super) fn report() -> Report {
        let route = Route { direction: Direction::ToDevice, host: HostSide::Pageable, device: DeviceSide::Mapped };
        let machine =
            Machine { ok: true, device: machine::Machine::of_a_test("a <device>", "softgpu", None), threads: 8 };
        let (cpu, staged) = (CopyMethod::Cpu { threads: 1 }, CopyMethod::Staged { threads: 8 });
        let row = |bytes, engine_ns, chosen, cpu_ns, staged_ns| Row {
            route,
            bytes,
            engine_ns,
            chosen,
            cu_memcpy_ns: 5000.0 + bytes as f64,
            methods: vec![Timed { method: cpu, ns: cpu_ns }, Timed { method: staged, ns: staged_ns }],
        };
        let rows = vec![row(4, 110.0, cpu, 100.0, 9000.0), row(1 << 20, 26_000.0, staged, 57_000.0, 25_000.0)];
        Report::new(machine, rows)
    }

    #[test]
    fn the_table_names_what_was_chosen_and_what_was_best() {
        let text = text(&report());
        let line = text.lines().find(|line| line.trim_start().starts_with("1 MiB")).unwrap();
        assert!(line.contains("staged, 8 threads") && line.ends_with("1.04"), "{line}");
        assert!(line.contains("40.33") && line.contains("40.5"), "{line}");
        let line = text.lines().find(|line| line.trim_start().starts_with("4 B")).unwrap();
        assert!(line.contains("45.5") && line.contains("CPU, 1 thread") && line.ends_with("1.10"), "{line}");
        assert!(text.contains("No GPU was used"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 128), "{text}");
    }

    #[test]
    fn the_json_has_every_method_by_name() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["device_name"], "a <device>");
        assert_eq!(json["rows"][1]["route"], "pageable to mapped");
        assert_eq!(json["rows"][1]["methods"][1]["method"], "staged, 8 threads");
        assert_eq!(json["rows"][0]["engine_ns"], 110.0);
        let profile: MachineProfile = serde_json::from_value(json["profile"].clone()).unwrap();
        let (route, cpu) = (report().rows[0].route, CopyMethod::Cpu { threads: 1 });
        assert!(profile.is_valid(), "{profile:?}");
        assert_eq!(profile.estimate(route, cpu, 1 << 20), Some(57_000.0));
    }
}
