//! Tensors with their owner, ours and others'. Their deleter is called exactly once.

use super::DlpackError;
use super::export::export;
use super::raw::{
    DEVICE_TYPES, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, FLAG_IS_COPIED,
    FLAG_IS_SUBBYTE_TYPE_PADDED, FLAG_READ_ONLY, VERSION,
};
use crate::DataType;
use crate::array::interchange::{Tensor, TensorDevice, TensorError, TensorParts};
use crate::buffer::SingleOwner;
use crate::error::callback::call_through;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::slice;

/// A DLPack tensor with its owner. The drop calls the deleter, once, on any thread.
///
/// An export returns it; [`into_versioned`](Self::into_versioned) or [`into_legacy`](Self::into_legacy) hands it on. An
/// import begins with it: only pointer and version have been checked, and [`check`](Self::check) does the rest.
///
/// ```
/// use cuda_mem::DataType;
/// use cuda_mem::interchange::dlpack::{ManagedTensor, export};
/// use cuda_mem::interchange::{Tensor, TensorDevice, TensorParts};
/// let memory = vec![1.0f32, 2.0, 3.0];
/// let tensor = Tensor::new(&TensorParts {
///     address: memory.as_ptr().expose_provenance() as u64,
///     device: TensorDevice::Cpu,
///     data_type: DataType::FLOAT32,
///     shape: &[3],
///     strides: None,
///     read_only: true,
///     padded: false,
/// })?;
/// // The vector moves into the tensor, and lives until the consumer releases it.
/// let raw = export(&tensor, 0, memory).into_versioned();
/// // SAFETY: nobody else has taken the tensor.
/// let imported = unsafe { ManagedTensor::from_versioned(raw) }?.check()?;
/// assert_eq!(imported.tensor(), &tensor);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ManagedTensor {
    raw: Raw,
}

#[derive(Clone, Copy, Debug)]
enum Raw {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Legacy(NonNull<DLManagedTensor>),
}

// SAFETY: DLPack allows the deleter on any thread, and nothing is written through a shared reference.
unsafe impl Send for ManagedTensor {}
// SAFETY: as above.
unsafe impl Sync for ManagedTensor {}

impl ManagedTensor {
    /// Takes ownership of a tensor.
    ///
    /// # Errors
    ///
    /// The pointer is null, or the tensor has another major release; then its deleter has been called.
    ///
    /// # Safety
    ///
    /// `raw` is null or points to a tensor that this call takes: nobody else calls its deleter. Up to `flags` the
    /// tensor has the layout common to all releases; with major release 1, it has that release's whole layout.
    #[doc(alias = "DLManagedTensorVersioned")]
    pub unsafe fn from_versioned(raw: *mut DLManagedTensorVersioned) -> Result<Self, DlpackError> {
        let raw = NonNull::new(raw).ok_or(DlpackError::Null)?;
        let this = Self { raw: Raw::Versioned(raw) };
        // SAFETY: all releases have the version at the same place.
        let version = unsafe { (&raw const (*raw.as_ptr()).version).read() };
        if version.major != VERSION.major {
            // The drop calls the deleter and touches nothing else.
            return Err(DlpackError::Version { major: version.major, minor: version.minor });
        }
        Ok(this)
    }

    /// Takes ownership of a tensor in the layout before release 1.0.
    ///
    /// # Errors
    ///
    /// The pointer is null.
    ///
    /// # Safety
    ///
    /// `raw` is null or points to a tensor that this call takes: nobody else calls its deleter.
    #[doc(alias = "DLManagedTensor")]
    pub unsafe fn from_legacy(raw: *mut DLManagedTensor) -> Result<Self, DlpackError> {
        NonNull::new(raw).map(|raw| Self { raw: Raw::Legacy(raw) }).ok_or(DlpackError::Null)
    }

    /// Takes a tensor that was just created.
    pub(super) fn made(raw: NonNull<DLManagedTensorVersioned>) -> Self {
        Self { raw: Raw::Versioned(raw) }
    }

    /// The tensor as the owner of its memory.
    pub(in crate::array::interchange) fn into_owner(self) -> SingleOwner {
        let this = ManuallyDrop::new(self);
        let (object, end): (_, unsafe fn(NonNull<c_void>)) = match this.raw {
            Raw::Versioned(raw) => (raw.cast(), |object| drop(Self { raw: Raw::Versioned(object.cast()) })),
            Raw::Legacy(raw) => (raw.cast(), |object| drop(Self { raw: Raw::Legacy(object.cast()) })),
        };
        // SAFETY: the value owned the tensor, and DLPack allows the deleter on any thread.
        unsafe { SingleOwner::new(object, end) }
    }

    /// Hands the tensor out. The receiver must call the deleter. A tensor in the old layout is wrapped.
    pub fn into_versioned(self) -> *mut DLManagedTensorVersioned {
        match self.raw {
            Raw::Versioned(raw) => {
                let _out = ManuallyDrop::new(self);
                raw.as_ptr()
            }
            Raw::Legacy(_) => {
                let (tensor, flags) = (*self.dl_tensor(), 0);
                super::export::wrap(tensor, flags, self).into_versioned()
            }
        }
    }

    /// Hands the tensor out in the layout before release 1.0. The receiver must call the deleter.
    ///
    /// # Errors
    ///
    /// The tensor is read-only or has padded elements, which that layout cannot express. Its deleter has been called.
    pub fn into_legacy(self) -> Result<*mut DLManagedTensor, DlpackError> {
        match self.raw {
            Raw::Legacy(raw) => {
                let _out = ManuallyDrop::new(self);
                Ok(raw.as_ptr())
            }
            Raw::Versioned(_) if self.flags() & FLAG_READ_ONLY != 0 => Err(DlpackError::LegacyReadOnly),
            Raw::Versioned(_) if self.flags() & FLAG_IS_SUBBYTE_TYPE_PADDED != 0 => Err(DlpackError::LegacyPadded),
            Raw::Versioned(_) => Ok(super::export::wrap_legacy(*self.dl_tensor(), self)),
        }
    }

    /// The flags; 0 in the old layout.
    pub fn flags(&self) -> u64 {
        match self.raw {
            // SAFETY: this value owns the tensor, which has the layout of release 1.
            Raw::Versioned(raw) => unsafe { (*raw.as_ptr()).flags },
            Raw::Legacy(_) => 0,
        }
    }

    /// The producer's description, unchecked.
    pub fn dl_tensor(&self) -> &DLTensor {
        match self.raw {
            // SAFETY: this value owns the tensor, which has the layout of release 1.
            Raw::Versioned(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
            // SAFETY: this value owns the tensor.
            Raw::Legacy(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
        }
    }

    /// The producer's whole description, checked. [`check`](Self::check) does the same once for all.
    ///
    /// # Errors
    ///
    /// The description is invalid.
    pub fn describe(&self) -> Result<Tensor, DlpackError> {
        // SAFETY: the caller of `from_versioned` or `from_legacy` promised a tensor with arrays of the stated lengths.
        unsafe { check(self.dl_tensor(), self.flags()) }
    }

    /// Checks the producer's whole description.
    ///
    /// # Errors
    ///
    /// The description is invalid. The tensor's deleter has been called.
    pub fn check(self) -> Result<ImportedTensor, DlpackError> {
        let tensor = self.describe()?;
        Ok(ImportedTensor { tensor, managed: self })
    }
}

impl Drop for ManagedTensor {
    fn drop(&mut self) {
        match self.raw {
            Raw::Versioned(raw) => {
                // SAFETY: all releases have the deleter at the same place, and nobody else calls it.
                unsafe {
                    if let Some(deleter) = (&raw const (*raw.as_ptr()).deleter).read() {
                        call_through(|| deleter(raw.as_ptr()));
                    }
                }
            }
            Raw::Legacy(raw) => {
                // SAFETY: nobody else calls the deleter.
                unsafe {
                    if let Some(deleter) = (*raw.as_ptr()).deleter {
                        call_through(|| deleter(raw.as_ptr()));
                    }
                }
            }
        }
    }
}

/// A tensor of another library with a checked description. Its drop calls the deleter.
#[derive(Debug)]
pub struct ImportedTensor {
    tensor: Tensor,
    managed: ManagedTensor,
}

impl ImportedTensor {
    /// The tensor's description.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Whether the producer has made a copy that only the consumer has.
    pub fn is_copied(&self) -> bool {
        self.managed.flags() & FLAG_IS_COPIED != 0
    }

    /// The unchecked tensor again, to hand it on.
    pub fn into_managed(self) -> ManagedTensor {
        self.managed
    }

    pub(in crate::array::interchange) fn into_parts(self) -> (Tensor, ManagedTensor) {
        (self.tensor, self.managed)
    }
}

/// Checks the description of a tensor.
///
/// # Safety
///
/// Shape and strides are null or have `ndim` numbers, if `ndim` is 0 to 64.
pub(super) unsafe fn check(said: &DLTensor, flags: u64) -> Result<Tensor, DlpackError> {
    const KNOWN: u64 = FLAG_READ_ONLY | FLAG_IS_COPIED | FLAG_IS_SUBBYTE_TYPE_PADDED;
    if flags & !KNOWN != 0 {
        return Err(DlpackError::Flags { flags });
    }
    let device = check_device(said.device)?;
    let data_type = DataType::new(said.dtype.code, said.dtype.bits, said.dtype.lanes).map_err(TensorError::DataType)?;
    let dimensions = match usize::try_from(said.ndim) {
        Ok(dimensions) if dimensions <= crate::array::interchange::MAX_DIMENSIONS => dimensions,
        _ => return Err(TensorError::TooManyDimensions { dimensions: said.ndim.into() }.into()),
    };
    if dimensions != 0 && said.shape.is_null() {
        return Err(TensorError::NullShape { dimensions: said.ndim }.into());
    }
    let numbers = |pointer: *mut i64| -> &[i64] {
        // SAFETY: not null, and as long as this function's contract states.
        if dimensions == 0 { &[] } else { unsafe { slice::from_raw_parts(pointer, dimensions) } }
    };
    let (data, byte_offset) = (said.data.expose_provenance() as u64, said.byte_offset);
    let shape = numbers(said.shape);
    // Without data there are no elements, so the offset does not matter.
    let address = if data == 0 { Some(0) } else { data.checked_add(byte_offset) };
    let address = address.ok_or(DlpackError::ByteOffset { data, byte_offset })?;
    let strides = (!said.strides.is_null()).then(|| numbers(said.strides));
    Ok(Tensor::new(&TensorParts {
        address,
        device,
        data_type,
        shape,
        strides,
        read_only: flags & FLAG_READ_ONLY != 0,
        padded: flags & FLAG_IS_SUBBYTE_TYPE_PADDED != 0,
    })?)
}

/// Converts a device. Memory of the host may have any number that is not negative.
pub(super) fn check_device(device: DLDevice) -> Result<TensorDevice, DlpackError> {
    let DLDevice { device_type, device_id } = device;
    let Some((_, name)) = DEVICE_TYPES.iter().find(|(number, _)| *number == device_type) else {
        return Err(DlpackError::UnknownDevice { device_type });
    };
    if device_id < 0 {
        return Err(DlpackError::DeviceNumber { name, device_id });
    }
    match device_type {
        1 => Ok(TensorDevice::Cpu),
        2 => Ok(TensorDevice::Cuda(device_id)),
        3 => Ok(TensorDevice::CudaHost),
        13 => Ok(TensorDevice::CudaManaged),
        _ => Err(DlpackError::OtherDevice { name, device_id }),
    }
}

impl From<TensorDevice> for DLDevice {
    fn from(device: TensorDevice) -> Self {
        let (device_type, device_id) = match device {
            TensorDevice::Cpu => (1, 0),
            TensorDevice::Cuda(ordinal) => (2, ordinal),
            TensorDevice::CudaHost => (3, 0),
            TensorDevice::CudaManaged => (13, 0),
        };
        Self { device_type, device_id }
    }
}

impl TryFrom<DLDevice> for TensorDevice {
    type Error = DlpackError;

    fn try_from(device: DLDevice) -> Result<Self, DlpackError> {
        check_device(device)
    }
}

impl Tensor {
    /// A DLPack tensor that holds `owner` until its deleter is called, as in [`export()`].
    pub fn export<O: Send + 'static>(&self, owner: O) -> ManagedTensor {
        export(self, 0, owner)
    }
}
