//! Random sequences of calls of the C library. A string of bytes chooses the calls, with handles and sizes that may be
//! wrong. No call may crash, panic or leave anything behind, and a call that fails creates nothing.

mod captures;
mod copies;
mod frames;
mod owners;
mod sharing;
mod signals;
mod sources;
mod views;
mod work;

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::arrow::cudamem_arrow_array_destroy;
use cudamem::arrow_schema::cudamem_arrow_schema_destroy;
use cudamem::arrow_stream::cudamem_arrow_stream_destroy;
use cudamem::buffer::*;
use cudamem::channel::*;
use cudamem::context::*;
use cudamem::counter::*;
use cudamem::engine::*;
use cudamem::engine_work::*;
use cudamem::event::*;
use cudamem::frames::*;
use cudamem::graph::*;
use cudamem::handles::*;
use cudamem::library::*;

use cudamem::objects::*;
use cudamem::pool::*;
use cudamem::resource::*;
use cudamem::ring::*;
use cudamem::sharing::cudamem_export_destroy;
use cudamem::signal::*;
use cudamem::status::*;
use cudamem::stream::*;
use cudamem::text::*;
use cudamem::view::cudamem_view_destroy;
use cudamem::virtual_memory::*;
use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The size of the program's memory. Calls copy no more bytes than this.
const ROOM: usize = 1 << 14;

/// The value of a result's place before the call.
const UNTOUCHED: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// Loads the driver that the environment names, else the system's driver, else the software GPU.
///
/// # Panics
///
/// No driver loads.
pub fn load() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: there are no options and no place for the release.
        if unsafe { cudamem_load(ptr::null(), None) } == CUDAMEM_SUCCESS {
            return;
        }
        let options = cudamem_load_options {
            size: size_of::<cudamem_load_options>(),
            cuda: c"softgpu".as_ptr(),
            vkgdr: c"softgpu".as_ptr(),
        };
        // SAFETY: the options are as large as they say, and softgpu has the driver's signatures.
        let status = unsafe { cudamem_load(&options, None) };
        assert_eq!(status, CUDAMEM_SUCCESS, "{}", last_message());
    });
}

/// The message of the calling thread's last failure.
pub fn last_message() -> String {
    let text = cudamem_last_error_message();
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the message is the thread's own and stays valid until its next failure.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The outcome of a run's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of calls that worked.
    pub succeeded: usize,
    /// Number of calls that failed, without the status of an internal error.
    pub refused: usize,
    /// The kinds of which handles were made, one bit each.
    pub kinds: u32,
}

/// Runs the calls that the bytes choose, and destroys the remaining objects.
///
/// # Panics
///
/// A call returned an internal error, or wrote a result although it failed.
pub fn run(bytes: &[u8]) -> Tally {
    load();
    let mut calls =
        Calls { bytes, handles: Vec::new(), memory: vec![0x5a; ROOM].into_boxed_slice(), tally: Tally::default() };
    let trace = std::env::var_os("C_CALLS_TRACE").is_some();
    calls.begin();
    while let Some(choice) = calls.bytes.first() {
        if trace {
            let done = bytes.len() - calls.bytes.len();
            eprintln!("byte {done}: step {}, {:x?}", choice % 21, &calls.bytes[..calls.bytes.len().min(24)]);
        }
        calls.step();
        if trace {
            calls.settle();
        }
    }
    if trace {
        eprintln!("destroying {} handles", calls.handles.len());
    }
    calls.end();
    calls.tally
}

/// Checks the ledger and the misuse of the linked-in software GPU after runs. Other drivers have none here.
///
/// # Panics
///
/// A run has left something behind, or has misused the driver.
pub fn assert_nothing_left() {
    // The last user of a value may be a thread of the library or a host function, which end it after the run.
    let left = softgpu::ledger_within(Duration::from_secs(20));
    assert!(left.is_empty(), "left behind: {left}");
    // Only what is new: the next attempt of a search for a shorter sequence must not fail by an earlier one's.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let mut misuse = softgpu::misuse();
    let known = KNOWN.swap(misuse.len(), Ordering::Relaxed);
    misuse.drain(..known.min(misuse.len()));
    // In C a program may read bytes that only a capture has written: they have any value, as in memory that nobody has
    // written.
    misuse.retain(|report| report.misuse != softgpu::Misuse::NeverRan);
    assert_eq!(misuse, vec![]);
}

/// The bits of a handle that hold its kind. This is internal to the library; here it only makes valid handles likelier.
fn kind(handle: u64) -> u64 {
    handle >> 27 & 31
}

struct Calls<'bytes> {
    bytes: &'bytes [u8],
    /// Every handle ever made, including destroyed ones.
    handles: Vec<u64>,
    memory: Box<[u8]>,
    tally: Tally,
}

/// Handles of each type, chosen by the bytes.
macro_rules! handles {
    ($($name:ident: $handle:ident;)*) => {
        impl Calls<'_> { $(
            fn $name(&mut self) -> $handle {
                $handle { id: self.handle($handle::KIND as u64) }
            }
        )* }
    };
}
handles! {
    text: cudamem_text;
    context: cudamem_context;
    stream: cudamem_stream;
    event: cudamem_event;
    resource: cudamem_resource;
    buffer: cudamem_buffer;
    engine: cudamem_engine;
    view: cudamem_view;
    arrow_schema: cudamem_arrow_schema;
    arrow_array: cudamem_arrow_array;
    arrow_stream: cudamem_arrow_stream;
    signal_memory: cudamem_signals;
    flag: cudamem_flag;
    counter: cudamem_counter;
    ring: cudamem_ring;
    pending_read: cudamem_pending_read;
    graph: cudamem_graph;
    executable: cudamem_executable;
    physical: cudamem_physical;
    frame_ring: cudamem_frame_ring;
    frame: cudamem_frame;
    exported: cudamem_export;
    channel: cudamem_channel;
    listener: cudamem_listener;
}

impl Calls<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Chooses a handle: usually one of the wanted kind, sometimes any handle, null, or an invented number.
    fn handle(&mut self, wanted: u64) -> u64 {
        match self.byte() {
            0..4 => 0,
            4..8 => self.number(),
            choice @ 8..16 if !self.handles.is_empty() => {
                let known = self.handles[choice as usize % self.handles.len()];
                known ^ 1 << (self.byte() % 64)
            }
            choice @ 16..40 if !self.handles.is_empty() => self.handles[choice as usize % self.handles.len()],
            // Prefer the newest handles, which are likely to live. The oldest handle is seldom destroyed.
            choice => {
                let alike = |handle: &&u64| kind(**handle) == wanted;
                let newest = self.handles.iter().rev().filter(alike).nth(choice as usize % 8);
                newest.or_else(|| self.handles.iter().find(alike)).copied().unwrap_or(0)
            }
        }
    }

    fn size(&mut self) -> usize {
        let size = match self.byte() {
            0..8 => usize::MAX,
            8..12 => self.number() as usize,
            12..20 => 1 << (self.byte() % 64),
            size @ 20..128 => size as usize - 20,
            _ => (usize::from(self.byte()) << 8 | usize::from(self.byte())) % ROOM,
        };
        // Sizes are either quick to fill, or larger than any machine's memory.
        if size >= 1 << 50 { size } else { size % (1 << 22) }
    }

    /// The program's memory for a copy of this size, or NULL if it is too small.
    fn room(&mut self, size: usize) -> *mut c_void {
        if size <= ROOM { self.memory.as_mut_ptr().cast() } else { ptr::null_mut() }
    }

    fn count(&mut self, status: cudamem_status) -> bool {
        assert!((0..=CUDAMEM_ERROR_CANCELED).contains(&status), "status {status}");
        assert_ne!(status, CUDAMEM_ERROR_PANIC, "{}", last_message());
        *(if status == CUDAMEM_SUCCESS { &mut self.tally.succeeded } else { &mut self.tally.refused }) += 1;
        status == CUDAMEM_SUCCESS
    }

    /// Makes a call that creates an object.
    fn make<H: Copy>(
        &mut self,
        wrap: fn(u64) -> H,
        id: fn(H) -> u64,
        call: impl FnOnce(Option<&mut MaybeUninit<H>>) -> i32,
    ) {
        let mut place = MaybeUninit::new(wrap(UNTOUCHED));
        // Sometimes pass no place for the result.
        let status = if self.byte() == 0 { call(None) } else { call(Some(&mut place)) };
        // SAFETY: the place holds its initial value, or the value that the call wrote.
        let made = id(unsafe { place.assume_init() });
        if self.count(status) {
            assert_ne!(made, UNTOUCHED, "nothing was written");
            self.tally.kinds |= 1 << kind(made);
            self.handles.push(made);
        } else {
            assert_eq!(made, UNTOUCHED, "a result of a call that failed: {}", last_message());
        }
    }

    /// Makes a call that returns a value.
    fn tell<T>(&mut self, call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> i32) {
        let mut place = MaybeUninit::uninit();
        let status = if self.byte() == 0 { call(None) } else { call(Some(&mut place)) };
        self.count(status);
    }

    /// Makes a call that fills a struct of results, whose first field is its size.
    fn fill<T>(&mut self, call: impl FnOnce(*mut T) -> i32) {
        // The size is sometimes one less.
        let size = size_of::<T>() - usize::from(self.byte() == 0);
        let mut info = MaybeUninit::<T>::zeroed();
        // SAFETY: the struct begins with its size.
        unsafe { info.as_mut_ptr().cast::<usize>().write(size) };
        let status = call(info.as_mut_ptr());
        self.count(status);
    }

    /// Makes the objects that most sequences need.
    fn begin(&mut self) {
        let context = |id| cudamem_context { id };
        self.make_sure(context, |made: cudamem_context| made.id, |place| cudamem_context_open_primary(0, place));
        let here = context(self.handles[0]);
        // SAFETY: no options.
        self.make_sure(
            |id| cudamem_stream { id },
            |made| made.id,
            |place| unsafe { cudamem_stream_create(here, ptr::null(), place) },
        );
        self.make_sure(
            |id| cudamem_resource { id },
            |made| made.id,
            |place| cudamem_resource_create_device(here, place),
        );
        self.make_sure(
            |id| cudamem_resource { id },
            |made| made.id,
            |place| cudamem_resource_create_mapped(here, 0, place),
        );
    }

    fn make_sure<H: Copy>(
        &mut self,
        wrap: fn(u64) -> H,
        id: fn(H) -> u64,
        call: impl FnOnce(Option<&mut MaybeUninit<H>>) -> i32,
    ) {
        let mut place = MaybeUninit::new(wrap(0));
        assert_eq!(call(Some(&mut place)), CUDAMEM_SUCCESS, "{}", last_message());
        // SAFETY: the place was initialised before the call.
        self.handles.push(id(unsafe { place.assume_init() }));
    }

    /// Waits for the work of the last steps, so that a failure shows up at the step that queued the work.
    fn settle(&self) {
        for id in self.handles.iter().rev().copied().filter(|id| kind(*id) == cudamem_stream::KIND as u64).take(4) {
            let status = cudamem_synchronize_for(id, 2e-3);
            assert!(status == CUDAMEM_SUCCESS || cudamem_last_driver_code() != 700, "{}", last_message());
        }
    }

    fn step(&mut self) {
        match self.byte() % 21 {
            0 => self.make_object(),
            1 | 2 => self.allocate(),
            3 | 4 => self.copy(),
            5 => self.ask(),
            6 => self.work(),
            7 | 8 => self.signals(),
            9 => self.make_adaptor(),
            10 => self.ask_adaptor(),
            11 => self.use_sources(),
            12 => self.engine_work(),
            13 => self.share(),
            14..=16 => self.view_step(),
            17 => self.frames(),
            18 => self.capture_calls(),
            19 => self.owners(),
            _ => {
                let wanted = u64::from(self.byte()) % (Kind::ALL.len() as u64 + 1);
                let handle = self.handle(wanted);
                self.destroy(handle);
            }
        }
    }

    fn make_object(&mut self) {
        let (context, stream, resource) = (self.context(), self.stream(), self.resource());
        let flags = u32::from(self.byte() % 4);
        let wrap: fn(u64) -> cudamem_resource = |id| cudamem_resource { id };
        let id: fn(cudamem_resource) -> u64 = |made| made.id;
        match self.byte() % 12 {
            0 => self.make(|id| cudamem_context { id }, |made| made.id, |place| cudamem_context_open_primary(0, place)),
            // SAFETY: no options.
            1 => self.make(
                |id| cudamem_stream { id },
                |made| made.id,
                |place| unsafe { cudamem_stream_create(context, ptr::null(), place) },
            ),
            2 => self.make(
                |id| cudamem_event { id },
                |made| made.id,
                |place| cudamem_event_create(context, flags, place),
            ),
            3 => self.make(wrap, id, |place| cudamem_resource_create_device(context, place)),
            4 => self.make(wrap, id, |place| cudamem_resource_create_pinned(context, flags, place)),
            5 => self.make(wrap, id, |place| cudamem_resource_create_managed(context, flags, place)),
            6 => self.make(wrap, id, |place| cudamem_resource_create_mapped(context, flags as i32, place)),
            7 => {
                let options = cudamem_driver_pool_options {
                    size: size_of::<cudamem_driver_pool_options>(),
                    memory: flags as i32,
                    flags: u32::from(self.byte() % 4),
                    max_size: 0,
                    release_threshold: u64::from(self.byte()) << 16,
                    numa_node: 0,
                    reserved: 0,
                };
                // SAFETY: the options are as large as they say.
                self.make(wrap, id, |place| unsafe { cudamem_resource_create_driver_pool(context, &options, place) });
            }
            8 | 9 => {
                let options = cudamem_pool_options {
                    size: size_of::<cudamem_pool_options>() - usize::from(self.byte() == 0),
                    initial: self.size() as u64,
                    smallest_growth: 0,
                    largest_growth: 0,
                    // Over virtual memory this is one chunk, unless there are many.
                    maximum: if self.byte().is_multiple_of(4) { 64 << 20 } else { self.size() as u64 },
                    cache_capacity: 0,
                    trace_capacity: u64::from(self.byte()),
                    growth_factor: f64::from(self.byte()) / 64.0,
                    reuse: flags as i32,
                    flags: u32::from(self.byte() % 5),
                    on_out_of_memory: None,
                    user: ptr::null_mut(),
                };
                // SAFETY: the options are as large as they say.
                self.make(wrap, id, |place| unsafe { cudamem_pool_create(resource, &options, place) });
            }
            10 => self.make(
                |id| cudamem_engine { id },
                |made| made.id,
                // SAFETY: there are no options.
                |place| unsafe { cudamem_engine_create(context, ptr::null(), place) },
            ),
            _ => {
                let status = cudamem_pool_release_stream(resource, stream);
                self.count(status);
            }
        }
    }

    fn allocate(&mut self) {
        let (resource, stream, buffer) = (self.resource(), self.stream(), self.buffer());
        let (offset, size) = (self.size(), self.size());
        match self.byte() % 3 {
            0 | 1 => self.make(
                |id| cudamem_buffer { id },
                |made| made.id,
                |place| cudamem_buffer_allocate(resource, size, stream, place),
            ),
            _ => self.make(
                |id| cudamem_buffer { id },
                |made| made.id,
                |place| cudamem_buffer_slice(buffer, offset, size, place),
            ),
        }
    }

    /// Destroys a handle as each kind in turn. At most one kind accepts it.
    fn destroy(&mut self, id: u64) {
        let answers = [
            cudamem_buffer_destroy(cudamem_buffer { id }),
            cudamem_engine_destroy(cudamem_engine { id }),
            cudamem_pending_read_destroy(cudamem_pending_read { id }),
            cudamem_flag_destroy(cudamem_flag { id }),
            cudamem_counter_destroy(cudamem_counter { id }),
            cudamem_ring_destroy(cudamem_ring { id }),
            cudamem_signals_destroy(cudamem_signals { id }),
            cudamem_executable_destroy(cudamem_executable { id }),
            cudamem_graph_destroy(cudamem_graph { id }),
            cudamem_physical_destroy(cudamem_physical { id }),
            cudamem_event_destroy(cudamem_event { id }),
            cudamem_text_destroy(cudamem_text { id }),
            cudamem_resource_destroy(cudamem_resource { id }),
            cudamem_stream_destroy(cudamem_stream { id }),
            cudamem_context_destroy(cudamem_context { id }),
            cudamem_view_destroy(cudamem_view { id }),
            cudamem_arrow_schema_destroy(cudamem_arrow_schema { id }),
            cudamem_arrow_array_destroy(cudamem_arrow_array { id }),
            cudamem_arrow_stream_destroy(cudamem_arrow_stream { id }),
            cudamem_export_destroy(cudamem_export { id }),
            cudamem_channel_destroy(cudamem_channel { id }),
            cudamem_listener_destroy(cudamem_listener { id }),
            cudamem_frame_destroy(cudamem_frame { id }),
            cudamem_frame_ring_destroy(cudamem_frame_ring { id }),
        ];
        let known = answers.iter().filter(|status| **status == CUDAMEM_SUCCESS).count();
        assert!(id == 0 || known <= 1, "a handle of {known} kinds");
        for status in answers {
            self.count(status);
        }
    }

    fn end(&mut self) {
        for id in core::mem::take(&mut self.handles).into_iter().rev() {
            self.destroy(id);
        }
    }
}
