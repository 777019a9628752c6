//! The driver: the CUDA and vkgdr libraries that this process uses; its devices, its contexts with what they know of
//! their streams, and the built-in kernels.

pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod kernels;
pub(crate) mod relaxed;
pub(crate) mod stream_core;
pub(crate) mod stream_creation;
pub(crate) mod stream_reserve;
pub(crate) mod support;
pub(crate) mod topology;

use crate::driver::context::EndingHandle;
use crate::error::call;
use crate::error::drop_errors::{DropErrorHook, DropErrorReport, DropErrors};
use crate::lifetime::SerialEnds;
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
/// let driver = Driver::software()?; // softgpu; a GPU: Driver::load()
/// for device in driver.devices()? {
///     println!("{}: {} bytes", device.name()?, device.total_memory()?);
/// }
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Driver {
    inner: Arc<LoadedDriver>,
}

struct LoadedDriver {
    cuda: cuda_sys::Driver,
    vkgdr_search: Search,
    vkgdr: OnceCell<Vkgdr>,
    drop_errors: Arc<DropErrors>,
    ends: SerialEnds<EndingHandle>,
}

/// Chooses the libraries of a [`Driver`].
///
/// A choice is a path, or the name of a linked provider: `softgpu` (feature `softgpu`), and for vkgdr also `vkgdr`
/// (feature `vkgdr`, on by default). Without a choice, the environment decides (`CUDA_MEM_LIBCUDA`,
/// `CUDA_MEM_LIBVKGDR`), then the system's loader. softgpu serves only if it is named.
#[derive(Clone, Debug, Default)]
#[must_use = "a driver is loaded by `load`"]
pub struct DriverBuilder {
    cuda: Option<PathBuf>,
    vkgdr: Option<PathBuf>,
}

impl DriverBuilder {
    /// Chooses the CUDA driver.
    pub fn cuda(mut self, choice: impl Into<PathBuf>) -> Self {
        self.cuda = Some(choice.into());
        self
    }

    /// Chooses the vkgdr library.
    pub fn vkgdr(mut self, choice: impl Into<PathBuf>) -> Self {
        self.vkgdr = Some(choice.into());
        self
    }

    /// Loads and initialises the driver.
    ///
    /// # Errors
    ///
    /// The CUDA library is not found, or it does not start because the machine has no GPU or the process was forked.
    ///
    /// # Safety
    ///
    /// A library that is named here or in the environment runs its start-up code, and this crate calls it with the
    /// signatures of its interface. It must be what its name claims.
    pub unsafe fn load(self) -> Result<Driver> {
        let search = Search { path: self.cuda, linked: linked_cuda(), ..cuda_sys::Driver::SEARCH };
        // SAFETY: the caller vouches for the library.
        let cuda = unsafe { cuda_sys::Driver::open(&search) }?;
        // SAFETY: 0 is the only value that cuInit accepts.
        unsafe { call!(cuda.cuInit(0)) }?;
        crate::error::note_loading();
        // The software GPU uses its own vkgdr, unless another was chosen: the linked one, or the library's.
        let own = (cuda.provider().is_softgpu && cuda_sys::load::environment(Vkgdr::SEARCH.variable).is_none())
            .then(|| PathBuf::from(&*cuda.provider().library));
        let vkgdr_search = Search { path: self.vkgdr.or(own), linked: linked_vkgdr(), ..Vkgdr::SEARCH };
        let inner = LoadedDriver {
            cuda,
            vkgdr_search,
            vkgdr: OnceCell::new(),
            drop_errors: Arc::default(),
            ends: SerialEnds::default(),
        };
        Ok(Driver { inner: Arc::new(inner) })
    }
}

impl Driver {
    /// The system's driver, or the one that the environment names. Loaded once; after a failure, the next call tries
    /// again.
    ///
    /// # Errors
    ///
    /// No driver is found, or it does not start. The message lists each place with its reason, and what to do.
    #[doc(alias = "cuInit")]
    pub fn load() -> Result<Driver> {
        static DRIVER: OnceCell<Driver> = OnceCell::new();
        // SAFETY: the candidates are the system's own driver, or what the user names in the environment.
        DRIVER.get_or_try_init(|| unsafe { DriverBuilder::default().load() })?.started()
    }

    /// The software GPU, which feature `softgpu` links in. A process creates it once.
    ///
    /// # Errors
    ///
    /// An environment variable of softgpu has an invalid value.
    #[cfg(feature = "softgpu")]
    pub fn software() -> Result<Driver> {
        static DRIVER: OnceCell<Driver> = OnceCell::new();
        // SAFETY: softgpu's functions have the signatures of wrapper.h, which the compiler checks in softgpu's crate.
        DRIVER.get_or_try_init(|| unsafe { Driver::builder().cuda("softgpu").vkgdr("softgpu").load() })?.started()
    }

    /// The driver, which is started again if `softgpu::reset` has ended it.
    fn started(&self) -> Result<Driver> {
        if self.is_linked_softgpu() && self.start_number().is_none() {
            let cuda = self.raw();
            // SAFETY: 0 is the only value that cuInit accepts.
            unsafe { call!(cuda.cuInit(0)) }?;
        }
        Ok(self.clone())
    }

    /// Whether the driver is the softgpu that is linked in, which a program can reset.
    fn is_linked_softgpu(&self) -> bool {
        cfg!(feature = "softgpu") && &*self.provider().library == "softgpu"
    }

    /// The number of softgpu's present start. `None` for other drivers, and after a reset.
    pub(crate) fn start_number(&self) -> Option<u64> {
        #[cfg(feature = "softgpu")]
        if self.is_linked_softgpu() {
            return softgpu::start_number();
        }
        None
    }

    /// A builder that chooses the libraries.
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

    /// The library that serves CUDA, and the CUDA release that it serves.
    #[doc(alias = "cuDriverGetVersion")]
    pub fn provider(&self) -> &Provider {
        self.inner.cuda.provider()
    }

    /// Whether the driver is the software GPU, linked in or loaded as a library.
    pub fn is_software(&self) -> bool {
        self.provider().is_softgpu
    }

    /// The number of devices.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetCount")]
    pub fn device_count(&self) -> Result<usize> {
        let (cuda, mut count) = (self.raw(), 0);
        // SAFETY: `count` is writable.
        unsafe { call!(cuda.cuDeviceGetCount(&mut count)) }?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The device with this ordinal.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`]: there is no device with this ordinal.
    #[doc(alias = "cuDeviceGet")]
    pub fn device(&self, ordinal: i32) -> Result<Device> {
        Device::new(self, ordinal)
    }

    /// All devices.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn devices(&self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(|ordinal| self.device(ordinal as i32)).collect()
    }

    /// The raw function table, for calls that this crate does not wrap.
    pub fn raw(&self) -> &cuda_sys::Driver {
        &self.inner.cuda
    }

    /// The vkgdr library. The first call loads it.
    ///
    /// # Errors
    ///
    /// No vkgdr library is found.
    pub fn vkgdr(&self) -> Result<&Vkgdr> {
        // SAFETY: each candidate is linked in, the system's, or named by the user, for whom `DriverBuilder::load`'s
        // caller vouches.
        Ok(self.inner.vkgdr.get_or_try_init(|| unsafe { Vkgdr::open(&self.inner.vkgdr_search) })?)
    }

    /// What the vkgdr library finds on this machine (Vulkan loader, drivers, devices, memory types), as JSON text. A
    /// linked-in library finds this out with the feature `json` only.
    ///
    /// # Errors
    ///
    /// No vkgdr library is found, or it is the upstream library, which lacks this function.
    pub fn describe_vkgdr(&self) -> Result<String> {
        let vkgdr = self.vkgdr()?;
        // SAFETY: the function takes no argument and returns text that the caller must free.
        let text = unsafe { vkgdr.vkgdr_describe() }?;
        // SAFETY: the text is ours to free, once.
        Ok(unsafe { take_text(text) }.unwrap_or_default())
    }

    /// Takes the errors of drops of contexts, and of objects that have no context.
    pub fn take_drop_errors(&self) -> DropErrorReport {
        self.inner.drop_errors.take()
    }

    /// Sets the hook that receives each such error; `None` removes it.
    pub fn set_drop_error_hook(&self, hook: Option<DropErrorHook>) {
        self.inner.drop_errors.set_hook(hook);
    }

    pub(crate) fn drop_errors(&self) -> &Arc<DropErrors> {
        &self.inner.drop_errors
    }

    /// Destroys streams, events, graphs and contexts one at a time.
    pub(crate) fn ends(&self) -> &SerialEnds<EndingHandle> {
        &self.inner.ends
    }

    /// Equal for all values of one library, however often it was loaded.
    pub(crate) fn library(&self) -> usize {
        self.raw().functions().address(c"cuInit").addr()
    }

    /// Whether two values are the same loaded driver.
    pub fn is_same(&self, other: &Driver) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Checks that an argument belongs to this driver. A handle of another driver may be anything here.
    #[inline]
    pub(crate) fn check_same(&self, call: &'static str, argument: &'static str, other: &Driver) -> Result<()> {
        if self.is_same(other) { Ok(()) } else { Err(self.another(call, argument, other)) }
    }

    #[cold]
    fn another(&self, call: &'static str, argument: &'static str, other: &Driver) -> Error {
        let (ours, theirs) = (&self.provider().library, &other.provider().library);
        let value = format!("of a driver that was loaded separately ({theirs}; this one is {ours})");
        let rule = "streams and events must belong to the same loaded driver: clone one Driver";
        Error::invalid(call, argument, value, rule)
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

/// The symbol resolver for `vkgdr_open_with_cuda`, so that the library uses this process's driver.
///
/// # Safety
///
/// `user` is a `*const cuda_sys::Driver` that lives through the call, `name` a C string.
pub(crate) unsafe extern "C" fn cuda_symbol(user: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: this function's contract.
    let (driver, name) = unsafe { (&*user.cast::<cuda_sys::Driver>(), CStr::from_ptr(name)) };
    driver.functions().address(name).cast_mut()
}

/// Takes ownership of text that a C library allocated with malloc.
///
/// # Safety
///
/// `text` is null, or a C string that the caller owns.
pub(crate) unsafe fn take_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: this function's contract.
    let owned = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: malloc allocated the text, and nothing uses it after this.
    unsafe { libc::free(text.cast()) };
    Some(owned)
}
