//! Calls of adaptors, small pools, virtual memory, host memory, and graphs.

use super::{Calls, last_message};
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::adaptor::*;
use cudamem::buffer::cudamem_buffer_get_info;
use cudamem::graph::*;
use cudamem::guard::*;
use cudamem::handles::*;
use cudamem::host_memory::*;
use cudamem::pool_figures::*;
use cudamem::resource::cudamem_resource_get_info;
use cudamem::ring_pool::*;
use cudamem::status::*;
use cudamem::virtual_memory::*;
use std::os::fd::{FromRawFd, OwnedFd};

extern "C" fn give_up_later(_: *const c_char, attempt: u32, _: *mut c_void) -> bool {
    attempt < 2
}

/// Records nothing, because the objects that a launch uses would have to live until then.
extern "C" fn record_nothing(_: cudamem_stream, user: *mut c_void) -> cudamem_status {
    user.addr() as cudamem_status
}

extern "C" fn free_box(user: *mut c_void) {
    // SAFETY: `Box::into_raw` made this pointer for this type, and it is released once.
    drop(unsafe { Box::from_raw(user.cast::<[u8; REGISTERED]>()) });
}

const REGISTERED: usize = 4096;

impl Calls<'_> {
    pub(super) fn make_adaptor(&mut self) {
        let (upstream, second, context) = (self.resource(), self.resource(), self.context());
        let flags = u32::from(self.byte() % 4);
        let (number, size) = (u64::from(self.byte()), self.size() % (1 << 20));
        let guards = cudamem_guard_options {
            size: size_of::<cudamem_guard_options>(),
            red_zone: size % 1000,
            quarantine: size,
            flags,
            reserved: 0,
        };
        let rules = [cudamem_failure_rule { when: flags as i32, reserved: 0, number, probability: 0.5 }];
        let memory = cudamem_virtual_options {
            size: size_of::<cudamem_virtual_options>(),
            alignment: if number == 0 { 3 } else { 0 },
            address_hint: 0,
            peers: ptr::null(),
            peer_count: usize::from(number == 1),
            location: flags as i32,
            node: 0,
            flags: number as u32 % 9,
            reserved: 0,
        };
        let path = c"/dev/null".as_ptr();
        let choice = self.byte() % 13;
        self.make(
            |id| cudamem_resource { id },
            |made| made.id,
            // SAFETY: options and rules are as large as they say, and the path is a C string.
            |out| unsafe {
                match choice {
                    0 => cudamem_resource_create_adaptor(upstream, CUDAMEM_ADAPTOR_STATISTICS, 0, out),
                    1 => cudamem_resource_create_adaptor(upstream, CUDAMEM_ADAPTOR_LIMIT, size, out),
                    2 => cudamem_resource_create_adaptor(upstream, CUDAMEM_ADAPTOR_TRACKING, size & 2, out),
                    3 => cudamem_resource_create_logging(upstream, path, out),
                    4 => cudamem_resource_create_adaptor(upstream, CUDAMEM_ADAPTOR_RECORDING, size % 100, out),
                    5 => cudamem_resource_create_fallback(upstream, second, out),
                    6 => cudamem_resource_create_retry(upstream, flags, Some(give_up_later), ptr::null_mut(), out),
                    7 => cudamem_resource_create_adaptor(upstream, CUDAMEM_ADAPTOR_ALIGNED, 1 << (number % 14), out),
                    8 => cudamem_resource_create_failing(upstream, rules.as_ptr(), 1, out),
                    9 => cudamem_resource_create_guarded(upstream, &guards, out),
                    10 => cudamem_ring_pool_create(upstream, size, flags & 3, out),
                    11 => cudamem_resource_create_virtual(context, &memory, out),
                    _ => cudamem_resource_create_graph(context, out),
                }
            },
        );
    }

    pub(super) fn ask_adaptor(&mut self) {
        let resource = self.resource();
        let size = self.size() % (1 << 20);
        let rules = [cudamem_failure_rule { when: 1, reserved: 0, number: 7, probability: 0.0 }];
        let text = |id| cudamem_text { id };
        let turn = self.byte();
        // SAFETY: the structs are as large as they say, and there is one rule.
        unsafe {
            match self.byte() % 8 {
                0 => self.fill(|counts| cudamem_resource_get_counts(resource, counts)),
                1 => self.fill(|info| cudamem_resource_get_info(resource, info)),
                2 => self.tell(|out| cudamem_resource_get_report(resource, out, None)),
                3 => self.make(
                    text,
                    |made| made.id,
                    |out| match out {
                        None => CUDAMEM_ERROR_INVALID_ARGUMENT,
                        out => cudamem_resource_get_report(resource, None, out),
                    },
                ),
                4 => self.tell(|out| cudamem_resource_flush_log(resource, out)),
                5 => self.fill(|statistics| cudamem_pool_get_statistics(resource, statistics)),
                choice => {
                    let status = match choice % 2 + turn % 3 * 2 {
                        0 => cudamem_resource_set_limit(resource, size),
                        1 => cudamem_resource_set_failures(resource, rules.as_ptr(), 1),
                        2 => cudamem_pool_release_unused(resource),
                        3 => cudamem_pool_trim(resource, size % 64),
                        _ => cudamem_pool_reserve(resource, size % (1 << 16)),
                    };
                    self.count(status);
                }
            }
        }
    }

    pub(super) fn use_sources(&mut self) {
        let (context, resource, stream) = (self.context(), self.resource(), self.stream());
        let (physical, buffer, graph) = (self.physical(), self.buffer(), self.graph());
        let executable = self.executable();
        let (offset, size) = (self.size(), self.size() % (1 << 23));
        let flags = u32::from(self.byte() % 9);
        let wrap: fn(u64) -> cudamem_buffer = |id| cudamem_buffer { id };
        let id: fn(cudamem_buffer) -> u64 = |made| made.id;
        let options = cudamem_physical_options {
            size: size_of::<cudamem_physical_options>(),
            location: flags as i32 / 3,
            node: 0,
            flags,
            reserved: 0,
        };
        match self.byte() % 16 {
            // SAFETY: the options are as large as they say.
            0 => self.make(
                |id| cudamem_physical { id },
                |made| made.id,
                |out| unsafe { cudamem_physical_create(context, size, &options, out) },
            ),
            1 => self.tell(|out| cudamem_physical_get_size(physical, out)),
            2 => self.export(physical),
            // SAFETY: the list has one handle.
            3 => self.make(wrap, id, |out| unsafe { cudamem_resource_map(resource, &physical, 1, stream, out) }),
            4 | 5 => self.make(wrap, id, |out| cudamem_buffer_create_growable(resource, size, stream, out)),
            6 | 7 => self.tell(|out| cudamem_buffer_grow(buffer, size, out)),
            // SAFETY: the struct is as large as it says.
            8 => self.fill(|info| unsafe { cudamem_buffer_get_info(buffer, info) }),
            9 => self.register(stream, flags & 5),
            // SAFETY: as above.
            10 => self.fill(|info| unsafe { cudamem_buffer_get_managed_info(buffer, offset, size, info) }),
            11 => self.make(
                |id| cudamem_graph { id },
                |made| made.id,
                |out| {
                    let answer = ptr::without_provenance_mut(usize::from(flags == 0));
                    cudamem_graph_capture(stream, CUDAMEM_CAPTURE_RELAXED, Some(record_nothing), answer, out)
                },
            ),
            12 => self.make(
                |id| cudamem_executable { id },
                |made| made.id,
                |out| cudamem_graph_instantiate(graph, flags % 3, out),
            ),
            13 => self.tell(|out| cudamem_graph_get_node_count(graph, out)),
            choice => {
                let status = match (choice, flags) {
                    (14, _) => cudamem_executable_launch(executable, stream),
                    (_, 0..3) => cudamem_buffer_shrink(buffer, size),
                    (_, 3..6) => cudamem_buffer_advise(buffer, offset, size, flags as i32, 1, 0),
                    _ => cudamem_buffer_prefetch(buffer, offset, size, flags as i32 - 6, 0),
                };
                self.count(status);
            }
        }
    }

    fn export(&mut self, physical: cudamem_physical) {
        let mut file = MaybeUninit::new(-1);
        let status = cudamem_physical_export(physical, Some(&mut file));
        if self.count(status) {
            // SAFETY: the call wrote the descriptor, and the program must close it.
            drop(unsafe { OwnedFd::from_raw_fd(file.assume_init()) });
        }
    }

    fn register(&mut self, stream: cudamem_stream, flags: u32) {
        let own = Box::into_raw(Box::new([0u8; REGISTERED])).cast::<c_void>();
        let mut place = MaybeUninit::new(cudamem_buffer { id: 0 });
        // SAFETY: the memory lives until the library releases it.
        let status =
            unsafe { cudamem_buffer_register(own, REGISTERED, stream, flags, Some(free_box), own, Some(&mut place)) };
        // SAFETY: the place holds its initial value, or the value that the call wrote.
        let made = unsafe { place.assume_init() };
        if self.count(status) {
            self.handles.push(made.id);
        } else {
            assert_eq!(made.id, 0, "a result of a call that failed: {}", last_message());
            free_box(own);
        }
    }
}
