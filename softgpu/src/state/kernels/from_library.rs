//! Code that a shared library exports under the names of kernels: `SOFTGPU_KERNELS` names the library.

use super::code::{Code, Wrong, kept};
use super::launch::Launch;
use super::registered::KernelLaunch;
use crate::call::host_function;
use crate::state::checks::races::Touched;
use crate::state::memory::{Range, Use};
use crate::sync::lock;
use cuda_sys::CUresult;
use std::ffi::{CStr, CString, c_int, c_uint, c_ulonglong, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

/// An open library, which stays open: its functions may run at any time.
#[derive(Debug)]
pub(crate) struct CodeLibrary {
    handle: NonNull<c_void>,
    /// The address of the system's entry for it, which no other library has.
    entry: usize,
}

// SAFETY: the handle is only passed to dlsym, which any thread may call.
unsafe impl Send for CodeLibrary {}
// SAFETY: as above.
unsafe impl Sync for CodeLibrary {}

/// A launch, as C code sees it. The guide declares the same structure.
#[repr(C)]
struct CLaunch {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    parameters: c_uint,
    memory: unsafe extern "C" fn(*const CLaunch, c_ulonglong, usize) -> *mut c_void,
    set_condition: unsafe extern "C" fn(*const CLaunch, c_ulonglong, c_uint) -> c_int,
}

/// What softgpu knows beside it.
#[repr(C)]
struct Running<'launch> {
    shown: CLaunch,
    launch: KernelLaunch<'launch>,
    /// The memory whose address the code got. The code may have threads.
    used: Mutex<Vec<Range>>,
    wrong: Mutex<Option<Wrong>>,
}

type Function = unsafe extern "C" fn(*mut *mut c_void, *const CLaunch);

impl CodeLibrary {
    /// Opens a library. The error says why it cannot be opened.
    pub(crate) fn open(path: &str) -> Result<Self, String> {
        let c_path = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: the argument is a C string. The library's initialisers are the program's responsibility.
        let handle = NonNull::new(unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) });
        let handle = handle.ok_or_else(last_error)?;
        let mut entry = ptr::null_mut::<c_void>();
        // SAFETY: the library is open, and the request writes a pointer.
        match unsafe { libc::dlinfo(handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut entry).cast()) } {
            0 => Ok(Self { handle, entry: entry.addr() }),
            _ => Err(last_error()),
        }
    }

    /// The code of a kernel, if the library itself exports a function of this name: its dependencies do not count.
    pub(super) fn find(&self, name: &str) -> Option<Exported> {
        let (function, _) = self.exported(name, elf::abi::STT_FUNC)?;
        // SAFETY: who names the library promises that it exports functions of this type under the names of kernels.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function.as_ptr()) };
        Some(Exported { name: kept(name), function })
    }

    /// The sizes of a kernel's parameters, if the library itself exports an array with them, which ends with a zero.
    pub(super) fn parameters(&self, name: &str) -> Option<Vec<usize>> {
        let (sizes, length) = self.exported(&format!("{name}_parameters"), elf::abi::STT_OBJECT)?;
        let sizes = sizes.as_ptr().cast::<usize>();
        // SAFETY: the variable has as many bytes. Of another type than size_t, it may be aligned otherwise.
        let size = |place| unsafe { sizes.add(place).read_unaligned() };
        Some((0..length / size_of::<usize>()).map(size).take_while(|size| *size != 0).collect())
    }

    /// The address and the size of what the library itself exports under a name, if it is of a kind of symbols.
    fn exported(&self, name: &str, kind: u8) -> Option<(NonNull<c_void>, usize)> {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is open, and the name is a C string.
        let found = NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })?;
        if about(found, OF_ENTRY)?.addr().get() != self.entry {
            return None;
        }
        let symbol = about(found, OF_SYMBOL)?.cast::<libc::Elf64_Sym>();
        // SAFETY: the symbol is in the table of the library, which is open.
        let symbol = unsafe { symbol.read() };
        // The upper half is the binding.
        (symbol.st_info & 0xf == kind).then_some((found, symbol.st_size as usize))
    }
}

/// What dladdr1 tells of an address, as the C library numbers it: the symbol, or the system's entry for the library.
const OF_SYMBOL: c_int = 1;
const OF_ENTRY: c_int = 2;

fn about(address: NonNull<c_void>, what: c_int) -> Option<NonNull<c_void>> {
    let (mut about, mut found) = (MaybeUninit::<libc::Dl_info>::uninit(), ptr::null_mut());
    // SAFETY: the call takes any address, and writes both results.
    let known = unsafe { libc::dladdr1(address.as_ptr(), about.as_mut_ptr(), &mut found, what) } != 0;
    NonNull::new(found).filter(|_| known)
}

fn last_error() -> String {
    // SAFETY: the text is valid until the thread's next call of this family.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, so a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A function of the library.
pub(super) struct Exported {
    name: &'static str,
    function: Function,
}

impl Code for Exported {
    fn name(&self) -> &'static str {
        self.name
    }

    fn hold(&self, launch: &Launch) -> Vec<Range> {
        launch.pointed_to()
    }

    fn touched(&self, _launch: &Launch) -> Option<Vec<Touched>> {
        None
    }

    fn run(&self, launch: &Launch, held: &[Range]) -> Result<(), Wrong> {
        let list = launch.arguments.list();
        let launch = KernelLaunch { launch, name: self.name, held };
        let shown = CLaunch {
            grid: launch.grid(),
            block: launch.block(),
            shared: launch.shared(),
            parameters: list.len() as c_uint,
            memory,
            set_condition,
        };
        let running = Running { shown, launch, used: Mutex::default(), wrong: Mutex::default() };
        // The code gets copies, which it may change.
        let mut copies: Vec<Vec<u64>> = Vec::new();
        let mut places: Vec<*mut c_void> = Vec::new();
        for (n, _) in list.iter().enumerate() {
            let bytes = running.launch.bytes(n).unwrap_or_default();
            let mut copy = vec![0_u64; bytes.len().div_ceil(8)];
            // SAFETY: the copy has at least as many bytes.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), copy.as_mut_ptr().cast(), bytes.len()) };
            places.push(copy.as_mut_ptr().cast());
            copies.push(copy);
        }
        places.push(ptr::null_mut());
        // SAFETY: by the promise of `find`; the places and the launch live during the call.
        host_function(|| unsafe { (self.function)(places.as_mut_ptr(), (&raw const running).cast()) });
        lock(&running.wrong).map_or(Ok(()), Err)
    }
}

/// The place at which the code may access device memory; null if the device has no such memory there, which then becomes
/// the context's error.
unsafe extern "C" fn memory(launch: *const CLaunch, address: c_ulonglong, size: usize) -> *mut c_void {
    // SAFETY: the code passes the launch that it got, which begins this structure.
    let running = unsafe { &*launch.cast::<Running<'_>>() };
    let find = |purpose| running.launch.memory(address, size, 1, purpose);
    match find(Use::Write).or_else(|_| find(Use::Read)) {
        Ok(range) => {
            range.check_flushed(running.launch.name);
            let place = ptr::with_exposed_provenance_mut(range.address);
            lock(&running.used).push(range);
            place
        }
        Err(wrong) => {
            *lock(&running.wrong) = Some((wrong.address, wrong.code));
            ptr::null_mut()
        }
    }
}

/// Sets the value of a conditional handle. Returns 0, or 1 if there is no such handle.
unsafe extern "C" fn set_condition(launch: *const CLaunch, handle: c_ulonglong, value: c_uint) -> c_int {
    // SAFETY: as in `memory`.
    let running = unsafe { &*launch.cast::<Running<'_>>() };
    match running.launch.set_condition(handle, value) {
        Ok(()) => 0,
        Err(_) => {
            *lock(&running.wrong) = Some((handle, CUresult::CUDA_ERROR_LAUNCH_FAILED));
            1
        }
    }
}
