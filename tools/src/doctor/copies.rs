//! How copies are done on a device: the machine's profile, if it was measured and saved.

use super::finding::{Finding, Recorder};
use crate::bytes::size;
use cuda_mem::Device;
use cuda_mem::copy::{CopyEngine, MachineProfile, Measuring, Route, Way};
use serde_json::json;
use std::fmt::Write;

/// Reports the sizes at which each route changes its way. Measures nothing.
pub(super) fn probe(out: &mut Recorder<'_>, device: &Device) {
    let ordinal = device.ordinal();
    out.step(format!("reading the copy profile of device {ordinal}"));
    let engine = device
        .primary_context()
        .and_then(|context| CopyEngine::builder(&context).measuring(Measuring::OnRequest).build());
    let engine = match engine {
        Ok(engine) => engine,
        Err(error) => {
            let text = error.to_string();
            return out.add(Finding::note(format!("copies.{ordinal}.profile"), "copy profile", text).value(false));
        }
    };
    let profile = engine.profile();
    let measured = profile.routes != MachineProfile::typical().routes;
    let threads = 1 + engine.threads().helpers();
    let id = format!("copies.{ordinal}.profile");
    out.add(match engine.profile_file() {
        Some(file) if measured => {
            Finding::ok(id, "copy profile", format!("{} ({threads} threads)", file.display())).value(json!(profile))
        }
        _ if device.driver().is_software() => {
            let text = format!("typical figures: no profile is saved for the software GPU ({threads} threads)");
            Finding::note(id, "copy profile", text).value(json!(profile))
        }
        _ => Finding::note(
            id,
            "copy profile",
            format!("typical figures: not measured on this machine yet ({threads} threads)"),
        )
        .value(json!(profile))
        .remedy("run `cuda-mem bench copy` to measure it; a program's first large copy measures it too"),
    });
    for route in Route::ALL {
        let text = steps(&engine, route);
        out.add(Finding::ok(
            format!("copies.{ordinal}.{}", route.to_string().replace(' ', "_")),
            route.to_string(),
            text,
        ));
    }
}

/// `CPU, 1 thread to 64 KiB; driver`: the ways of a route, each with the largest power of 2 for which it is chosen.
fn steps(engine: &CopyEngine, route: Route) -> String {
    let mut steps: Vec<(Way, usize)> = Vec::new();
    for power in 2..=30 {
        let bytes = 1usize << power;
        let way = engine.way(route, bytes);
        match steps.last_mut() {
            Some((last, upto)) if *last == way => *upto = bytes,
            _ => steps.push((way, bytes)),
        }
    }
    let last = steps.len() - 1;
    let mut text = String::new();
    for (number, (way, upto)) in steps.into_iter().enumerate() {
        let _ = if number == last { write!(text, "{way}") } else { write!(text, "{way} to {}; ", size(upto as u64)) };
    }
    text
}
