//! DLPack's exchange API: functions that libraries offer to each other without Python calls. Here are the two without
//! Python objects: one makes a tensor like a prototype, one returns the current stream.

use super::managed::{check, check_device};
use super::raw::{
    DLDevice, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLTensor, SetError, VERSION,
};
use super::{DlpackError, ImportedTensor, ManagedTensor};
use crate::array::interchange::{StreamName, Tensor, TensorDevice};
use crate::error::callback::call_back;
use crate::{Error, Result};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::num::NonZeroUsize;
use core::ptr;
use std::ffi::CString;
use std::sync::OnceLock;

/// The program's functions behind the exchange API.
///
/// # Safety
///
/// Other libraries use the results unchecked. A tensor of [`allocate`](Self::allocate) has the prototype's type, shape
/// and device; its memory is allocated and nobody else's until its deleter is called. The stream of
/// [`current_stream`](Self::current_stream) belongs to the device and lives while others may use it.
pub unsafe trait ExchangeProvider: Send + Sync {
    /// Makes a tensor with a prototype's type, shape and device. Later work on the
    /// [`current_stream`](Self::current_stream) may use its memory.
    ///
    /// # Errors
    ///
    /// The device does not exist, or no memory is left.
    fn allocate(&self, prototype: &Tensor) -> Result<ManagedTensor>;

    /// The stream on which the program works now, for a CUDA device.
    ///
    /// # Errors
    ///
    /// The device does not exist.
    fn current_stream(&self, device: TensorDevice) -> Result<StreamName>;
}

/// The process's table, as other libraries see it.
struct Table(DLPackExchangeAPI);

// SAFETY: nobody writes the table after its creation.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static PROVIDER: OnceLock<Box<dyn ExchangeProvider>> = OnceLock::new();
static TABLE: OnceLock<Table> = OnceLock::new();

/// Offers the exchange API in this process, only once, because other libraries keep the table forever. The three
/// functions for Python objects are null; a Python binding adds its own.
///
/// # Errors
///
/// The process offers it already.
#[doc(alias = "DLPackExchangeAPI")]
pub fn offer_exchange_api(provider: Box<dyn ExchangeProvider>) -> Result<&'static DLPackExchangeAPI> {
    PROVIDER.set(provider).map_err(|_| {
        let rule = "a process has only one, which other libraries may use already";
        Error::invalid("offer_exchange_api", "provider", "a second one", rule)
    })?;
    let table = TABLE.get_or_init(|| {
        Table(DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader { version: VERSION, prev_api: ptr::null_mut() },
            managed_tensor_allocator: Some(allocate),
            managed_tensor_from_py_object_no_sync: None,
            managed_tensor_to_py_object_no_sync: None,
            dltensor_from_py_object_no_sync: None,
            current_work_stream: Some(current_work_stream),
        })
    });
    Ok(&table.0)
}

/// Asks the provider. A panic becomes an error.
fn ask<R>(question: impl FnOnce(&dyn ExchangeProvider) -> Result<R>) -> Result<R, Box<str>> {
    let Some(provider) = PROVIDER.get() else { return Err("this process offers no exchange API".into()) };
    let answer = call_back(|| question(&**provider).map_err(|error| error.to_string().into()));
    answer.unwrap_or_else(|panic| Err(format!("the provider panicked: {}", panic.text()).into()))
}

unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    // SAFETY: the consumer passes a prototype or null.
    let wanted = match unsafe { prototype.as_ref() } {
        // SAFETY: a prototype's shape has `ndim` numbers.
        Some(prototype) => unsafe { check_prototype(prototype) }.map_err(|error| error.to_string().into()),
        None => Err("the prototype is a null pointer".into()),
    };
    let made = match wanted {
        _ if out.is_null() => Err("the pointer to the result is null".into()),
        Ok(wanted) => ask(|provider| provider.allocate(&wanted)),
        Err(message) => Err(message),
    };
    match made {
        Ok(managed) => {
            // SAFETY: the consumer passes room for a pointer.
            unsafe { out.write(managed.into_versioned()) };
            0
        }
        Err(message) => {
            let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
            if let Some(set_error) = set_error {
                // SAFETY: the consumer's function and context; the texts live during the call.
                unsafe { set_error(error_ctx, c"BufferError".as_ptr(), text.as_ptr()) };
            }
            -1
        }
    }
}

/// Checks the type, shape and device of a prototype. Its address and strides do not matter.
///
/// # Safety
///
/// The shape has `ndim` numbers.
unsafe fn check_prototype(prototype: &DLTensor) -> Result<Tensor, DlpackError> {
    // An address that is valid for any array.
    let data = ptr::without_provenance_mut(1 << 12);
    let said = DLTensor { data, strides: ptr::null_mut(), byte_offset: 0, ..*prototype };
    // SAFETY: this function's contract.
    unsafe { check(&said, 0) }
}

unsafe extern "C" fn current_work_stream(device_type: i32, device_id: i32, out: *mut *mut c_void) -> c_int {
    if out.is_null() {
        return -1;
    }
    let stream = match check_device(DLDevice { device_type, device_id }) {
        // The CPU has no stream.
        Ok(TensorDevice::Cpu) => Ok(None),
        Ok(device) => ask(|provider| provider.current_stream(device)).map(StreamName::number),
        Err(_) => return -1,
    };
    let Ok(stream) = stream else { return -1 };
    // SAFETY: the consumer passes room for a pointer.
    unsafe { out.write(ptr::with_exposed_provenance_mut(stream.unwrap_or(0) as usize)) };
    0
}

/// The exchange API of another library.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeApi {
    table: &'static DLPackExchangeAPI,
}

impl ExchangeApi {
    /// Takes another library's table, or an older table that it names if the first is too new.
    ///
    /// # Errors
    ///
    /// The pointer is null, or neither the table nor any that it names has release 1.
    ///
    /// # Safety
    ///
    /// `table` is null or points to a table that stays for the life of the process, like all tables that it names.
    pub unsafe fn from_raw(table: *const DLPackExchangeAPI) -> Result<Self, DlpackError> {
        let mut header: *const DLPackExchangeAPIHeader = table.cast();
        let mut newest = None;
        // SAFETY: this function's contract; all releases have the same header.
        while let Some(here) = unsafe { header.as_ref() } {
            if here.version.major == VERSION.major {
                // SAFETY: the table has release 1, and so this layout.
                return Ok(Self { table: unsafe { &*header.cast() } });
            }
            newest.get_or_insert(here.version);
            header = here.prev_api;
        }
        Err(newest
            .map_or(DlpackError::Null, |version| DlpackError::Version { major: version.major, minor: version.minor }))
    }

    /// The other library's functions. A Python binding calls those for Python objects.
    pub fn table(&self) -> &'static DLPackExchangeAPI {
        self.table
    }

    /// Lets the other library make a tensor with a prototype's type, shape and device.
    ///
    /// # Errors
    ///
    /// The other library's error, or an error in the tensor that it made.
    pub fn allocate(&self, prototype: &Tensor) -> Result<ImportedTensor> {
        let Some(allocate) = self.table.managed_tensor_allocator else {
            return Err(Error::Unsupported {
                feature: "allocation by the other library",
                needs: "an exchange API with managed_tensor_allocator".into(),
            });
        };
        unsafe extern "C" fn note(context: *mut c_void, _kind: *const c_char, message: *const c_char) {
            // SAFETY: the context is the text below, and the message is null or ends with zero.
            unsafe {
                if !message.is_null() {
                    *context.cast::<String>() = CStr::from_ptr(message).to_string_lossy().into_owned();
                }
            }
        }
        let described = prototype.export(());
        let mut said = *described.dl_tensor();
        let (mut made, mut message) = (ptr::null_mut(), String::new());
        // SAFETY: all four arguments are valid during the call.
        let code = unsafe { allocate(&mut said, &mut made, (&raw mut message).cast(), Some(note)) };
        if code != 0 {
            let value = format!("one that the other library refuses ({message})");
            let rule = "that library must have the prototype's device and enough memory";
            return Err(Error::invalid("ExchangeApi::allocate", "the prototype", value, rule));
        }
        // SAFETY: the other library has just made it for this call.
        Ok(unsafe { ManagedTensor::from_versioned(made) }?.check()?)
    }

    /// The stream on which the other library works now. Memory that it receives without an order must be ordered before
    /// that stream.
    ///
    /// # Errors
    ///
    /// The other library does not have the device.
    pub fn current_work_stream(&self, device: TensorDevice) -> Result<StreamName> {
        let refused = |needs: &str| Error::Unsupported {
            feature: "asking the other library for its stream",
            needs: needs.into(),
        };
        let ask = self.table.current_work_stream.ok_or_else(|| refused("an exchange API with current_work_stream"))?;
        let DLDevice { device_type, device_id } = device.into();
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` is room for a pointer.
        if unsafe { ask(device_type, device_id, &mut stream) } != 0 {
            return Err(refused("a device that the other library has"));
        }
        Ok(match NonZeroUsize::new(stream.expose_provenance()).map(NonZeroUsize::get) {
            None if device == TensorDevice::Cpu => StreamName::Unordered,
            None | Some(1) => StreamName::Legacy,
            Some(2) => StreamName::PerThread,
            Some(_) => StreamName::from_dlpack(Some(stream.expose_provenance() as i64))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;
    use crate::array::interchange::TensorParts;

    struct Provider;

    // SAFETY: the tensor holds its memory; no stream is used.
    unsafe impl ExchangeProvider for Provider {
        fn allocate(&self, prototype: &Tensor) -> Result<ManagedTensor> {
            if prototype.device() != TensorDevice::Cpu {
                return Err(DlpackError::OtherDevice { name: "the test", device_id: 0 }.into());
            }
            let size = (prototype.byte_range().end - prototype.byte_range().start) as usize;
            let memory = vec![0u64; size.div_ceil(8)];
            let address = memory.as_ptr().expose_provenance() as u64;
            Ok(prototype.moved_to(address, TensorDevice::Cpu)?.export(memory))
        }

        fn current_stream(&self, device: TensorDevice) -> Result<StreamName> {
            match device {
                TensorDevice::Cuda(0) => Ok(StreamName::Legacy),
                TensorDevice::Cuda(1) => Ok(StreamName::from_dlpack(Some(0x7000))?),
                _ => std::panic::resume_unwind(Box::new("of the provider")),
            }
        }
    }

    fn prototype(device: TensorDevice) -> Tensor {
        let (data_type, shape) = (DataType::INT16, &[2, 3][..]);
        let parts =
            TensorParts { address: 1, device, data_type, shape, strides: None, read_only: false, padded: false };
        Tensor::new(&parts).unwrap()
    }

    #[test]
    fn what_is_offered_is_served_and_refused_by_name() {
        let table = offer_exchange_api(Box::new(Provider)).unwrap();
        assert!(offer_exchange_api(Box::new(Provider)).is_err());
        // SAFETY: the table stays for the life of the process.
        let api = unsafe { ExchangeApi::from_raw(table) }.unwrap();
        assert!(ptr::eq(api.table(), table));
        let made = api.allocate(&prototype(TensorDevice::Cpu)).unwrap();
        assert_eq!((made.tensor().shape(), made.tensor().strides()), (&[2, 3][..], &[3, 1][..]));
        let error = api.allocate(&prototype(TensorDevice::Cuda(0))).unwrap_err();
        assert!(error.to_string().contains("lies on the test"), "{error}");
        assert_eq!(api.current_work_stream(TensorDevice::Cpu), Ok(StreamName::Unordered));
        assert_eq!(api.current_work_stream(TensorDevice::Cuda(0)), Ok(StreamName::Legacy));
        assert_eq!(api.current_work_stream(TensorDevice::Cuda(1)).unwrap().number(), Some(0x7000));
        assert!(api.current_work_stream(TensorDevice::Cuda(2)).is_err()); // a panic
        // Calls with null pointers, as C could make them.
        let allocate = table.managed_tensor_allocator.unwrap();
        let stream = table.current_work_stream.unwrap();
        let mut out = ptr::null_mut();
        // SAFETY: the functions refuse null.
        unsafe {
            assert_eq!(allocate(ptr::null_mut(), &mut out, ptr::null_mut(), None), -1);
            assert_eq!(stream(2, 0, ptr::null_mut()), -1);
            assert_eq!(stream(5, 0, (&raw mut out).cast()), -1);
        }
    }

    #[test]
    fn an_older_table_is_looked_for() {
        let empty = DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader { version: VERSION, prev_api: ptr::null_mut() },
            managed_tensor_allocator: None,
            managed_tensor_from_py_object_no_sync: None,
            managed_tensor_to_py_object_no_sync: None,
            dltensor_from_py_object_no_sync: None,
            current_work_stream: None,
        };
        let (older, newer) = (Box::into_raw(Box::new(empty)), Box::into_raw(Box::new(empty)));
        // SAFETY: the tables live while they are used; null is allowed.
        unsafe {
            (*newer).header.version.major = 2;
            assert_eq!(ExchangeApi::from_raw(newer).unwrap_err(), DlpackError::Version { major: 2, minor: 3 });
            (*newer).header.prev_api = older.cast();
            let api = ExchangeApi::from_raw(newer).unwrap();
            assert!(api.allocate(&prototype(TensorDevice::Cpu)).is_err());
            assert!(api.current_work_stream(TensorDevice::Cpu).is_err());
            drop((Box::from_raw(older), Box::from_raw(newer)));
            assert_eq!(ExchangeApi::from_raw(ptr::null()).unwrap_err(), DlpackError::Null);
        }
    }
}
