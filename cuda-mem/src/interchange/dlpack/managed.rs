//! Tensors with their owner, ours and those of others: the deleter is called once.

use super::DlpackError;
use super::export::export;
use super::raw::{
    DEVICE_TYPES, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, FLAG_IS_COPIED,
    FLAG_IS_SUBBYTE_TYPE_PADDED, FLAG_READ_ONLY, VERSION,
};
use crate::DataType;
use crate::interchange::{Tensor, TensorDevice, TensorError, TensorParts};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::slice;

/// A tensor of DLPack's, with its owner. Its end calls the deleter, once, on whatever thread that is.
///
/// It is what an export gives, to be handed on by [`into_versioned`](Self::into_versioned) or
/// [`into_legacy`](Self::into_legacy), and what an import begins with. Nothing of it has been checked yet but the
/// pointer and the version: [`check`](Self::check) does the rest.
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
/// // The vector goes along, and lives as long as the consumer wants.
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

// SAFETY: the deleter may be called on any thread, by DLPack's rules, and nothing is written through a shared reference.
unsafe impl Send for ManagedTensor {}
// SAFETY: as above.
unsafe impl Sync for ManagedTensor {}

impl ManagedTensor {
    /// Takes a tensor over.
    ///
    /// # Errors
    ///
    /// It is a null pointer, or of another major release. Its deleter has then been called.
    ///
    /// # Safety
    ///
    /// A pointer that is not null is one of a tensor that this call takes: nobody else calls its deleter. Up to `flags` it
    /// is laid out as every release has it; of major release 1, wholly.
    #[doc(alias = "DLManagedTensorVersioned")]
    pub unsafe fn from_versioned(raw: *mut DLManagedTensorVersioned) -> Result<Self, DlpackError> {
        let raw = NonNull::new(raw).ok_or(DlpackError::Null)?;
        let this = Self { raw: Raw::Versioned(raw) };
        // SAFETY: the version is where it is in every release.
        let version = unsafe { (&raw const (*raw.as_ptr()).version).read() };
        if version.major != VERSION.major {
            // The drop calls the deleter and touches nothing else.
            return Err(DlpackError::Version { major: version.major, minor: version.minor });
        }
        Ok(this)
    }

    /// Takes a tensor of the layout before release 1.0 over.
    ///
    /// # Errors
    ///
    /// It is a null pointer.
    ///
    /// # Safety
    ///
    /// A pointer that is not null is one of a tensor that this call takes: nobody else calls its deleter.
    #[doc(alias = "DLManagedTensor")]
    pub unsafe fn from_legacy(raw: *mut DLManagedTensor) -> Result<Self, DlpackError> {
        NonNull::new(raw).map(|raw| Self { raw: Raw::Legacy(raw) }).ok_or(DlpackError::Null)
    }

    /// A tensor that was just made.
    pub(super) fn made(raw: NonNull<DLManagedTensorVersioned>) -> Self {
        Self { raw: Raw::Versioned(raw) }
    }

    /// Hands the tensor out: who gets it calls the deleter. One that came in the old layout is wrapped.
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

    /// Hands the tensor out in the layout before release 1.0: who gets it calls the deleter.
    ///
    /// # Errors
    ///
    /// It is read-only or its elements are padded, which that layout cannot say. The tensor's deleter has been called.
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

    /// The flags; none in the old layout.
    pub fn flags(&self) -> u64 {
        match self.raw {
            // SAFETY: the tensor is ours to read, and laid out as release 1 has it.
            Raw::Versioned(raw) => unsafe { (*raw.as_ptr()).flags },
            Raw::Legacy(_) => 0,
        }
    }

    /// What its producer says, unchecked.
    pub fn dl_tensor(&self) -> &DLTensor {
        match self.raw {
            // SAFETY: the tensor is ours to read, and laid out as release 1 has it.
            Raw::Versioned(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
            // SAFETY: the tensor is ours to read.
            Raw::Legacy(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
        }
    }

    /// Checks all that its producer says.
    ///
    /// # Errors
    ///
    /// What is wrong with it. The tensor's deleter has been called.
    pub fn check(self) -> Result<ImportedTensor, DlpackError> {
        // SAFETY: whoever took the tensor over promised a tensor, whose arrays are as long as it says.
        let tensor = unsafe { check(self.dl_tensor(), self.flags()) }?;
        Ok(ImportedTensor { tensor, managed: self })
    }
}

impl Drop for ManagedTensor {
    fn drop(&mut self) {
        match self.raw {
            Raw::Versioned(raw) => {
                // SAFETY: the deleter is where it is in every release, and is called by nobody else.
                unsafe {
                    if let Some(deleter) = (&raw const (*raw.as_ptr()).deleter).read() {
                        deleter(raw.as_ptr());
                    }
                }
            }
            Raw::Legacy(raw) => {
                // SAFETY: the deleter is called by nobody else.
                unsafe {
                    if let Some(deleter) = (*raw.as_ptr()).deleter {
                        deleter(raw.as_ptr());
                    }
                }
            }
        }
    }
}

/// A tensor of another library's whose numbers have been checked. Its end calls the deleter.
#[derive(Debug)]
pub struct ImportedTensor {
    tensor: Tensor,
    managed: ManagedTensor,
}

impl ImportedTensor {
    /// What it looks like.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Whether its producer has made a copy for the consumer, who alone has it.
    pub fn is_copied(&self) -> bool {
        self.managed.flags() & FLAG_IS_COPIED != 0
    }

    /// The tensor again, to hand it on.
    pub fn into_managed(self) -> ManagedTensor {
        self.managed
    }
}

/// Checks what is said of a tensor.
///
/// # Safety
///
/// Shape and strides that are not null are as long as `ndim` says, if that is 0 to 64.
pub(super) unsafe fn check(said: &DLTensor, flags: u64) -> Result<Tensor, DlpackError> {
    const KNOWN: u64 = FLAG_READ_ONLY | FLAG_IS_COPIED | FLAG_IS_SUBBYTE_TYPE_PADDED;
    if flags & !KNOWN != 0 {
        return Err(DlpackError::Flags { flags });
    }
    let device = check_device(said.device)?;
    let data_type = DataType::new(said.dtype.code, said.dtype.bits, said.dtype.lanes).map_err(TensorError::DataType)?;
    let dimensions = match usize::try_from(said.ndim) {
        Ok(dimensions) if dimensions <= crate::interchange::MAX_DIMENSIONS => dimensions,
        _ => return Err(TensorError::TooManyDimensions { dimensions: said.ndim.into() }.into()),
    };
    if dimensions != 0 && said.shape.is_null() {
        return Err(TensorError::NullShape { dimensions: said.ndim }.into());
    }
    let numbers = |pointer: *mut i64| -> &[i64] {
        // SAFETY: not null, and as long as this function's contract says.
        if dimensions == 0 { &[] } else { unsafe { slice::from_raw_parts(pointer, dimensions) } }
    };
    let (data, byte_offset) = (said.data.expose_provenance() as u64, said.byte_offset);
    let shape = numbers(said.shape);
    // Without data there are no elements, and nothing to be moved to.
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

/// Finds out what a device is to us. Memory of the host may come with any number that is not negative.
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
    /// The tensor for DLPack, held by `owner` until its deleter is called; as [`export()`].
    pub fn export<O: Send + 'static>(&self, owner: O) -> ManagedTensor {
        export(self, 0, owner)
    }
}
