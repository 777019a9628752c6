//! The C library's objects as values that destroy themselves. Tests of its functions use them.

mod sharing;

use crate::c_calls::last_message;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::{fmt, ptr};
use cudamem::buffer::*;
use cudamem::channel::*;
use cudamem::context::*;
use cudamem::engine::*;
use cudamem::event::*;
use cudamem::handles::*;
use cudamem::mapped::*;
use cudamem::objects::cudamem_record_use;
use cudamem::pool::*;
use cudamem::pool_figures::*;
use cudamem::resource::*;
use cudamem::sharing::*;
use cudamem::status::*;
use cudamem::stream::*;
use cudamem::virtual_memory::*;

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    /// What it returned.
    pub status: cudamem_status,
    /// The thread's message.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}: {}", self.status, self.text)
    }
}

impl std::error::Error for Failure {}

/// The result of a call.
pub type Result<T = ()> = core::result::Result<T, Failure>;

/// Checks a call that returns nothing but its status.
///
/// # Errors
///
/// It failed.
pub fn done(status: cudamem_status) -> Result {
    if status == CUDAMEM_SUCCESS { Ok(()) } else { Err(Failure { status, text: last_message() }) }
}

/// Makes a call that returns a value.
///
/// # Errors
///
/// It failed.
pub fn told<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> cudamem_status) -> Result<T> {
    let mut place = MaybeUninit::uninit();
    done(call(Some(&mut place)))?;
    // SAFETY: the call worked and wrote its result.
    Ok(unsafe { place.assume_init() })
}

macro_rules! owned {
    ($($(#[$doc:meta])* $name:ident: $handle:ident, $destroy:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub $handle);

        impl FromCall for $name {
            type Raw = $handle;
            fn from_call(call: impl FnOnce(Option<&mut MaybeUninit<$handle>>) -> cudamem_status) -> Result<Self> {
                told(call).map(Self)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let ended = done($destroy(self.0));
                assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
            }
        }
    )* };
}

owned! {
    /// A context.
    Context: cudamem_context, cudamem_context_destroy;
    /// A stream.
    Stream: cudamem_stream, cudamem_stream_destroy;
    /// An event.
    Event: cudamem_event, cudamem_event_destroy;
    /// A source of memory.
    Resource: cudamem_resource, cudamem_resource_destroy;
    /// A buffer.
    Buffer: cudamem_buffer, cudamem_buffer_destroy;
    /// A copy engine.
    Engine: cudamem_engine, cudamem_engine_destroy;
    /// An export.
    Export: cudamem_export, cudamem_export_destroy;
    /// A channel.
    Channel: cudamem_channel, cudamem_channel_destroy;
}

/// Methods that each call one function. The header documents the function.
macro_rules! methods {
    ($name:ident {
        $($method:ident($($argument:ident: $type:ty = $pass:expr),*) -> $result:ty = $function:ident;)*
    }) => {
        impl $name { $(
            #[doc = concat!("`", stringify!($function), "`.")]
            ///
            /// # Errors
            ///
            /// The call failed.
            pub fn $method(&self $(, $argument: $type)*) -> Result<$result> {
                <$result as FromCall>::from_call(|place| $function(self.0 $(, $pass)*, place))
            }
        )* }
    };
}

/// Converts a raw result into the method's result.
trait FromCall: Sized {
    type Raw;
    fn from_call(call: impl FnOnce(Option<&mut MaybeUninit<Self::Raw>>) -> cudamem_status) -> Result<Self>;
}

macro_rules! values {
    ($($type:ty),*) => { $(
        impl FromCall for $type {
            type Raw = $type;
            fn from_call(call: impl FnOnce(Option<&mut MaybeUninit<$type>>) -> cudamem_status) -> Result<Self> {
                told(call)
            }
        }
    )* };
}

values!(bool, usize, u32, u64, *mut c_void);

impl Context {
    /// Opens the first device's primary context on the driver that the tests use.
    ///
    /// # Errors
    ///
    /// There is no device.
    pub fn open() -> Result<Self> {
        crate::c_calls::load();
        Self::from_call(|place| cudamem_context_open_primary(0, place))
    }

    /// A stream.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn stream(&self) -> Result<Stream> {
        // SAFETY: no options.
        Stream::from_call(|place| unsafe { cudamem_stream_create(self.0, ptr::null(), place) })
    }

    /// Creates a pool of the driver's. `flags` are those of the options.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn driver_pool(&self, memory: i32, flags: u32) -> Result<Resource> {
        let options = cudamem_driver_pool_options {
            size: size_of::<cudamem_driver_pool_options>(),
            memory,
            flags,
            max_size: 0,
            release_threshold: 0,
            numa_node: 0,
            reserved: 0,
        };
        // SAFETY: the options are as large as they say.
        Resource::from_call(|place| unsafe { cudamem_resource_create_driver_pool(self.0, &options, place) })
    }
}

impl Context {
    /// Creates virtual memory, of the host on the NUMA node 0. `location` and `flags` are those of the options.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn virtual_memory(&self, location: i32, flags: u32) -> Result<Resource> {
        let options = cudamem_virtual_options {
            size: size_of::<cudamem_virtual_options>(),
            alignment: 0,
            address_hint: 0,
            peers: ptr::null(),
            peer_count: 0,
            location,
            node: 0,
            flags,
            reserved: 0,
        };
        // SAFETY: the options are as large as they say, and name no peers.
        Resource::from_call(|place| unsafe { cudamem_resource_create_virtual(self.0, &options, place) })
    }
}
impl Context {
    /// Calls `cudamem_engine_create` without options.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn engine(&self) -> Result<Engine> {
        // SAFETY: there are no options.
        Engine::from_call(|place| unsafe { cudamem_engine_create(self.0, ptr::null(), place) })
    }
}
methods!(Context {
    device_memory() -> Resource = cudamem_resource_create_device;
    pinned_memory(flags: u32 = flags) -> Resource = cudamem_resource_create_pinned;
    managed_memory(flags: u32 = flags) -> Resource = cudamem_resource_create_managed;
    mapped_memory(coherence: i32 = coherence) -> Resource = cudamem_resource_create_mapped;
    event(flags: u32 = flags) -> Event = cudamem_event_create;
    import_pool(export: &Export = export.0) -> Resource = cudamem_resource_import;
    import_event(export: &Export = export.0) -> Event = cudamem_event_import;
});

impl Stream {
    /// Waits for the stream's work.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn synchronize(&self) -> Result {
        done(cudamem_stream_synchronize(self.0))
    }

    /// Delays the stream's work for a short time.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn delay(&self) -> Result {
        extern "C" fn sleep(_: *mut c_void) {
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        done(cudamem_stream_launch_host_function(self.0, Some(sleep), ptr::null_mut()))
    }
}

methods!(Event { export() -> Export = cudamem_event_export; });

methods!(Resource {
    allocate(size: usize = size, stream: &Stream = stream.0) -> Buffer = cudamem_buffer_allocate;
    export() -> Export = cudamem_resource_export;
    import_buffer(export: &Export = export.0, stream: &Stream = stream.0) -> Buffer = cudamem_buffer_import;
});

/// Makes a call that fills a struct of results, whose first field is its size.
///
/// # Errors
///
/// It failed.
pub fn filled<T>(call: impl FnOnce(*mut T) -> cudamem_status) -> Result<T> {
    let mut results = MaybeUninit::<T>::zeroed();
    // SAFETY: structs of results begin with their size.
    unsafe { results.as_mut_ptr().cast::<usize>().write(size_of::<T>()) };
    done(call(results.as_mut_ptr()))?;
    // SAFETY: they consist of numbers and addresses, for which zero is a valid value.
    Ok(unsafe { results.assume_init() })
}

/// `cudamem_buffer_export` for memory that is not virtual.
fn export_buffer(buffer: cudamem_buffer, exported: Option<&mut MaybeUninit<cudamem_export>>) -> cudamem_status {
    cudamem_buffer_export(buffer, cudamem_resource { id: 0 }, exported)
}

impl Buffer {
    /// Returns the size in bytes.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn size(&self) -> Result<usize> {
        self.info().map(|info| info.length)
    }

    /// `cudamem_buffer_get_info`.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn info(&self) -> Result<cudamem_buffer_info> {
        // SAFETY: the struct is as large as it says.
        filled(|info| unsafe { cudamem_buffer_get_info(self.0, info) })
    }

    /// `cudamem_record_use`.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn record_use(&self, stream: &Stream) -> Result {
        done(cudamem_record_use(self.0.id, stream.0))
    }
}

/// The usual options of a pool, with a maximum size in bytes; 0 means no limit.
pub fn pool_options(maximum: u64) -> cudamem_pool_options {
    cudamem_pool_options {
        size: size_of::<cudamem_pool_options>(),
        initial: 0,
        smallest_growth: 0,
        largest_growth: 0,
        maximum,
        cache_capacity: 0,
        trace_capacity: 0,
        growth_factor: 0.0,
        reuse: 0,
        flags: 0,
        on_out_of_memory: None,
        user: ptr::null_mut(),
    }
}

impl Resource {
    /// Returns who may address the memory.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn access(&self) -> Result<u32> {
        // SAFETY: the struct is as large as it says.
        filled(|info| unsafe { cudamem_resource_get_info(self.0, info) }).map(|info| info.access)
    }

    /// A pool over the resource with a maximum size in bytes; 0 means no limit.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn pool(&self, maximum: u64) -> Result<Resource> {
        let options = pool_options(maximum);
        // SAFETY: the options are as large as they say.
        Resource::from_call(|place| unsafe { cudamem_pool_create(self.0, &options, place) })
    }

    /// Returns a pool's statistics.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn statistics(&self) -> Result<cudamem_pool_statistics> {
        // SAFETY: the struct is as large as it says.
        filled(|statistics| unsafe { cudamem_pool_get_statistics(self.0, statistics) })
    }

    /// Releases a pool's unused memory.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn release_unused(&self) -> Result {
        done(cudamem_pool_release_unused(self.0))
    }
}

methods!(Buffer {
    device_pointer() -> u64 = cudamem_buffer_get_device_pointer;
    host_pointer() -> *mut c_void = cudamem_buffer_get_host_pointer;
    slice(offset: usize = offset, size: usize = size) -> Buffer = cudamem_buffer_slice;
    equals(other: &Buffer = other.0) -> bool = cudamem_buffer_equals;
    export() -> Export = export_buffer;
    export_of(resource: &Resource = resource.0) -> Export = cudamem_buffer_export;
    load_u32(offset: usize = offset) -> u32 = cudamem_buffer_load_u32;
    load_u64(offset: usize = offset) -> u64 = cudamem_buffer_load_u64;
});

/// Calls without a result.
macro_rules! plain {
    ($name:ident { $($method:ident($($argument:ident: $type:ty = $pass:expr),*) = $function:ident;)* }) => {
        impl $name { $(
            #[doc = concat!("`", stringify!($function), "`.")]
            ///
            /// # Errors
            ///
            /// The call failed.
            pub fn $method(&self $(, $argument: $type)*) -> Result {
                done($function(self.0 $(, $pass)*))
            }
        )* }
    };
}

plain!(Buffer {
    copy(offset: usize = offset, source: &Buffer = source.0, from: usize = from, size: usize = size) = cudamem_buffer_copy;
    set_stream(stream: &Stream = stream.0) = cudamem_buffer_set_stream;
    synchronize() = cudamem_buffer_synchronize;
    flush(offset: usize = offset, size: usize = size) = cudamem_buffer_flush;
    invalidate(offset: usize = offset, size: usize = size) = cudamem_buffer_invalidate;
    store_u32(offset: usize = offset, word: u32 = word) = cudamem_buffer_store_u32;
    store_u64(offset: usize = offset, word: u64 = word) = cudamem_buffer_store_u64;
});

plain!(Channel { send(export: &Export = export.0) = cudamem_channel_send; });

plain!(Stream { wait(event: &Event = event.0) = cudamem_stream_wait_event; });

plain!(Event { record(stream: &Stream = stream.0) = cudamem_event_record; });

/// Calls that copy a slice of bytes from or to the program.
macro_rules! copies {
    ($name:ident { $(write $write:ident = $write_function:ident;)* $(read $read:ident = $read_function:ident;)* }) => {
        impl $name {
            $(
                #[doc = concat!("`", stringify!($write_function), "`.")]
                ///
                /// # Errors
                ///
                /// The call failed.
                pub fn $write(&self, offset: usize, source: &[u8]) -> Result {
                    // SAFETY: the slice has that many bytes.
                    done(unsafe { $write_function(self.0, offset, source.as_ptr().cast(), source.len()) })
                }
            )*
            $(
                #[doc = concat!("`", stringify!($read_function), "`.")]
                ///
                /// # Errors
                ///
                /// The call failed.
                pub fn $read(&self, offset: usize, destination: &mut [u8]) -> Result {
                    let (place, size) = (destination.as_mut_ptr().cast(), destination.len());
                    // SAFETY: the slice has that many bytes.
                    done(unsafe { $read_function(self.0, offset, place, size) })
                }
            )*
        }
    };
}

copies!(Buffer {
    write write = cudamem_buffer_write;
    write store = cudamem_buffer_store;
    read read = cudamem_buffer_read;
    read load = cudamem_buffer_load;
});

impl Buffer {
    /// Fills a range with a value.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn fill(&self, offset: usize, size: usize, value: &[u8]) -> Result {
        // SAFETY: the slice has that many bytes.
        done(unsafe { cudamem_buffer_fill(self.0, offset, size, value.as_ptr().cast(), value.len()) })
    }
}

impl Engine {
    /// Writes a buffer.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn write_buffer(&self, buffer: &Buffer, offset: usize, source: &[u8]) -> Result {
        // SAFETY: the slice has that many bytes.
        done(unsafe {
            cudamem_engine_write_buffer(self.0, buffer.0, offset, source.as_ptr().cast(), source.len(), ptr::null())
        })
    }

    /// Reads a buffer.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub fn read_buffer(&self, buffer: &Buffer, offset: usize, destination: &mut [u8]) -> Result {
        let (place, size) = (destination.as_mut_ptr().cast(), destination.len());
        // SAFETY: the slice has that many bytes.
        done(unsafe { cudamem_engine_read_buffer(self.0, buffer.0, offset, place, size, ptr::null()) })
    }
}
