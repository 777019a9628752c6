//! How copies are done on a device.

use super::finding::{Finding, Recorder};
use crate::bytes::size;
use cuda_mem::Device;
use cuda_mem::copy::{CopyEngine, CopyMethod, Route};
use serde_json::json;
use std::fmt::Write;

/// Reports the sizes at which each route changes its method. Measures nothing.
pub(super) fn probe(out: &mut Recorder<'_>, device: &Device) {
    let ordinal = device.ordinal();
    out.step(format!("reading the copy profile of device {ordinal}"));
    let engine = match device.primary_context().and_then(|context| CopyEngine::new(&context)) {
        Ok(engine) => engine,
        Err(error) => {
            let text = error.to_string();
            return out.add(Finding::note(format!("copies.{ordinal}.profile"), "copy profile", text).value(false));
        }
    };
    let text = format!("typical figures, {} threads: `cuda-mem bench copy` compares them", 1 + engine.helper_threads());
    out.add(Finding::ok(format!("copies.{ordinal}.profile"), "copy profile", text).value(json!(engine.profile())));
    for route in Route::ALL {
        let text = steps(&engine, route);
        out.add(Finding::ok(
            format!("copies.{ordinal}.{}", route.to_string().replace(' ', "_")),
            route.to_string(),
            text,
        ));
    }
}

/// `CPU, 1 thread to 64 KiB; driver`: the methods of a route, each with the largest power of 2 for which it is chosen.
fn steps(engine: &CopyEngine, route: Route) -> String {
    let mut steps: Vec<(CopyMethod, usize)> = Vec::new();
    for power in 2..=30 {
        let bytes = 1usize << power;
        let method = engine.method(route, bytes);
        match steps.last_mut() {
            Some((last, upto)) if *last == method => *upto = bytes,
            _ => steps.push((method, bytes)),
        }
    }
    let last = steps.len() - 1;
    let mut text = String::new();
    for (number, (method, upto)) in steps.into_iter().enumerate() {
        let _ =
            if number == last { write!(text, "{method}") } else { write!(text, "{method} to {}; ", size(upto as u64)) };
    }
    text
}
