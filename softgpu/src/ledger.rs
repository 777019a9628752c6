//! The ledger: a list of all live objects.

use crate::state::Global;
use crate::state::memory::Origin;
use crate::sync::lock;
use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The kinds of objects that a program can leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A retained primary context.
    PrimaryContext,
    /// A context made by cuCtxCreate.
    Context,
    /// A stream.
    Stream,
    /// An event.
    Event,
    /// Memory of cuMemAlloc or cuMemAllocPitch.
    DeviceMemory,
    /// Memory of cuMemAllocHost or cuMemHostAlloc.
    HostMemory,
    /// Memory that cuMemHostRegister pinned.
    RegisteredMemory,
    /// Memory of cuMemAllocManaged.
    ManagedMemory,
    /// Memory of a pool.
    PoolMemory,
    /// Memory that a graph allocated and that has not been freed.
    GraphMemory,
    /// A pool.
    Pool,
    /// An import of cuImportExternalMemory.
    ExternalMemory,
    /// A mapping of cuExternalMemoryGetMappedBuffer.
    MappedBuffer,
    /// Reserved addresses.
    Reservation,
    /// Physical memory of cuMemCreate.
    PhysicalMemory,
    /// A mapping of physical memory.
    Mapping,
    /// Memory that cuIpcOpenMemHandle opened.
    IpcMemory,
    /// An import of cuImportExternalSemaphore.
    Semaphore,
    /// A graph, including one that a stream still records.
    Graph,
    /// A graph made ready for launches.
    ExecutableGraph,
    /// A user object, which graphs can hold.
    UserObject,
    /// A module.
    Module,
    /// A library of device code.
    Library,
    /// A link of device code.
    Link,
    /// A variable of a module or a library.
    Variable,
    /// An open vkgdr handle.
    Vkgdr,
    /// An allocation of vkgdr.
    VkgdrMemory,
}

/// One live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Its number, in the order in which all objects were made.
    pub sequence: u64,
    /// Its device.
    pub device: usize,
    /// Its address, or its handle.
    pub handle: u64,
    /// Its size in bytes; 0 for kinds that have no size.
    pub size: usize,
    /// How often a primary context is retained; 1 for all other kinds.
    pub uses: usize,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {:?} {:#x} on device {}", self.sequence, self.kind, self.handle, self.device)?;
        if self.size > 0 {
            write!(f, ", {} bytes", self.size)?;
        }
        if self.uses > 1 {
            write!(f, ", retained {} times", self.uses)?;
        }
        Ok(())
    }
}

/// The objects that were alive at one moment, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The live objects.
    pub entries: Vec<Entry>,
}

impl Ledger {
    /// Whether nothing is alive.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many objects are alive.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many objects of a kind are alive.
    pub fn count(&self, kind: Kind) -> usize {
        self.entries.iter().filter(|entry| entry.kind == kind).count()
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing is alive");
        }
        write!(f, "{} alive:", self.len())?;
        self.entries.iter().try_for_each(|entry| write!(f, "\n  {entry}"))
    }
}

/// Waits until no object is alive, at most as long as `limit`, and lists the objects that are alive then. For programs
/// in which other threads end objects, such as host functions, and all that use cuda-mem, whose threads do.
#[expect(clippy::must_use_candidate, reason = "a caller may want the wait alone")]
pub fn ledger_within(limit: Duration) -> Ledger {
    let begin = Instant::now();
    loop {
        let ledger = ledger();
        if ledger.is_empty() || begin.elapsed() >= limit {
            return ledger;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lists the objects that are alive now, without the driver's own, such as a device's default pool. Another thread may be
/// about to end some: [`ledger_within`] waits for it.
pub fn ledger() -> Ledger {
    let mut entries = Vec::new();
    let Ok(global) = Global::get() else { return Ledger { entries } };
    let mut add = |kind, sequence, device, handle, size| {
        entries.push(Entry { kind, sequence, device, handle, size, uses: 1 });
    };
    for context in global.contexts.all().iter().filter(|context| !context.primary) {
        add(Kind::Context, context.sequence, context.device, context.handle, 0);
    }
    for stream in global.streams.all() {
        add(Kind::Stream, stream.sequence, stream.context.device, global.streams.handle(stream.sequence), 0);
    }
    for event in global.events.all() {
        add(Kind::Event, event.sequence, event.context.device, global.events.handle(event.sequence), 0);
    }
    for pool in global.pools.all().iter().filter(|pool| !pool.builtin) {
        add(Kind::Pool, pool.sequence, pool.device, global.pools.handle(pool.sequence), 0);
    }
    for memory in global.externals.all() {
        let handle = global.externals.handle(memory.sequence);
        add(Kind::ExternalMemory, memory.sequence, memory.context.device, handle, memory.size as usize);
    }
    for semaphore in global.semaphores.all() {
        let handle = global.semaphores.handle(semaphore.sequence);
        add(Kind::Semaphore, semaphore.sequence, semaphore.context.device, handle, 0);
    }
    for graph in global.graphs.all().into_iter().filter(|graph| !graph.is_inner) {
        add(Kind::Graph, graph.sequence, graph.context.device, global.graphs.handle(graph.sequence), 0);
    }
    for graph in global.executables.all() {
        add(Kind::ExecutableGraph, graph.sequence, graph.context.device, global.executables.handle(graph.sequence), 0);
    }
    for object in global.user_objects.all() {
        add(Kind::UserObject, object.sequence, 0, global.user_objects.handle(object.sequence), 0);
    }
    for module in global.modules.all().into_iter().filter(|module| !module.of_library) {
        add(Kind::Module, module.sequence, module.context.device, global.modules.handle(module.sequence), 0);
    }
    for library in global.libraries.all() {
        add(Kind::Library, library.sequence, 0, global.libraries.handle(library.sequence), 0);
    }
    for link in global.links.all() {
        add(Kind::Link, link.sequence, link.context.device, global.links.handle(link.sequence), 0);
    }
    for (base, reservation) in lock(&global.reservations).iter() {
        add(Kind::Reservation, reservation.sequence, 0, *base, reservation.size);
    }
    for physical in global.physical.all() {
        let device = usize::try_from(physical.location.id).unwrap_or(0);
        let handle = global.physical.handle(physical.sequence);
        add(Kind::PhysicalMemory, physical.sequence, device, handle, physical.size);
    }
    for vkgdr in global.vkgdrs.all() {
        add(Kind::Vkgdr, vkgdr.sequence, vkgdr.device, global.vkgdrs.handle(vkgdr.sequence), 0);
    }
    let mapped = global.mapped.all();
    for memory in &mapped {
        let handle = global.mapped.handle(memory.sequence);
        add(Kind::VkgdrMemory, memory.sequence, memory.device(), handle, memory.size);
    }
    // The device side of vkgdr memory is listed as part of that memory.
    let own = |base: u64| mapped.iter().any(|memory| memory.device_address() == base);
    // A reference to an allocation would count as work that uses it, for a free on another thread.
    let blocks = global.memory.each(|block| {
        let kind = match block.origin {
            Origin::Device => Kind::DeviceMemory,
            Origin::Host => Kind::HostMemory,
            Origin::Registered => Kind::RegisteredMemory,
            Origin::Managed => Kind::ManagedMemory,
            Origin::Pool => Kind::PoolMemory,
            Origin::Mapped => Kind::MappedBuffer,
            Origin::Virtual => Kind::Mapping,
            Origin::Ipc => Kind::IpcMemory,
            Origin::Graph => Kind::GraphMemory,
            Origin::Variable | Origin::ManagedVariable => Kind::Variable,
        };
        (kind, block.sequence, block.device, block.base, block.size, block.graph.clone())
    });
    for (kind, sequence, device, base, size, graph) in blocks {
        if !own(base) && graph.is_none_or(|graph| graph.is_live()) {
            add(kind, sequence, device, base, size);
        }
    }
    for (device, about) in global.devices.iter().enumerate() {
        let uses = about.retained.load(Ordering::Relaxed);
        if uses > 0 {
            let context = &about.primary;
            let (kind, sequence) = (Kind::PrimaryContext, context.id.load(Ordering::Relaxed));
            entries.push(Entry { kind, sequence, device, handle: context.handle, size: 0, uses });
        }
    }
    entries.sort_by_key(|entry| entry.sequence);
    Ledger { entries }
}

/// How many objects are alive, for C programs.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn softgpu_ledger_live() -> usize {
    std::panic::catch_unwind(|| ledger().len()).unwrap_or(usize::MAX)
}

/// The live objects as text, for C programs. The caller frees the text with `free()`. Null when memory is short.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn softgpu_ledger_report() -> *mut c_char {
    std::panic::catch_unwind(|| c_text(&ledger().to_string())).unwrap_or(ptr::null_mut())
}

/// A copy of a text, which C frees with `free()`.
pub(crate) fn c_text(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text.replace('\0', "\u{fffd}")) else { return ptr::null_mut() };
    // SAFETY: the argument is a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}
