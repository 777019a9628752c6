//! Copies and fills on a stream that the program names.

use super::body::{Body, Held};
use super::buffer::Buffer;
use super::calls::answer;
use super::stream::of_argument;
use crate::error::{Outcome, refused};
use crate::signals;
use cuda_mem::Stream;
use cuda_mem::cuda_sys;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Queues work that uses buffers: after earlier work of their home streams, and before their frees.
pub fn ordered(
    bodies: &[&Body],
    stream: &Stream,
    work: impl FnOnce(&cuda_sys::Driver) -> cuda_mem::Result<()>,
) -> cuda_mem::Result<()> {
    let elsewhere = |body: &&&Body| body.memory.home().is_some_and(|home| home != stream);
    let others: Vec<&Held> = bodies.iter().filter(elsewhere).map(|body| &body.memory).collect();
    // The graph of a capture orders nothing outside of it: the program does.
    let is_recorded = !others.is_empty() && stream.is_capturing()?;
    if !is_recorded {
        others.iter().filter_map(|held| held.home()).try_for_each(|home| stream.join(home))?;
    }
    let bound = stream.context().bind()?;
    let worked = work(stream.context().driver().raw());
    drop(bound);
    if is_recorded {
        return worked;
    }
    // After an error, some of the work may be queued.
    worked.and(others.iter().try_for_each(|held| held.record_use(stream)))
}

fn check_sizes(src: &Body, dst: &Body) -> Outcome {
    let (src, dst) = (src.size, dst.size);
    if src == dst {
        return Ok(());
    }
    let text = format!("buffer sizes mismatch between src and dst (sizes are: src={src}, dst={dst})");
    Err(PyValueError::new_err(text).into())
}

/// Copies a buffer to another of the same size.
pub fn copy(
    py: Python<'_>,
    src: &Buffer,
    dst: &Buffer,
    stream: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyAny>>,
) -> Outcome {
    let (src, dst, stream) = (src.open()?, dst.open()?, of_argument(stream, None)?);
    check_sizes(&src, &dst)?;
    let waits = options.is_some_and(is_during_call);
    let (src, dst): (&Body, &Body) = (&src, &dst);
    let copy = || {
        ordered(&[src, dst], &stream, |cuda| {
            // SAFETY: both ranges are the buffers', which live until the work is done: their frees wait for it.
            answer("cuMemcpyAsync", unsafe { cuda.cuMemcpyAsync(dst.address, src.address, src.size, stream.raw()) })
        })?;
        if waits { stream.synchronize() } else { Ok(()) }
    };
    Ok(signals::detach(py, copy)??)
}

/// Whether the program may use the source again when the call returns.
fn is_during_call(options: &Bound<'_, PyAny>) -> bool {
    options
        .getattr("src_access_order")
        .and_then(|order| order.extract::<String>())
        .is_ok_and(|order| order == "during_api_call")
}

/// Copies buffers to others of the same sizes, one to one.
#[pyfunction]
pub fn copy_batch(
    py: Python<'_>,
    stream: &Bound<'_, PyAny>,
    srcs: Vec<PyRef<'_, Buffer>>,
    dsts: Vec<PyRef<'_, Buffer>>,
    waits: bool,
) -> Outcome {
    let stream = of_argument(stream, None)?;
    let from = srcs.iter().map(|buffer| buffer.open()).collect::<Outcome<Vec<_>>>()?;
    let to = dsts.iter().map(|buffer| buffer.open()).collect::<Outcome<Vec<_>>>()?;
    let (from, to): (Vec<&Body>, Vec<&Body>) =
        (from.iter().map(|body| &**body).collect(), to.iter().map(|body| &**body).collect());
    if from.len() != to.len() {
        let text = format!("srcs has {} buffers, dsts has {}", from.len(), to.len());
        return Err(PyValueError::new_err(text).into());
    }
    from.iter().zip(&to).try_for_each(|(src, dst)| check_sizes(src, dst))?;
    let all: Vec<&Body> = from.iter().chain(&to).copied().collect();
    let copies = || {
        ordered(&all, &stream, |cuda| {
            from.iter().zip(&to).try_for_each(|(src, dst)| {
                // SAFETY: as in `copy`.
                answer("cuMemcpyAsync", unsafe { cuda.cuMemcpyAsync(dst.address, src.address, src.size, stream.raw()) })
            })
        })?;
        if waits { stream.synchronize() } else { Ok(()) }
    };
    Ok(signals::detach(py, copies)??)
}

/// Fills a buffer with copies of a pattern of 1, 2 or 4 bytes.
pub fn fill(py: Python<'_>, buffer: &Buffer, pattern: &[u8], stream: &Bound<'_, PyAny>) -> Outcome {
    let (body, stream) = (buffer.open()?, of_argument(stream, None)?);
    let (width, size) = (pattern.len(), body.size);
    if !matches!(width, 1 | 2 | 4) {
        return Err(refused(format!("Buffer.fill: value has {width} bytes, but it must have 1, 2 or 4")));
    }
    if !size.is_multiple_of(width) {
        let text = format!(
            "Buffer.fill: the buffer has {size} bytes, but its size must be a multiple of the value's, {width}"
        );
        return Err(refused(text));
    }
    let body: &Body = &body;
    let fill = || {
        ordered(&[body], &stream, |cuda| {
            let (start, count, raw) = (body.address, size / width, stream.raw());
            // SAFETY: the range is the buffer's, whose free waits for the work.
            unsafe {
                match *pattern {
                    [a] => answer("cuMemsetD8Async", cuda.cuMemsetD8Async(start, a, count, raw)),
                    [a, b] => {
                        answer("cuMemsetD16Async", cuda.cuMemsetD16Async(start, u16::from_ne_bytes([a, b]), count, raw))
                    }
                    [a, b, c, d] => {
                        let word = u32::from_ne_bytes([a, b, c, d]);
                        answer("cuMemsetD32Async", cuda.cuMemsetD32Async(start, word, count, raw))
                    }
                    _ => Ok(()),
                }
            }
        })
    };
    Ok(py.detach(fill)?)
}
