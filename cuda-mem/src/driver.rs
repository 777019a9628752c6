//! The driver: which libraries serve this process.

use crate::drop_errors::{DropErrorHook, DropErrorReport, DropErrors};
use crate::ends::Ends;
use crate::error::call;
use crate::{Device, Error, Result};
use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use cuda_sys::Provider;
use cuda_sys::load::{Linked, Search};
use once_cell::sync::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use vkgdr_sys::Vkgdr;

/// A CUDA driver, loaded and initialised. Cheap to clone.
///
/// ```
/// use cuda_mem::Driver;
///
/// // `Driver::load()` finds the system's driver; this one needs no GPU.
/// let driver = Driver::software()?;
/// for device in driver.devices()? {
///     println!("{}: {} bytes", device.name()?, device.total_memory()?);
/// }
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    cuda: cuda_sys::Driver,
    vkgdr_search: Search,
    vkgdr: OnceCell<Vkgdr>,
    drop_errors: DropErrors,
    ends: Ends,
}

/// Chooses the libraries of a [`Driver`].
///
/// A choice is a path, or the name of a provider that is linked in: `softgpu` (feature `softgpu`), and for vkgdr also
/// `vkgdr` (feature `vkgdr`, on by default). What is not chosen here comes from the environment (`CUDA_MEM_LIBCUDA`,
/// `CUDA_MEM_LIBVKGDR`), then from the system's loader. A real library is never replaced by softgpu unasked.
#[derive(Clone, Debug, Default)]
#[must_use = "a driver is loaded by `load`"]
pub struct DriverBuilder {
    cuda: Option<PathBuf>,
    vkgdr: Option<PathBuf>,
}

impl DriverBuilder {
    /// Takes the CUDA driver from here.
    pub fn cuda(mut self, choice: impl Into<PathBuf>) -> Self {
        self.cuda = Some(choice.into());
        self
    }

    /// Takes the vkgdr library from here.
    pub fn vkgdr(mut self, choice: impl Into<PathBuf>) -> Self {
        self.vkgdr = Some(choice.into());
        self
    }

    /// Loads and initialises the driver.
    ///
    /// # Errors
    ///
    /// The CUDA library is not found, or does not start: the machine has no GPU, or the process was forked.
    ///
    /// # Safety
    ///
    /// A library that is named here (or in the environment) runs its start-up code and is called with the signatures
    /// of its interface: it has to be what it claims to be.
    pub unsafe fn load(self) -> Result<Driver> {
        let search = Search { path: self.cuda, linked: linked_cuda(), ..cuda_sys::Driver::SEARCH };
        // SAFETY: the caller's contract.
        let cuda = unsafe { cuda_sys::Driver::open(&search) }?;
        // SAFETY: 0 is the one value that cuInit takes.
        unsafe { call!(cuda.cuInit(0)) }?;
        crate::error::note_loading();
        // The software GPU brings its own vkgdr, unless another was chosen.
        let own = (&*cuda.provider().library == "softgpu"
            && cuda_sys::load::environment("CUDA_MEM_LIBVKGDR").is_none())
        .then(|| PathBuf::from("softgpu"));
        let vkgdr_search = Search { path: self.vkgdr.or(own), linked: linked_vkgdr(), ..Vkgdr::SEARCH };
        let inner = Inner {
            cuda,
            vkgdr_search,
            vkgdr: OnceCell::new(),
            drop_errors: DropErrors::default(),
            ends: Ends::default(),
        };
        Ok(Driver { inner: Arc::new(inner) })
    }
}

impl Driver {
    /// The system's driver, or what the environment names. Loaded once for the process; a failed load is tried again
    /// by the next call.
    ///
    /// # Errors
    ///
    /// No driver is found, or it does not start. The text lists each place with its reason, and what to do.
    #[doc(alias = "cuInit")]
    pub fn load() -> Result<Driver> {
        static DRIVER: OnceCell<Driver> = OnceCell::new();
        // SAFETY: the candidates are the system's own driver, or what the user names in the environment.
        DRIVER.get_or_try_init(|| unsafe { DriverBuilder::default().load() }).cloned()
    }

    /// The software GPU, which is linked in by feature `softgpu`. Made once for the process.
    ///
    /// # Errors
    ///
    /// softgpu's settings in the environment are wrong.
    #[cfg(feature = "softgpu")]
    pub fn software() -> Result<Driver> {
        static DRIVER: OnceCell<Driver> = OnceCell::new();
        // SAFETY: softgpu's functions have the signatures of wrapper.h; its own crate has the compiler check that.
        DRIVER.get_or_try_init(|| unsafe { Driver::builder().cuda("softgpu").vkgdr("softgpu").load() }).cloned()
    }

    /// Chooses the libraries.
    ///
    /// ```
    /// use cuda_mem::Driver;
    /// // SAFETY: the software GPU is linked in, and no library is named.
    /// let driver = unsafe { Driver::builder().cuda("softgpu").vkgdr("softgpu").load() }?;
    /// assert_eq!(&*driver.provider().library, "softgpu");
    ///
    /// // SAFETY: there is no such library.
    /// let error = unsafe { Driver::builder().cuda("/there/is/none.so").load() }.unwrap_err();
    /// assert!(error.to_string().contains("/there/is/none.so"));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn builder() -> DriverBuilder {
        DriverBuilder::default()
    }

    /// Which library serves, and the CUDA release that it serves.
    #[doc(alias = "cuDriverGetVersion")]
    pub fn provider(&self) -> &Provider {
        self.inner.cuda.provider()
    }

    /// How many devices there are.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuDeviceGetCount")]
    pub fn device_count(&self) -> Result<usize> {
        let (cuda, mut count) = (self.raw(), 0);
        // SAFETY: `count` is writable.
        unsafe { call!(cuda.cuDeviceGetCount(&mut count)) }?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The device of an ordinal.
    ///
    /// # Errors
    ///
    /// There is no such device.
    #[doc(alias = "cuDeviceGet")]
    pub fn device(&self, ordinal: i32) -> Result<Device> {
        Device::new(self, ordinal)
    }

    /// All devices.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn devices(&self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(|ordinal| self.device(ordinal as i32)).collect()
    }

    /// The raw table: for calls that this crate does not wrap.
    pub fn raw(&self) -> &cuda_sys::Driver {
        &self.inner.cuda
    }

    /// The vkgdr library, loaded when it is first needed.
    ///
    /// # Errors
    ///
    /// No vkgdr library is found.
    pub fn vkgdr(&self) -> Result<&Vkgdr> {
        // SAFETY: the candidates are linked in, or the system's, or what the user names; `DriverBuilder::load` asks
        // the user for the last.
        Ok(self.inner.vkgdr.get_or_try_init(|| unsafe { Vkgdr::open(&self.inner.vkgdr_search) })?)
    }

    /// What the vkgdr library finds on this machine (Vulkan loader, drivers, devices, memory types), as JSON text.
    ///
    /// # Errors
    ///
    /// No vkgdr library is found, or it is upstream's, which does not tell.
    pub fn describe_vkgdr(&self) -> Result<String> {
        let vkgdr = self.vkgdr()?;
        // SAFETY: the function takes nothing and gives text that is ours to free.
        let text = unsafe { vkgdr.vkgdr_describe() }?;
        // SAFETY: as above.
        Ok(unsafe { take_text(text) }.unwrap_or_default())
    }

    /// Takes the errors that drops of contexts and of what has no context have met.
    pub fn take_drop_errors(&self) -> DropErrorReport {
        self.inner.drop_errors.take()
    }

    /// Sets what is called with each such error; `None` ends it.
    pub fn set_drop_error_hook(&self, hook: Option<DropErrorHook>) {
        self.inner.drop_errors.set_hook(hook);
    }

    pub(crate) fn drop_errors(&self) -> &DropErrors {
        &self.inner.drop_errors
    }

    /// By which streams, events, graphs and contexts are destroyed.
    pub(crate) fn ends(&self) -> &Ends {
        &self.inner.ends
    }

    /// The same for all values that one library serves, however often it was loaded.
    pub(crate) fn library(&self) -> usize {
        self.raw().functions().address(c"cuInit").addr()
    }

    /// Whether two values are the same loaded driver.
    pub fn is_same(&self, other: &Driver) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Checks that an argument of a call is this driver's: to another one its handle may be anything.
    #[inline]
    pub(crate) fn check_same(&self, call: &'static str, argument: &'static str, other: &Driver) -> Result<()> {
        if self.is_same(other) { Ok(()) } else { Err(self.another(call, argument, other)) }
    }

    #[cold]
    fn another(&self, call: &'static str, argument: &'static str, other: &Driver) -> Error {
        let (ours, theirs) = (&self.provider().library, &other.provider().library);
        Error::InvalidArgument {
            call,
            argument,
            value: format!("of a driver that was loaded apart ({theirs}; this one is {ours})").into(),
            rule: "streams and events work together with those of the same loaded driver: clone one Driver",
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("provider", self.provider()).finish_non_exhaustive()
    }
}

fn linked_cuda() -> Vec<Linked> {
    vec![
        #[cfg(feature = "softgpu")]
        Linked { name: "softgpu", symbol: softgpu::cuda_symbol, last_resort: false },
    ]
}

fn linked_vkgdr() -> Vec<Linked> {
    vec![
        #[cfg(feature = "vkgdr")]
        Linked { name: "vkgdr", symbol: vkgdr::symbol, last_resort: true },
        #[cfg(feature = "softgpu")]
        Linked { name: "softgpu", symbol: softgpu::vkgdr_symbol, last_resort: false },
    ]
}

/// The resolver that `vkgdr_open_with_cuda` is given: the library then uses the driver that this process uses.
///
/// # Safety
///
/// `user` is a `*const cuda_sys::Driver` that lives through the call, `name` a C string.
pub(crate) unsafe extern "C" fn cuda_symbol(user: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: this function's contract.
    let (driver, name) = unsafe { (&*user.cast::<cuda_sys::Driver>(), CStr::from_ptr(name)) };
    driver.functions().address(name).cast_mut()
}

/// Takes text that a C library allocated with malloc.
///
/// # Safety
///
/// `text` is null, or a C string that is the caller's to free.
pub(crate) unsafe fn take_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: this function's contract.
    let owned = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: malloc's, not used after this.
    unsafe { libc::free(text.cast()) };
    Some(owned)
}
