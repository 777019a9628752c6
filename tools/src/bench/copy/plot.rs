//! Draws the figures of `bench copy`: time by size and rate by size for each route, with one line for each way and a
//! mark on the chosen method. Writes one SVG file without scripts.

use super::report::{Report, Row};
use crate::bytes;
use crate::pool_map::escaped;
use cuda_mem::copy::{CopyMethod, Route};
use std::fmt::Write;

const PANEL: (f64, f64) = (560.0, 300.0);
const MARGIN: (f64, f64) = (70.0, 60.0);
/// The width of the legend with the names of the methods.
const LEGEND: f64 = 190.0;
/// Colours that colour-blind readers can tell apart. Lines of the same colour differ by dashes.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];
const DASHES: [&str; 3] = ["", "6 3", "2 2"];

/// A logarithmic axis, which maps values to positions.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for values above zero.
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) =
            if low.is_finite() && low > 0.0 { (low.log10().floor(), high.log10().ceil()) } else { (0.0, 1.0) };
        Self { low, high: high.max(low + 1.0), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// The powers of ten.
    fn marks(&self) -> impl Iterator<Item = f64> + '_ {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

/// Draws the picture.
pub(super) fn picture(report: &Report) -> String {
    let mut routes: Vec<Route> = report.rows.iter().map(|row| row.route).collect();
    routes.dedup();
    let mut methods: Vec<CopyMethod> = Vec::new();
    for timed in report.rows.iter().flat_map(|row| &row.methods) {
        if !methods.contains(&timed.method) {
            methods.push(timed.method);
        }
    }
    let width = 2.0 * (PANEL.0 + MARGIN.0) + LEGEND + 20.0;
    let height = 50.0 + routes.len() as f64 * (PANEL.1 + MARGIN.1 + 30.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>Copies: {}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"20\" y=\"26\" font-size=\"16\">{}</text>\n",
        escaped(&report.machine.device.device_name),
        escaped(&report.machine.headline()),
    );
    for (number, route) in routes.iter().enumerate() {
        let figures = Figures::of(report, *route, &methods);
        let top = 70.0 + number as f64 * (PANEL.1 + MARGIN.1 + 30.0);
        let _ = writeln!(svg, "<text x=\"20\" y=\"{}\" font-size=\"14\">{route}</text>", top - 10.0);
        panel(&mut svg, &figures, MARGIN.0, top, "time", &|_, ns| ns, &time);
        let left = 2.0 * MARGIN.0 + PANEL.0;
        panel(&mut svg, &figures, left, top, "rate", &|bytes, ns| bytes as f64 / ns, &|rate| format!("{rate} GB/s"));
        legend(&mut svg, &figures, left + PANEL.0 + 15.0, top);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The figures of a route.
struct Figures<'report> {
    rows: Vec<&'report Row>,
    lines: Vec<Line>,
}

/// The times of one way, or of cuMemcpy.
struct Line {
    name: String,
    /// Its number among the lines of all routes, which decides how it looks.
    number: usize,
    points: Vec<(usize, f64)>,
}

impl<'report> Figures<'report> {
    /// `methods` are those of the whole report.
    fn of(report: &'report Report, route: Route, methods: &[CopyMethod]) -> Self {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.route == route).collect();
        let of_method = |(number, method): (usize, &CopyMethod)| {
            let point = |row: &&Row| Some((row.bytes, row.methods.iter().find(|timed| timed.method == *method)?.ns));
            Line { name: method.to_string(), number: number + 1, points: rows.iter().filter_map(point).collect() }
        };
        let mut lines: Vec<Line> =
            methods.iter().enumerate().map(of_method).filter(|line| !line.points.is_empty()).collect();
        let points = rows.iter().map(|row| (row.bytes, row.cu_memcpy_ns)).collect();
        lines.push(Line { name: "cuMemcpy".to_owned(), number: 0, points });
        Self { rows, lines }
    }
}

/// The colour and the dashes of a line: those of its method in every panel.
fn style(line: usize) -> (&'static str, &'static str) {
    (COLOURS[line % COLOURS.len()], DASHES[line / COLOURS.len() % DASHES.len()])
}

/// A time. Marks of the axis, which are powers of ten, have no fractions.
fn time(ns: f64) -> String {
    let power = ns.log10();
    if (power - power.round()).abs() > 1e-9 {
        return bytes::duration(ns / 1e9);
    }
    let (unit, name) =
        [(1e9, "s"), (1e6, "ms"), (1e3, "us")].into_iter().find(|(unit, _)| ns >= *unit * 0.99).unwrap_or((1.0, "ns"));
    format!("{:.0} {name}", ns / unit)
}

fn panel(
    svg: &mut String,
    figures: &Figures<'_>,
    left: f64,
    top: f64,
    name: &str,
    value: &dyn Fn(usize, f64) -> f64,
    label: &dyn Fn(f64) -> String,
) {
    let Figures { rows, lines } = figures;
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Axis::new(points().map(|(bytes, _)| *bytes as f64), left, left + PANEL.0);
    let up = Axis::new(points().map(|(bytes, ns)| value(*bytes, *ns)), top + PANEL.1, top);
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"#999\"/>",
        PANEL.0, PANEL.1
    );
    for mark in up.marks() {
        let y = up.place(mark);
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left + PANEL.0,
            left - 5.0,
            y + 4.0,
            escaped(&label(mark))
        );
    }
    for power in (2..64).step_by(4) {
        let size = (1u64 << power) as f64;
        let x = across.place(size);
        if (left..=left + PANEL.0).contains(&x) {
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + PANEL.1,
                top + PANEL.1 + 16.0,
                bytes::size(1 << power)
            );
        }
    }
    for Line { name, number, points } in lines {
        let (colour, dashes) = style(*number);
        let places: Vec<String> = points
            .iter()
            .map(|(bytes, ns)| format!("{:.1},{:.1}", across.place(*bytes as f64), up.place(value(*bytes, *ns))))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"><title>{}</title></polyline>",
            places.join(" "),
            escaped(name)
        );
    }
    for row in rows {
        let (x, y) = (across.place(row.bytes as f64), up.place(value(row.bytes, row.engine_ns)));
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"none\" stroke=\"#c00\" stroke-width=\"1.5\"><title>{}: {}, \
             chosen: {}</title></circle>",
            bytes::size(row.bytes as u64),
            escaped(&label(value(row.bytes, row.engine_ns))),
            row.chosen
        );
    }
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{name} by size</text>", left + 6.0, top + 16.0);
}

fn legend(svg: &mut String, figures: &Figures<'_>, left: f64, top: f64) {
    let _ = writeln!(
        svg,
        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"none\" stroke=\"#c00\" stroke-width=\"1.5\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">the engine</text>",
        left + 12.0,
        top + 6.0,
        left + 30.0,
        top + 10.0
    );
    for (place, Line { name, number, .. }) in figures.lines.iter().enumerate() {
        let ((colour, dashes), y) = (style(*number), top + 16.0 * (place + 1) as f64 + 6.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + 24.0,
            left + 30.0,
            y + 4.0,
            escaped(name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_method_is_a_line_and_every_size_has_its_mark() {
        let svg = picture(&report());
        // Two methods and cuMemcpy, in two panels.
        assert_eq!(svg.matches("<polyline").count(), 6, "{svg}");
        // Two sizes in two panels, and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("a &lt;device&gt;") && !svg.contains("a <device>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn marks_of_times_are_round() {
        let times = [1.0, 10.0, 1e3, 1e5, 1e6, 1e9, 39.0].map(time);
        assert_eq!(times, ["1 ns", "10 ns", "1 us", "100 us", "1 ms", "1 s", "0.039 us"]);
    }

    #[test]
    fn axes_hold_what_they_are_made_of() {
        let axis = Axis::new([3.0, 50_000.0].into_iter(), 100.0, 0.0);
        assert_eq!((axis.place(1.0), axis.place(1e5)), (100.0, 0.0));
        assert_eq!(axis.marks().count(), 6);
        let none = Axis::new(std::iter::empty(), 0.0, 10.0);
        assert_eq!((none.place(1.0), none.place(10.0)), (0.0, 10.0));
        assert_eq!(Axis::new([10.0].into_iter(), 0.0, 1.0).place(10.0), 0.0);
    }
}
