//! The environment of a case.

use cuda_mem::cuda_sys::*;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::io::Write;
use std::process::{Command, Stdio};
use std::ptr;

/// The result of a case. An error names the call without which it could not continue.
pub type Run = Result<(), Stop>;

/// Why a case ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop(pub String);

/// The short names of the codes that cases expect.
pub(crate) mod codes {
    use cuda_mem::cuda_sys::CUresult;
    pub(crate) const OK: CUresult = CUresult::CUDA_SUCCESS;
    pub(crate) const VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    pub(crate) const MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    pub(crate) const UNSTARTED: CUresult = CUresult::CUDA_ERROR_NOT_INITIALIZED;
    pub(crate) const DEVICE: CUresult = CUresult::CUDA_ERROR_INVALID_DEVICE;
    pub(crate) const CONTEXT: CUresult = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    pub(crate) const HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
}

/// Formats a code as answers show it.
pub fn text(answer: Result<CUresult, MissingSymbol>) -> String {
    match answer {
        Ok(code) => code.name().map_or_else(|| format!("code {}", code.0), str::to_owned),
        Err(_) => "missing symbol".to_owned(),
    }
}

/// Ends the case unless the call succeeded.
///
/// # Errors
///
/// The call did not succeed.
pub fn need(name: &str, answer: Result<CUresult, MissingSymbol>) -> Run {
    match answer {
        Ok(CUresult::CUDA_SUCCESS) => Ok(()),
        other => Err(Stop(format!("{name}: {}", text(other)))),
    }
}

/// A memory location.
pub(crate) fn place(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    CUmemLocation { type_: kind, id }
}

/// Device 0.
pub(crate) const DEVICE_0: CUmemLocation =
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
/// The host.
pub(crate) const HOST: CUmemLocation = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 };

/// The access of a location.
pub(crate) fn access(location: CUmemLocation, flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc { location, flags }
}

/// Properties of a pool.
pub(crate) fn pool_of(location: CUmemLocation, handles: CUmemAllocationHandleType) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: handles,
        location,
        ..Default::default()
    }
}

/// Properties of physical memory of device 0.
pub(crate) fn physical(handles: CUmemAllocationHandleType) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handles,
        location: DEVICE_0,
        ..Default::default()
    }
}

/// No handles.
pub(crate) const NO_HANDLES: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
/// File descriptors.
pub(crate) const FDS: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// Read and write.
pub(crate) const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
/// Nothing.
pub(crate) const NO_ACCESS: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
/// A megabyte.
pub(crate) const MIB: usize = 1 << 20;

type Ending = Box<dyn FnOnce(&mut Lab)>;

/// The driver, the recording of answers, and the objects of a case.
pub struct Lab {
    /// The driver under test.
    pub driver: &'static Driver,
    /// Device 0's primary context, current when the case begins; null in a bare case.
    pub context: CUcontext,
    labels: HashMap<String, u32>,
    called: HashMap<&'static str, ()>,
    endings: Vec<Ending>,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("context", &self.context).finish_non_exhaustive()
    }
}

/// Allows a case's calls on another thread.
struct Carried<T>(T);
// SAFETY: driver handles and addresses belong to the process, and `Lab::thread` waits for the thread that uses them.
unsafe impl<T> Send for Carried<T> {}

impl<T> Carried<T> {
    /// A method, so that a closure captures the whole value and not only its field.
    fn take(self) -> T {
        self.0
    }
}

impl Lab {
    /// A lab without a context.
    pub fn new(driver: &'static Driver) -> Self {
        Self { driver, context: ptr::null_mut(), labels: HashMap::new(), called: HashMap::new(), endings: Vec::new() }
    }

    /// Starts the driver and makes device 0's primary context current, once for the process.
    ///
    /// # Errors
    ///
    /// The driver does not start.
    pub fn prepare(&mut self) -> Run {
        let l = self;
        if l.context.is_null() {
            need!(l, cuInit(0))?;
            let mut context = ptr::null_mut();
            need!(l, cuDevicePrimaryCtxRetain(&mut context, 0))?;
            l.context = context;
        }
        need!(l, cuCtxSetCurrent(l.context))
    }

    /// Notes that the case called a driver function.
    pub fn called(&mut self, name: &'static str) {
        if self.called.insert(name, ()).is_none() {
            println!("@call {name}");
        }
    }

    /// Records an answer.
    pub fn say(&mut self, label: impl Into<String>, value: impl Display) {
        self.record(label.into(), value.to_string(), None);
    }

    /// Records an answer whose expected value is known.
    pub fn check(&mut self, label: impl Into<String>, value: impl Display, expected: impl Display) {
        self.record(label.into(), value.to_string(), Some(expected.to_string()));
    }

    /// Records the code of a call. Returns whether it succeeded.
    pub fn code(
        &mut self,
        label: impl Into<String>,
        answer: Result<CUresult, MissingSymbol>,
        expected: Option<CUresult>,
    ) -> bool {
        let succeeded = answer == Ok(CUresult::CUDA_SUCCESS);
        self.record(label.into(), text(answer), expected.map(|code| text(Ok(code))));
        succeeded
    }

    fn record(&mut self, label: String, value: String, expected: Option<String>) {
        let count = self.labels.entry(label.clone()).or_insert(0);
        *count += 1;
        let label = if *count > 1 { format!("{label} ({count})") } else { label };
        println!("@answer {}", serde_json::json!([label, value, expected]));
    }

    /// Whether the primary context still works. If not, records its answer.
    pub fn fit(&mut self) -> bool {
        let l = self;
        let mut answer = call!(l, cuCtxSetCurrent(l.context));
        if answer == Ok(CUresult::CUDA_SUCCESS) {
            answer = call!(l, cuCtxSynchronize());
        }
        let fit = l.context.is_null() || answer == Ok(CUresult::CUDA_SUCCESS);
        if !fit {
            l.say("the context after the case", text(answer));
        }
        fit
    }

    /// Ends the case and its remaining objects.
    pub fn end(&mut self) {
        if !self.context.is_null() {
            let l = &mut *self;
            let _ = call!(l, cuCtxSetCurrent(l.context));
        }
        while let Some(ending) = self.endings.pop() {
            ending(self);
        }
        if !self.context.is_null() {
            let l = &mut *self;
            let _ = call!(l, cuCtxSetCurrent(ptr::null_mut()));
        }
        self.labels.clear();
    }

    /// Does something in the primary context when the case ends, in reverse order.
    pub fn finally(&mut self, ending: impl FnOnce(&mut Lab) + 'static) {
        self.endings.push(Box::new(ending));
    }

    /// Device memory that ends with the case, unless the case frees it.
    ///
    /// # Errors
    ///
    /// The allocation fails.
    pub fn alloc(&mut self, size: usize) -> Result<CUdeviceptr, Stop> {
        let l = self;
        let mut address = 0;
        need!(l, cuMemAlloc_v2(&mut address, size))?;
        l.finally(move |l| drop(call!(l, cuMemFree_v2(address))));
        Ok(address)
    }

    /// Pinned host memory, zeroed, that ends with the case, unless the case frees it.
    ///
    /// # Errors
    ///
    /// The allocation fails.
    pub fn host(&mut self, size: usize) -> Result<*mut u8, Stop> {
        let l = self;
        let mut address: *mut c_void = ptr::null_mut();
        need!(l, cuMemHostAlloc(&mut address, size, 0))?;
        l.finally(move |l| drop(call!(l, cuMemFreeHost(address))));
        // SAFETY: fresh memory of that size.
        unsafe { address.cast::<u8>().write_bytes(0, size) };
        Ok(address.cast())
    }

    /// Managed memory that ends with the case.
    ///
    /// # Errors
    ///
    /// The allocation fails.
    pub fn managed(&mut self, size: usize) -> Result<CUdeviceptr, Stop> {
        let l = self;
        let mut address = 0;
        need!(l, cuMemAllocManaged(&mut address, size, 1))?;
        l.finally(move |l| drop(call!(l, cuMemFree_v2(address))));
        Ok(address)
    }

    /// A stream that ends with the case; the case must not destroy it.
    ///
    /// # Errors
    ///
    /// The call fails.
    pub fn stream(&mut self, flags: u32) -> Result<CUstream, Stop> {
        let l = self;
        let mut stream = ptr::null_mut();
        need!(l, cuStreamCreate(&mut stream, flags))?;
        l.finally(move |l| drop(call!(l, cuStreamDestroy_v2(stream))));
        Ok(stream)
    }

    /// An event that ends with the case; the case must not destroy it.
    ///
    /// # Errors
    ///
    /// The call fails.
    pub fn event(&mut self, flags: u32) -> Result<CUevent, Stop> {
        let l = self;
        let mut event = ptr::null_mut();
        need!(l, cuEventCreate(&mut event, flags))?;
        l.finally(move |l| drop(call!(l, cuEventDestroy_v2(event))));
        Ok(event)
    }

    /// A pool that ends with the case; the case must not destroy it.
    ///
    /// # Errors
    ///
    /// The call fails.
    pub fn pool(&mut self, props: &CUmemPoolProps) -> Result<CUmemoryPool, Stop> {
        let l = self;
        let mut pool = ptr::null_mut();
        need!(l, cuMemPoolCreate(&mut pool, props))?;
        l.finally(move |l| drop(call!(l, cuMemPoolDestroy(pool))));
        Ok(pool)
    }

    /// A block of a pool that ends with the case, unless the case frees it.
    ///
    /// # Errors
    ///
    /// The allocation fails.
    pub(crate) fn block(&mut self, pool: CUmemoryPool, size: usize, stream: CUstream) -> Result<CUdeviceptr, Stop> {
        let l = self;
        let mut address = 0;
        need!(l, cuMemAllocFromPoolAsync(&mut address, size, pool, stream))?;
        need!(l, cuStreamSynchronize(stream))?;
        l.finally(move |l| drop(call!(l, cuMemFree_v2(address))));
        Ok(address)
    }

    /// A second context of device 0, not current, that ends with the case; the case must not destroy it.
    ///
    /// # Errors
    ///
    /// The call fails.
    pub fn second_context(&mut self) -> Result<CUcontext, Stop> {
        let l = self;
        let (mut context, mut popped) = (ptr::null_mut(), ptr::null_mut());
        need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
        need!(l, cuCtxPopCurrent_v2(&mut popped))?;
        l.finally(move |l| drop(call!(l, cuCtxDestroy_v2(context))));
        Ok(context)
    }

    /// Reads bytes of device memory. If that fails, returns the code's name.
    pub fn read<const N: usize>(&mut self, from: CUdeviceptr) -> Result<[u8; N], String> {
        let l = self;
        let mut bytes = [0; N];
        match call!(l, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, N)) {
            Ok(CUresult::CUDA_SUCCESS) => Ok(bytes),
            other => Err(text(other)),
        }
    }

    /// Records the bytes at an address.
    pub fn bytes<const N: usize>(&mut self, label: impl Into<String>, from: CUdeviceptr) {
        let value = match self.read::<N>(from) {
            Ok(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
            Err(code) => code,
        };
        self.say(label, value);
    }

    /// An attribute of an address as a number, or the code's name if the call fails.
    pub fn pointer<T: Default + Display>(&mut self, attribute: CUpointer_attribute, address: CUdeviceptr) -> String {
        let l = self;
        let mut value = T::default();
        match call!(l, cuPointerGetAttribute(ptr::from_mut(&mut value).cast(), attribute, address)) {
            Ok(CUresult::CUDA_SUCCESS) => value.to_string(),
            other => text(other),
        }
    }

    /// Makes calls on another thread, which has no current context, and waits for that thread.
    pub fn thread<R>(&mut self, work: impl FnOnce(&mut Lab) -> R) -> R {
        let carried = Carried((self, work));
        let outcome = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let (lab, work) = carried.take();
                Carried(work(lab))
            });
            thread.join()
        });
        match outcome {
            Ok(carried) => carried.take(),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs a role in another process, and records its answers as this case's.
    ///
    /// # Errors
    ///
    /// The process does not start.
    pub fn other_process(&mut self, role: &str, payload: &[u8]) -> Run {
        let failed = |error: std::io::Error| Stop(format!("other process: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args(["--role", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = process.stdin.take() {
            stdin.write_all(payload).map_err(failed)?;
        }
        let output = process.wait_with_output().map_err(failed)?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some(answer) = line.strip_prefix("@answer ") {
                let parsed = serde_json::from_str::<(String, String, Option<String>)>(answer);
                if let Ok((label, value, expected)) = parsed {
                    self.record(format!("{role}: {label}"), value, expected);
                }
            } else {
                println!("{line}");
            }
        }
        if !output.status.success() {
            self.say(format!("{role}: ends"), super::runner::ending(output.status));
        }
        Ok(())
    }
}
