//! The driver's state: devices, contexts, streams, events, memory. The functions in `api` work on it.
//!
//! Each room uses only rooms above it in this table. `streams` and `graphs` use each other: a stream records its work
//! into the graph of its capture, and the launch of a graph queues its work on a stream.
//!
//! | room | contents |
//! |---|---|
//! | [`handle`] | handles, and the tables of what they name |
//! | [`backing`] | mapped address ranges, memory files, how much of a memory is taken |
//! | [`checks`] | races between streams; the CPU's use of memory that is freed or the device's |
//! | [`contexts`] | contexts, their locks, limits and channels; the queues of streams |
//! | [`pools`] | what pools have handed out, who may use it, the current pools of places |
//! | [`memory`] | all allocations by address, also virtual memory and the memory of graphs |
//! | [`devices`] | the machine's devices, and which of them the program sees |
//! | [`modules`] | what device code declares, and modules and libraries of it |
//! | [`sharing`] | other processes (IPC) and other APIs |
//! | [`streams`], [`graphs`] | streams and events; captures, graphs, launches, user objects |
//! | [`kernels`], [`copies`] | the work of devices: code of kernels, and their launches; copies and fills |
//!
//! [`Global`] holds the tables of all rooms, whose functions get it as an argument.

pub(crate) mod backing;
pub(crate) mod checks;
pub(crate) mod contexts;
pub(crate) mod copies;
pub(crate) mod devices;
pub(crate) mod graphs;
pub(crate) mod handle;
pub(crate) mod kernels;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod pools;
pub(crate) mod sharing;
pub(crate) mod streams;

use crate::call::{Result, refuse};
use crate::ledger::{Ledger, ledger};
use crate::misuse;
use crate::rig;
use crate::settings::{self, Settings, SettingsError};
use crate::sync::lock;
use crate::vkgdr::{Handle as VkgdrHandle, MappedMemory};
use crate::vulkan::Vulkan;
use backing::{Store, freed};
use checks::{access_fault, races};
use contexts::{Context, gate, queue};
use cuda_sys::{CUcontext, CUdevice, CUmemLocation, CUmemLocationType, CUresult};
use devices::{Device, identity, visible};
use graphs::capture::{self, Captures};
use graphs::{Conditions, Executable, Graph, GraphOfNode, UserObject};
use handle::{Handles, next_sequence};
use kernels::CodeLibrary;
use memory::virtual_memory::{Physical, Reservations};
use memory::{Allocation, GraphMemory, Memory, Origin};
use modules::{Function, Kernel, Library, Link, Module};
use once_cell::sync::OnceCell;
use pools::{Place, PlacePools, Pool};
use sharing::{ExternalMemory, Semaphore};
use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use streams::{Event, Stream};

/// The state of one start of the driver.
#[derive(Debug)]
pub(crate) struct Global {
    /// The number of the start.
    pub(crate) generation: u64,
    pub(crate) settings: Settings,
    pub(crate) devices: Vec<Device>,
    /// The host's memory, from which pinned and managed memory are taken.
    pub(crate) host: Arc<Store>,
    pub(crate) contexts: Handles<Context>,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) memory: Memory,
    pub(crate) externals: Handles<ExternalMemory>,
    pub(crate) pools: Handles<Pool>,
    pub(crate) place_pools: PlacePools,
    pub(crate) vkgdrs: Handles<VkgdrHandle>,
    pub(crate) mapped: Handles<MappedMemory>,
    pub(crate) physical: Handles<Physical>,
    pub(crate) reservations: Reservations,
    pub(crate) semaphores: Handles<Semaphore>,
    /// The addresses of opened memory of other processes, by file and by the device for which it was opened.
    pub(crate) opened: Mutex<HashMap<(u64, usize), u64>>,
    pub(crate) modules: Handles<Module>,
    pub(crate) functions: Handles<Function>,
    pub(crate) libraries: Handles<Library>,
    pub(crate) kernels: Handles<Kernel>,
    pub(crate) links: Handles<Link>,
    /// The library with the code of kernels that the settings name.
    pub(crate) kernel_library: Option<CodeLibrary>,
    pub(crate) captures: Captures,
    pub(crate) graphs: Handles<Graph>,
    pub(crate) graph_of_node: GraphOfNode,
    pub(crate) conditions: Conditions,
    pub(crate) executables: Handles<Executable>,
    pub(crate) user_objects: Handles<UserObject>,
    vulkan: OnceCell<Option<Vulkan>>,
}

/// The state of the present start. Values that were stored here are never freed, so references to them stay valid.
static GLOBAL: AtomicPtr<Global> = AtomicPtr::new(std::ptr::null_mut());
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// Locked while the driver starts or is reset.
static STARTING: Mutex<()> = Mutex::new(());

impl Global {
    #[inline]
    pub(crate) fn get() -> Result<&'static Self> {
        // SAFETY: the pointer is null or came from Box::leak in `start`; nothing frees it.
        unsafe { GLOBAL.load(Ordering::Acquire).as_ref() }.ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    /// Starts the driver unless it has started already.
    pub(crate) fn start() -> Result {
        if Self::get().is_ok() {
            return Ok(());
        }
        let settings = rig::read_environment().and_then(|()| settings::chosen()).map_err(|error| {
            eprintln!("{error}");
            CUresult::CUDA_ERROR_INVALID_VALUE
        })?;
        // Before the lock: an initialiser of the library may start the driver.
        let kernel_library = settings.kernels.as_deref().map(open_kernels).transpose()?;
        let _starting = lock(&STARTING);
        if Self::get().is_ok() {
            return Ok(());
        }
        watch_forks();
        freed::set_quarantine(settings.quarantine);
        queue::set_seed(settings.seed);
        races::set(settings.races);
        gate::set(settings.locks);
        if settings.strict || settings.quarantine > 0 {
            access_fault::install();
        }
        let vulkan = OnceCell::new();
        let uuid = |unit| identity(unit, open_vulkan(&vulkan, &settings));
        let seen = match &settings.visible {
            Some(list) => visible(list, settings.devices, uuid),
            None => (0..settings.devices).collect(),
        };
        if seen.is_empty() {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        GLOBAL.store(Box::leak(Box::new(Self::new(settings, seen, vulkan, kernel_library))), Ordering::Release);
        Ok(())
    }

    fn new(
        settings: Settings,
        seen: Vec<usize>,
        vulkan: OnceCell<Option<Vulkan>>,
        kernel_library: Option<CodeLibrary>,
    ) -> Self {
        let contexts = Handles::new(1);
        let pools = Handles::new(5);
        let device = |index| {
            let of_device =
                CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: index as CUdevice };
            let sequence = next_sequence();
            let context = Context::new(sequence, contexts.handle(sequence), index, 0, true);
            let pool = Pool::builtin(index, Place::Device, of_device);
            let pool = pools.insert(pool.sequence, pool);
            let store = Store::new(settings.memory);
            Device {
                unit: seen[index],
                graph_memory: Arc::new(GraphMemory::new(&store)),
                store,
                primary: contexts.insert(sequence, context).1,
                retained: AtomicUsize::new(0),
                turning: Mutex::default(),
                default_pool: pool.clone(),
                pool: Mutex::new(pool),
            }
        };
        Self {
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            devices: (0..seen.len()).map(device).collect(),
            host: Store::new(host_memory()),
            settings,
            contexts,
            streams: Handles::new(2),
            events: Handles::new(3),
            memory: Memory::default(),
            externals: Handles::new(4),
            pools,
            place_pools: PlacePools::default(),
            vkgdrs: Handles::new(6),
            mapped: Handles::new(7),
            physical: Handles::new(8),
            reservations: Reservations::default(),
            semaphores: Handles::new(9),
            opened: Mutex::default(),
            modules: Handles::new(10),
            functions: Handles::new(11),
            libraries: Handles::new(16),
            kernels: Handles::new(17),
            links: Handles::new(19),
            kernel_library,
            captures: Captures::default(),
            graphs: Handles::new(12),
            graph_of_node: GraphOfNode::default(),
            conditions: Conditions::default(),
            executables: Handles::new(13),
            user_objects: Handles::new(15),
            vulkan,
        }
    }

    /// The CPU Vulkan devices, if the settings want them and there are any.
    pub(crate) fn vulkan(&self) -> Option<&Vulkan> {
        open_vulkan(&self.vulkan, &self.settings)
    }

    pub(crate) fn device(&self, ordinal: CUdevice) -> Result<(usize, &Device)> {
        let index = usize::try_from(ordinal).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        let device = self.devices.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        Ok((index, device))
    }

    /// Whether one of the program's devices can access another one's memory.
    pub(crate) fn reaches(&self, device: usize, other: usize) -> bool {
        let unit = |index: usize| self.devices.get(index).map(|device| device.unit);
        unit(device).zip(unit(other)).is_some_and(|(one, other)| self.settings.peers.allow(one, other))
    }

    /// A context by its handle; it must be alive.
    pub(crate) fn context(&self, handle: CUcontext) -> Result<Arc<Context>> {
        let handle = handle.addr() as u64;
        match self.contexts.get(handle) {
            Some(context) if context.is_alive() => Ok(context),
            None if !self.contexts.was_given(handle) => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            _ => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
        }
    }

    /// A context by its handle. For a destroyed context, returns a placeholder that is not alive.
    pub(crate) fn context_or_ended(&self, handle: CUcontext) -> Result<Arc<Context>> {
        let number = handle.addr() as u64;
        match self.contexts.get(number) {
            Some(context) => Ok(context),
            None if self.contexts.was_given(number) => Ok(Arc::new(Context::ended(number))),
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    }

    /// Ends a context's life, waits for its work, and frees everything that it owns.
    pub(crate) fn end_context(&self, context: &Arc<Context>) {
        if context.end() {
            self.empty_context(context);
            if !context.primary {
                self.contexts.remove(context.handle);
            }
        }
    }

    /// Waits for a context's work, and frees everything that it owns.
    fn empty_context(&self, context: &Arc<Context>) {
        let held = |by: &Arc<Context>| Arc::ptr_eq(by, context);
        context.synchronize();
        for stream in self.streams.remove_where(|stream| held(&stream.context)) {
            capture::forget(self, &stream);
            stream.close();
        }
        capture::forget_context(self, context);
        context.close();
        self.executables.remove_where(|executable| held(&executable.context));
        self.graphs.remove_where(|graph| held(&graph.context));
        self.events.remove_where(|event| held(&event.context));
        self.memory.remove_where(|block| block.context.as_ref().is_some_and(held));
        self.externals.remove_where(|memory| held(&memory.context));
        self.semaphores.remove_where(|semaphore| held(&semaphore.context));
        self.links.remove_where(|link| held(&link.context));
        self.modules.remove_where(|module| held(&module.context));
        self.functions.remove_where(|function| held(&function.context));
    }
}

/// The library with the code of kernels that the settings name.
fn open_kernels(path: &str) -> Result<CodeLibrary> {
    CodeLibrary::open(path).map_err(|error| {
        let want = format!("a shared library that can be loaded: {error}").into();
        eprintln!("{}", SettingsError { name: "SOFTGPU_KERNELS", value: path.to_owned(), want });
        CUresult::CUDA_ERROR_INVALID_VALUE
    })
}

/// The CPU Vulkan devices, opened at the first use.
fn open_vulkan<'a>(vulkan: &'a OnceCell<Option<Vulkan>>, settings: &Settings) -> Option<&'a Vulkan> {
    vulkan.get_or_init(|| settings.vulkan.then(Vulkan::open).flatten()).as_ref()
}

/// The size of the host's memory in bytes.
fn host_memory() -> u64 {
    // SAFETY: these calls only return numbers.
    let [pages, page] = unsafe { [libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)] };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page).unwrap_or(0))
}

/// In a forked child, makes the driver answer CUDA_ERROR_NOT_INITIALIZED for good: the child has none of its threads.
fn watch_forks() {
    extern "C" fn in_child() {
        refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    static WATCH: Once = Once::new();
    // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// The number of the present start, which no other start has; `None` before the first cuInit and after a [`reset`].
///
/// ```
/// assert_eq!(softgpu::start_number(), None);
/// // SAFETY: the function takes any number.
/// unsafe { softgpu::FUNCTIONS.cuInit.unwrap()(0) };
/// assert!(softgpu::start_number().is_some());
/// softgpu::reset();
/// assert_eq!(softgpu::start_number(), None);
/// ```
pub fn start_number() -> Option<u64> {
    Global::get().ok().map(|global| global.generation)
}

/// Ends everything: the driver is as before cuInit, and every handle is stale. Returns the objects that were alive.
///
/// For tests. The next cuInit starts the driver again, with the settings of that moment; in cuda-mem, `Driver::software`,
/// `Driver::load` and `Context::open` call it. Calls with objects from before then fail, and their end frees nothing.
/// Memory of theirs that the CPU may address stays, because the program may hold slices of it: keep none over many resets.
///
/// Queued work finishes first; waits for words in memory give up. A few bytes of the ended state are never freed, so that
/// calls under way on other threads do no harm.
pub fn reset() -> Ledger {
    let _starting = lock(&STARTING);
    let left = ledger();
    let Ok(global) = Global::get() else { return left };
    GLOBAL.store(std::ptr::null_mut(), Ordering::Release);
    keep_what_the_cpu_addresses(global);
    for context in global.contexts.all() {
        global.end_context(&context);
    }
    global.user_objects.remove_where(|_| true);
    global.memory.remove_where(|_| true);
    lock(&global.reservations).clear();
    global.physical.remove_where(|_| true);
    global.mapped.remove_where(|_| true);
    global.vkgdrs.remove_where(|_| true);
    lock(&global.place_pools).clear();
    global.pools.remove_where(|_| true);
    misuse::forget();
    rig::forget_sticky();
    left
}

/// Leaks memory that the program may still read and write by addresses of its own.
fn keep_what_the_cpu_addresses(global: &Global) {
    let hosts = [Origin::Host, Origin::Managed, Origin::ManagedVariable, Origin::Mapped];
    let is_hosts = |block: &Allocation| {
        hosts.contains(&block.origin) || block.pool.as_ref().is_some_and(|pool| pool.place != Place::Device)
    };
    global.memory.each(Arc::clone).into_iter().filter(|block| is_hosts(block)).for_each(std::mem::forget);
    global.mapped.all().into_iter().for_each(std::mem::forget);
}
