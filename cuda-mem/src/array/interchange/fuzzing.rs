//! Imports structures of other libraries that are made of arbitrary bytes.

use super::TensorDevice;
use super::array_interface::ArrayInterface;
use super::arrow::{ArrowArray, ArrowDeviceArray, DeviceArray};
use super::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, ManagedTensor,
};
use crate::DataType;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Takes numbers from bytes; zeros after the last byte.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let count = N.min(self.0.len());
        taken[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        taken
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    /// Mostly small numbers, sometimes any number.
    fn number(&mut self) -> i64 {
        match self.byte() {
            0..=199 => i64::from(self.byte()),
            200..=229 => -i64::from(self.byte()),
            _ => i64::from_le_bytes(self.bytes()),
        }
    }
}

/// Imports the bytes by one of the protocols.
///
/// # Panics
///
/// The release was not called exactly once, or an accepted array has an impossible range.
pub fn import(bytes: &[u8]) {
    let mut source = Source(bytes);
    match source.byte() % 3 {
        0 => tensor(&mut source),
        1 => interface(&mut source),
        _ => array(&mut source),
    }
}

unsafe extern "C" fn count_versioned(raw: *mut DLManagedTensorVersioned) {
    // SAFETY: `tensor` made the context a count.
    unsafe { (*(*raw).manager_ctx.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed) };
}

unsafe extern "C" fn count_legacy(raw: *mut DLManagedTensor) {
    // SAFETY: as above.
    unsafe { (*(*raw).manager_ctx.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed) };
}

fn tensor(source: &mut Source<'_>) {
    let mut shape: Vec<i64> = (0..source.byte() % 70).map(|_| source.number()).collect();
    let mut strides: Vec<i64> = shape.iter().map(|_| source.number()).collect();
    let [null_shape, null_strides, legacy] = source.bytes().map(|byte| byte > 200);
    // An import cannot detect a wrong `ndim` within 0 to 64.
    let ndim = match source.byte() {
        250.. => i32::from_le_bytes(source.bytes()),
        _ => shape.len() as i32,
    };
    let ndim = if (0..=64).contains(&ndim) { shape.len() as i32 } else { ndim };
    let said = DLTensor {
        data: ptr::without_provenance_mut(source.number() as usize),
        device: DLDevice { device_type: source.number() as i32 % 24, device_id: source.number() as i32 },
        ndim,
        dtype: DLDataType { code: source.byte() % 24, bits: source.byte(), lanes: source.number() as u16 },
        shape: if null_shape { ptr::null_mut() } else { shape.as_mut_ptr() },
        strides: if null_strides { ptr::null_mut() } else { strides.as_mut_ptr() },
        byte_offset: source.number() as u64,
    };
    let ends = AtomicUsize::new(0);
    let manager_ctx = (&raw const ends).cast_mut().cast::<c_void>();
    let mut old = DLManagedTensor { dl_tensor: said, manager_ctx, deleter: Some(count_legacy) };
    let version = DLPackVersion { major: u32::from(source.byte() % 4), minor: source.number() as u32 };
    let flags = source.number() as u64;
    let mut new =
        DLManagedTensorVersioned { version, manager_ctx, deleter: Some(count_versioned), flags, dl_tensor: said };
    // SAFETY: tensors that outlive the import, with arrays of the stated lengths.
    let managed =
        unsafe { if legacy { ManagedTensor::from_legacy(&mut old) } else { ManagedTensor::from_versioned(&mut new) } };
    if let Ok(imported) = managed.and_then(ManagedTensor::check) {
        let tensor = imported.tensor();
        let range = tensor.byte_range();
        assert!(tensor.is_empty() || range.start != 0 && range.start < range.end, "{tensor:?}");
        assert_eq!(ends.load(Ordering::Relaxed), 0, "ended in use");
        // Export it again.
        let again = tensor.export(imported.is_copied()).check().map(|again| again.tensor().clone());
        assert!(again.is_ok_and(|again| again.shape() == tensor.shape() && again.byte_range().end <= range.end));
    }
    assert_eq!(ends.load(Ordering::Relaxed), 1);
}

fn interface(source: &mut Source<'_>) {
    let text = String::from_utf8_lossy(source.0).into_owned();
    let _ = text.parse::<DataType>();
    if let Ok(said) = ArrayInterface::from_json(&text) {
        let _ = said.check(TensorDevice::Cpu);
    }
    let said = ArrayInterface {
        shape: (0..source.byte() % 5).map(|_| source.number()).collect(),
        typestr: String::from_utf8_lossy(&source.bytes::<4>()).into_owned(),
        data: (source.number() as u64, false),
        strides: Some((0..source.byte() % 5).map(|_| source.number()).collect()),
        version: 3,
        stream: Some(source.number()),
        has_mask: false,
    };
    let _ = said.check(TensorDevice::Cuda(0));
    if let Ok(data_type) = DataType::from_typestr(&said.typestr) {
        assert_eq!(data_type.typestr().map(|text| DataType::from_typestr(&text)), Ok(Ok(data_type)));
    }
}

unsafe extern "C" fn count_array(raw: *mut ArrowArray) {
    // SAFETY: `array` made the private data a count.
    unsafe {
        (*(*raw).private_data.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed);
        (*raw).release = None;
    }
}

fn array(source: &mut Source<'_>) {
    let ends = AtomicUsize::new(0);
    let mut buffers: Vec<*const c_void> =
        (0..source.byte() % 5).map(|_| ptr::without_provenance(source.number() as usize)).collect();
    let mut node = |source: &mut Source<'_>, children: &mut [*mut ArrowArray]| {
        let count = |source: &mut Source<'_>, there: usize| match source.byte() {
            240.. => -source.number().saturating_abs(),
            _ => there as i64,
        };
        ArrowArray {
            length: source.number(),
            null_count: source.number() % 9 - 1,
            offset: source.number(),
            n_buffers: count(source, buffers.len()),
            n_children: count(source, children.len()),
            buffers: if source.byte() > 240 { ptr::null_mut() } else { buffers.as_mut_ptr() },
            children: if source.byte() > 240 { ptr::null_mut() } else { children.as_mut_ptr() },
            dictionary: ptr::null_mut(),
            release: (source.byte() < 240).then_some(count_array as _),
            private_data: (&raw const ends).cast_mut().cast(),
        }
    };
    let mut leaf = node(source, &mut []);
    let mut children = [if source.byte() > 240 { ptr::null_mut() } else { &raw mut leaf }];
    let mut top = node(source, &mut children);
    top.release = Some(count_array);
    let mut raw = ArrowDeviceArray {
        array: top,
        device_id: source.number(),
        device_type: i32::from(source.byte() % 24),
        sync_event: ptr::null_mut(),
        reserved: [0, 0, i64::from(source.byte() > 250)],
    };
    // SAFETY: an array that outlives the import, with arrays of the stated lengths, where those are not negative.
    let imported = unsafe { DeviceArray::from_raw(&mut raw) }.and_then(DeviceArray::check);
    if let Ok(imported) = imported {
        assert_eq!(ends.load(Ordering::Relaxed), 0, "released in use");
        assert!(imported.node().null_count.is_none_or(|count| count <= imported.node().length));
    }
    assert_eq!(ends.load(Ordering::Relaxed), 1);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 3000 }))]

        /// The fuzz target without a fuzzer.
        #[test]
        fn whatever_strangers_say_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            super::import(&bytes);
        }
    }
}
