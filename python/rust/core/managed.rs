//! Managed memory: advice about its location, and prefetches.
//!
//! Locations are (kind, number): "device" and an ordinal, "host", "host_numa" and a node, or "host_numa_current".

use super::body::Body;
use super::buffer::Buffer;
use super::calls;
use super::foreign::context_of;
use super::stream::of_argument;
use super::transfer::ordered;
use crate::error::Outcome;
use crate::signals;
use cuda_mem::buffer::ManagedRange;
use cuda_mem::memory::Location;
use cuda_mem::{Context, Driver};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A location as Python has it.
pub type Place = (String, i32);

/// The location of a place.
pub fn located(driver: &Driver, (kind, id): &Place) -> Outcome<Location> {
    Ok(match kind.as_str() {
        "device" => Location::Device(driver.device(*id)?),
        "host" => Location::Host,
        "host_numa" => Location::HostNuma(*id),
        "host_numa_current" => Location::HostNumaCurrent,
        _ => {
            let text = format!(
                "the type of a location is {kind:?}, but it must be \"device\", \"host\", \"host_numa\" or \"host_numa_current\""
            );
            return Err(PyValueError::new_err(text).into());
        }
    })
}

fn place(location: &Location) -> Place {
    match location {
        Location::Device(device) => ("device".to_owned(), device.ordinal()),
        Location::Host => ("host".to_owned(), -1),
        Location::HostNuma(node) => ("host_numa".to_owned(), *node),
        Location::HostNumaCurrent => ("host_numa_current".to_owned(), -1),
    }
}

/// The memory of an open buffer.
fn range(context: &Context, body: &Body) -> ManagedRange {
    // SAFETY: the caller has checked that the memory is managed, and keeps the buffer open; its free waits for the work.
    unsafe { ManagedRange::new(context, body.address, body.size) }
}

/// Refuses memory that is not managed, in cuda.core's words.
fn check(py: Python<'_>, call: &str, buffer: &Bound<'_, Buffer>) -> Outcome {
    let facts = buffer.get().facts(py)?.0;
    if buffer.get().managed(py, facts)? {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{call} requires a managed-memory allocation")).into())
}

/// Advises the driver: "read_mostly", "preferred_location", "accessed_by", each with whether it is set.
#[pyfunction]
#[pyo3(signature = (buffer, advice, is_set, to = None))]
pub fn advise(py: Python<'_>, buffer: &Bound<'_, Buffer>, advice: &str, is_set: bool, to: Option<Place>) -> Outcome {
    check(py, advice, buffer)?;
    let body = buffer.get().open()?;
    let body: &Body = &body;
    py.detach(|| {
        let to = to.map(|to| located(&calls::driver("advise")?, &to)).transpose()?;
        let range = range(&context_of(body.address)?, body);
        Ok(match (advice, &to, is_set) {
            ("read_mostly", _, is_set) => range.set_read_mostly(is_set),
            ("preferred_location", to, true) => range.set_preferred_location(to.as_ref()),
            ("preferred_location", _, false) => range.set_preferred_location(None),
            (_, Some(to), true) => range.add_accessed_by(to),
            (_, Some(to), false) => range.remove_accessed_by(to),
            (_, None, _) => Ok(()),
        }?)
    })
}

/// What the driver says about the memory: "read_mostly" as a bool, the others as lists of locations.
#[pyfunction]
pub fn range_attribute<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, Buffer>,
    name: &Bound<'py, PyString>,
) -> Outcome<Bound<'py, PyAny>> {
    let name = name.to_str()?;
    check(py, name, buffer)?;
    let body = buffer.get().open()?;
    let range = range(&py.detach(|| context_of(body.address))?, &body);
    if name == "read_mostly" {
        return Ok(py.detach(|| range.is_read_mostly())?.into_pyobject(py).map_err(PyErr::from)?.to_owned().into_any());
    }
    let found = py.detach(|| match name {
        "preferred_location" => Ok(range.preferred_location()?.into_iter().collect()),
        "last_prefetch_location" => Ok(range.last_prefetch_location()?.into_iter().collect()),
        _ => range.accessed_by(),
    })?;
    let places: Vec<Place> = found.iter().map(place).collect();
    Ok(places.into_pyobject(py)?)
}

/// Moves buffers on a stream: all to one location, or each to its own.
#[pyfunction]
pub fn prefetch(py: Python<'_>, stream: &Bound<'_, PyAny>, buffers: Vec<Bound<'_, Buffer>>, to: Vec<Place>) -> Outcome {
    move_all(py, "prefetch", stream, &buffers, Some(to), false)
}

/// Drops the contents of buffers on a stream, and moves them if locations are given.
#[pyfunction]
#[pyo3(signature = (stream, buffers, to = None))]
pub fn discard(
    py: Python<'_>,
    stream: &Bound<'_, PyAny>,
    buffers: Vec<Bound<'_, Buffer>>,
    to: Option<Vec<Place>>,
) -> Outcome {
    move_all(py, "discard", stream, &buffers, to, true)
}

fn move_all(
    py: Python<'_>,
    call: &'static str,
    stream: &Bound<'_, PyAny>,
    buffers: &[Bound<'_, Buffer>],
    to: Option<Vec<Place>>,
    discards: bool,
) -> Outcome {
    buffers.iter().try_for_each(|buffer| check(py, call, buffer))?;
    let stream = of_argument(stream, None)?;
    let driver = calls::driver(call)?;
    let locations = match to {
        Some(to) => to.iter().map(|to| located(&driver, to)).collect::<Outcome<Vec<_>>>()?,
        None => vec![Location::from(stream.context().device().clone())],
    };
    let open = buffers.iter().map(|buffer| buffer.get().open()).collect::<Outcome<Vec<_>>>()?;
    let bodies: Vec<&Body> = open.iter().map(|body| &**body).collect();
    let ranges: Vec<ManagedRange> = bodies.iter().map(|body| range(stream.context(), body)).collect();
    if buffers.is_empty() {
        return Err(PyTypeError::new_err("a sequence of Buffers is needed").into());
    }
    let work = || {
        ordered(&bodies, &stream, |_| match discards {
            false => ManagedRange::prefetch_batch(&ranges, &locations, &stream),
            // SAFETY: that nobody needs the contents is what the call says.
            true => unsafe { ManagedRange::discard_and_prefetch_batch(&ranges, &locations, &stream) },
        })
    };
    Ok(signals::detach(py, work)??)
}
