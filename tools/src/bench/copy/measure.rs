//! Times of copies. Each round measures every method once, so that a disturbance affects all methods alike.

use super::report::{Row, Timed};
use crate::mapped_memory::{MappedBuffer, mapped_memory};
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, DeviceSide, Direction, HostSide, Route};
use cuda_mem::cuda_sys::{CUdeviceptr, CUresult};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, kind};
use cuda_mem::{Buffer, Context, Error, HostBuffer, MappedMemory, Result, Stream};
use std::time::{Duration, Instant};

/// A method that is slower than the best by this factor is not measured at larger sizes.
const HOPELESS: f64 = 4.0;

/// The smallest measured size, in bytes.
pub(crate) const SMALLEST: usize = 4;

/// The measured sizes, in bytes: powers of 2, or of 16 in a brief run.
pub(super) fn sizes(largest: usize, brief: bool) -> Vec<usize> {
    let step = if brief { 4 } else { 1 };
    (SMALLEST.ilog2()..usize::BITS)
        .step_by(step)
        .map(|power| 1usize << power)
        .take_while(|size| *size <= largest)
        .collect()
}

/// The memories that the copies use.
pub(super) struct Bench<'engine> {
    engine: &'engine CopyEngine,
    context: &'engine Context,
    stream: Stream,
    pageable: Vec<u8>,
    pinned: HostBuffer<u8>,
    plain: Buffer<u8, kind::Device>,
    mapped: Option<MappedBuffer>,
    /// The number of rounds, and the minimum length of a sample.
    rounds: usize,
    sample: Duration,
}

/// The code that copies.
#[derive(Clone, Copy)]
enum Subject {
    /// The engine, which chooses the method.
    Engine,
    Method(CopyMethod),
    /// cuMemcpyHtoD or cuMemcpyDtoH: the call of a program without an engine.
    CuMemcpy,
}

impl<'engine> Bench<'engine> {
    pub(super) fn new(
        context: &'engine Context,
        engine: &'engine CopyEngine,
        largest: usize,
        brief: bool,
    ) -> Result<Self> {
        let stream = Stream::new(context)?;
        let mapped = match MappedMemory::new(context).and_then(|resource| mapped_memory(&resource, largest)) {
            Ok(memory) => Some(memory),
            Err(error @ Error::OutOfMemory { .. }) => return Err(error),
            // Without mapped memory, the rest is still measured. `doctor` says why mapped memory is missing.
            Err(_) => None,
        };
        Ok(Self {
            pageable: vec![1; largest],
            pinned: HostBuffer::zeroed(&PinnedMemory::new(context), largest)?,
            plain: Buffer::zeroed(&DeviceMemory::new(context), largest, &stream)?,
            mapped,
            engine,
            context,
            stream,
            rounds: if brief { 1 } else { 9 },
            sample: Duration::from_micros(if brief { 1 } else { 200 }),
        })
    }

    pub(super) fn has(&self, route: Route) -> bool {
        route.device == DeviceSide::Plain || self.mapped.is_some()
    }

    /// Measures one size. Adds methods that are too slow to `given_up`.
    pub(super) fn row(&mut self, route: Route, bytes: usize, given_up: &mut Vec<CopyMethod>) -> Result<Row> {
        let threads = 1 + self.engine.helper_threads();
        let methods: Vec<CopyMethod> =
            CopyMethod::all(route, threads).into_iter().filter(|method| !given_up.contains(method)).collect();
        let mut subjects = vec![Subject::Engine, Subject::CuMemcpy];
        subjects.extend(methods.iter().map(|method| Subject::Method(*method)));
        let mut times = vec![Vec::new(); subjects.len()];
        let rounds = if bytes >= 256 << 20 { self.rounds.min(3) } else { self.rounds };
        for _ in 0..rounds {
            for (subject, times) in subjects.iter().zip(&mut times) {
                times.push(self.sample(*subject, route, bytes)?);
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let engine_ns = median(&mut times[0]);
        let cu_memcpy_ns = median(&mut times[1]);
        let timed = methods.iter().zip(&mut times[2..]);
        let methods: Vec<Timed> = timed.map(|(method, times)| Timed { method: *method, ns: median(times) }).collect();
        let best = methods.iter().map(|timed| timed.ns).fold(f64::INFINITY, f64::min);
        if bytes >= 1 << 16 {
            // Keep the method that the engine chooses, however slow it is, so that the report shows it.
            let hopeless =
                |timed: &&Timed| timed.ns > HOPELESS * best && timed.method != self.engine.method(route, 2 * bytes);
            given_up.extend(methods.iter().filter(hopeless).map(|timed| timed.method));
        }
        let chosen = self.engine.method(route, bytes);
        Ok(Row { route, bytes, engine_ns, chosen, cu_memcpy_ns, methods })
    }

    /// The mean time of several copies, in nanoseconds.
    fn sample(&mut self, subject: Subject, route: Route, bytes: usize) -> Result<f64> {
        let start = Instant::now();
        self.copy(subject, route, bytes)?; // wakes the helper threads, and shows how many copies fill the time
        let first = start.elapsed().max(Duration::from_nanos(30));
        if self.rounds == 1 || first > Duration::from_millis(50) {
            return Ok(first.as_secs_f64() * 1e9);
        }
        let count = (self.sample.as_nanos() / first.as_nanos()).clamp(1, 10_000) as u32;
        let start = Instant::now();
        for _ in 0..count {
            self.copy(subject, route, bytes)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(count))
    }

    fn copy(&mut self, subject: Subject, route: Route, bytes: usize) -> Result<()> {
        let host = match route.host {
            HostSide::Pageable => &mut self.pageable[..bytes],
            HostSide::Pinned => &mut self.pinned[..bytes],
        };
        let mut options = CopyOptions::default();
        let method = match subject {
            Subject::Engine => None,
            Subject::Method(method) => Some(method),
            Subject::CuMemcpy => {
                let device = match (&self.mapped, route.device) {
                    (Some(memory), DeviceSide::Mapped) => memory.device_pointer(),
                    _ => self.plain.device_pointer(),
                };
                return by_driver(self.context, route.direction, device, host);
            }
        };
        options.method = method;
        match (&mut self.mapped, route.device) {
            (Some(memory), DeviceSide::Mapped) => engine_copy(self.engine, memory, route.direction, host, &options),
            _ => {
                let copied = engine_copy(self.engine, &mut self.plain, route.direction, host, &options);
                debug_assert!(self.stream.is_done()?);
                copied
            }
        }
    }
}

fn engine_copy<K: cuda_mem::memory::Kind>(
    engine: &CopyEngine,
    memory: &mut Buffer<u8, K>,
    direction: Direction,
    host: &mut [u8],
    options: &CopyOptions,
) -> Result<()> {
    match (direction, options.method) {
        (Direction::ToDevice, None) => engine.write(memory, 0, host),
        (Direction::ToDevice, _) => engine.write_with(memory, 0, host, options),
        (Direction::FromDevice, None) => engine.read(memory, 0, host),
        (Direction::FromDevice, _) => engine.read_with(memory, 0, host, options),
    }
}

/// The driver's blocking copy.
pub(super) fn by_driver(context: &Context, direction: Direction, device: CUdeviceptr, host: &mut [u8]) -> Result<()> {
    let cuda = context.driver().raw();
    let (size, host) = (host.len(), host.as_mut_ptr());
    // SAFETY: both sides are `size` bytes long and live through the call.
    let (call, result) = unsafe {
        match direction {
            Direction::ToDevice => ("cuMemcpyHtoD", cuda.cuMemcpyHtoD_v2(device, host.cast_const().cast(), size)),
            Direction::FromDevice => ("cuMemcpyDtoH", cuda.cuMemcpyDtoH_v2(host.cast(), device, size)),
        }
    };
    match result? {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(cuda_mem::DriverError { call, code }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_up_to_the_largest() {
        assert_eq!(sizes(1 << 12, true), [4, 64, 1024]);
        assert_eq!(sizes(20, false), [4, 8, 16]);
        assert!(sizes(3, false).is_empty());
        assert_eq!(sizes(1 << 30, false).len(), 29);
    }
}
