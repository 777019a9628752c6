//! Memory that the program may only read: its registration refuses each write, and its exports say so.

use cuda_mem::buffer::CopyBatch;
use cuda_mem::copy::{CopyEngine, CopyOptions};
use cuda_mem::interchange::dlpack::DlpackError;
use cuda_mem::memory::{BorrowedHostMemory, DeviceMemory, RegisterOptions, RegisteredMemory, ResourceHandle, kind};
use cuda_mem::{Buffer, Context, DataType, Error, HostBuffer, Stream};
use cudamem::array_interface::*;
use cudamem::buffer::*;
use cudamem::dlpack::*;
use cudamem::handles::*;
use cudamem::host_memory::*;
use cudamem::mapped::*;
use cudamem::status::*;
use cudamem::text::*;
use cudamem::view::*;
use cudamem::view_copy::*;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use testkit::c_objects::{self, done, told};
use testkit::suite::Outcome;
use testkit::{Setup, alone, in_time};

const SIZE: usize = 1 << 16;

/// Pages that the process cannot write, with one value everywhere.
struct Pages(NonNull<c_void>);

// SAFETY: the pages belong to the value.
unsafe impl Send for Pages {}

impl Pages {
    fn new() -> std::io::Result<Self> {
        let (may, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), SIZE, may, how, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is ours, and as large.
        let refused = unsafe {
            start.cast::<u8>().write_bytes(7, SIZE);
            libc::mprotect(start, SIZE, libc::PROT_READ)
        };
        assert_eq!(refused, 0);
        Ok(Self(NonNull::new(start).expect("an address")))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nobody uses the pages any more.
        unsafe { libc::munmap(self.0.as_ptr(), SIZE) };
    }
}

type Registered = RegisteredMemory<BorrowedHostMemory<u8>>;

fn register(context: &Context, pages: &Pages) -> Result<Registered, Error> {
    // SAFETY: the tests keep the pages until the registration has ended, and nothing writes them.
    let memory = unsafe { BorrowedHostMemory::read_only(pages.0.cast(), SIZE) };
    Ok(RegisteredMemory::new(context, memory, RegisterOptions::default())?)
}

/// Checks that a call that would write was refused by name.
fn refused<V>(what: &str, outcome: Result<V, Error>) -> Result<(), String> {
    match outcome {
        Err(error) if error.to_string().contains("read-only") => Ok(()),
        Err(error) => Err(format!("{what}: another error: {error}")),
        Ok(_) => Err(format!("{what}: was not refused")),
    }
}

#[test]
fn memory_registered_as_read_only_refuses_each_write() -> Outcome {
    alone(|setup| in_time(setup, |setup| writes(setup, &Pages::new()?)))
}

fn writes(setup: &Setup, pages: &Pages) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let registered = register(&setup.context, pages)?;
    refused("allocate", Buffer::<u8, kind::Pinned>::zeroed(&registered, 16, &stream))?;
    let mut buffer = registered.buffer(&stream)?;
    assert!(buffer.is_read_only());
    let other = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
    let engine = CopyEngine::new(&setup.context)?;

    refused("copy_from_slice", buffer.copy_from_slice(0, &[1]))?;
    refused("copy_from_buffer", buffer.copy_from_buffer(0, &other, ..))?;
    refused("copy_within", buffer.copy_within(..8, 64))?;
    refused("fill", buffer.fill(.., 1))?;
    refused("store", buffer.store(0, &[1]))?;
    refused("store_scope", buffer.store_scope(|scope| scope.store(0, &[1])))?;
    refused("write", buffer.write(..8).map(drop))?;
    refused("upload", buffer.upload(0, vec![1]).map(drop).map_err(Error::from))?;
    refused("batch", CopyBatch::new(&stream).copy(&mut buffer, 0, &other, ..))?;
    refused("engine", engine.write(&mut buffer, 0, &[1]))?;
    refused("engine, with options", engine.write_with(&mut buffer, 0, &[1], &CopyOptions::default()))?;
    refused("engine, complete", engine.write_complete(&mut buffer, 0, &[1]))?;
    refused("engine, in order", engine.write_on(&stream, &mut buffer, 0, &[1]))?;
    refused("engine, scattered", engine.write_scattered(&mut buffer, [(0, &[1][..])]))?;
    let theirs = other.view(&[SIZE])?;
    refused("view", buffer.view_mut(&[SIZE])?.copy_from(&theirs))?;
    refused("elements", buffer.view_mut(&[SIZE])?.write::<u8>().map(drop))?;

    // Reads work, by each of the ways.
    assert_eq!(buffer.to_vec()?, [7; SIZE]);
    assert_eq!(buffer.read(..3)?[..], [7; 3]);
    let mut seen = [0];
    buffer.load(0, &mut seen)?;
    engine.read(&buffer, 0, &mut seen)?;
    let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
    copy.copy_from_buffer(0, &buffer, ..)?;
    assert!(copy.equals(&buffer)?);
    drop(theirs);

    let (left, right) = buffer.split_at(8).map_err(Error::from)?;
    assert!(left.is_read_only() && right.is_read_only());
    let shared = right.into_shared();
    refused("shared store", shared.store(0, &[1]))?;
    let cell = shared.cell::<u32>(0)?;
    assert_eq!(cell.load()?, u32::from_ne_bytes([7; 4]));
    refused("cell", cell.store(1))?;
    let view = left.into_shared().into_view(&[2, 4])?;
    let mut written = view.clone();
    refused("shared view", written.copy_from(&view))?;
    drop((shared, cell, view, written));
    let host = registered.buffer(&stream);
    refused("host buffer", HostBuffer::from_buffer(host?).map(drop).map_err(Error::from))?;
    Ok(())
}

#[test]
fn exports_of_read_only_memory_say_so() -> Outcome {
    alone(|setup| in_time(setup, |setup| exports(setup, &Pages::new()?)))
}

fn exports(setup: &Setup, pages: &Pages) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let shared = register(&setup.context, pages)?.buffer(&stream)?.into_shared();
    let view = shared.clone().into_view(&[SIZE])?;
    assert!(view.is_read_only() && view.buffer().is_none());
    for tensor in [shared.tensor(), view.to_tensor()?, shared.tensor().with_layout(4, &[2, 2], None)?] {
        assert!(tensor.tensor().is_read_only() && tensor.memory().is_err());
        assert!(tensor.cuda_array_interface()?.data.1 && tensor.array_interface()?.data.1);
        let exported = tensor.to_dlpack(&Default::default())?;
        assert!(matches!(exported.into_legacy(), Err(DlpackError::LegacyReadOnly)));
        let raw = tensor.to_dlpack(&Default::default())?.into_versioned();
        // SAFETY: exported just now.
        let imported = unsafe { cuda_mem::interchange::dlpack::ManagedTensor::from_versioned(raw) }?.check()?;
        assert!(imported.tensor().is_read_only());
        drop(imported);
        let copy = tensor.copied(&DeviceMemory::new(&setup.context).share())?;
        assert!(!copy.tensor().is_read_only());
    }
    Ok(())
}

/// Checks that a call of the C library was refused by name.
fn forbidden(what: &str, status: cudamem_status) -> Result<(), String> {
    match done(status) {
        Err(failure) if status == CUDAMEM_ERROR_INVALID_ARGUMENT && failure.text.contains("read-only") => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    }
}

#[test]
fn the_c_library_writes_no_memory_registered_as_read_only() -> Outcome {
    alone(|setup| {
        in_time(setup, |_| {
            let pages = Pages::new()?;
            let context = c_objects::Context::open()?;
            let stream = context.stream()?;
            let buffer: cudamem_buffer = told(|place| {
                let start = pages.0.as_ptr();
                // SAFETY: the pages outlive the buffer, and nothing writes them.
                unsafe {
                    cudamem_buffer_register(
                        start,
                        SIZE,
                        stream.0,
                        CUDAMEM_REGISTER_READ_ONLY,
                        None,
                        ptr::null_mut(),
                        place,
                    )
                }
            })?;
            let source = [1u8; 16];
            let from = source.as_ptr().cast();
            // SAFETY: the sources have as many bytes.
            unsafe {
                forbidden("write", cudamem_buffer_write(buffer, 0, from, 16))?;
                forbidden("fill", cudamem_buffer_fill(buffer, 0, 16, from, 1))?;
                forbidden("fill of words", cudamem_buffer_fill(buffer, 0, 16, from, 4))?;
                forbidden("store", cudamem_buffer_store(buffer, 0, from, 16))?;
            }
            forbidden("copy", cudamem_buffer_copy(buffer, 0, buffer, 64, 16))?;
            let mut layout = cudamem_view_layout {
                size: size_of::<cudamem_view_layout>(),
                data_type: DataType::UINT8.into(),
                flags: 0,
                ndim: 1,
                shape: [16].as_ptr(),
                strides: ptr::null(),
                offset: 0,
            };
            // SAFETY: the layout and its shape are valid.
            let view: cudamem_view = told(|place| unsafe { cudamem_view_create(buffer, &layout, place) })?;
            layout.offset = 16;
            // SAFETY: as above.
            let other: cudamem_view = told(|place| unsafe { cudamem_view_create(buffer, &layout, place) })?;
            // SAFETY: the struct has the size that it says.
            let mut info: cudamem_view_info = unsafe { core::mem::zeroed() };
            info.size = size_of::<cudamem_view_info>();
            // SAFETY: as above.
            done(unsafe { cudamem_view_get_info(view, &mut info) })?;
            assert_ne!(info.flags & CUDAMEM_VIEW_READ_ONLY, 0);
            // SAFETY: the options may be null, and the source has as many bytes.
            unsafe {
                forbidden("view_copy", cudamem_view_copy(view, other, ptr::null()))?;
                forbidden("view_write", cudamem_view_write(view, from, 16, ptr::null()))?;
                let mut old = core::mem::MaybeUninit::uninit();
                forbidden("dlpack", cudamem_view_export_dlpack(view, ptr::null(), None, Some(&mut old)))?;
            }
            // SAFETY: the options may be null.
            let tensor =
                told(|place| unsafe { cudamem_view_export_dlpack(view, ptr::null(), Some(place.unwrap()), None) })?;
            // SAFETY: exported just now; the deleter is called once.
            unsafe {
                assert_eq!((*tensor).flags & 1, 1, "read-only");
                ((*tensor).deleter.expect("a deleter"))(tensor);
            }
            for flags in [0, CUDAMEM_ARRAY_INTERFACE_NUMPY] {
                let text: cudamem_text = told(|place| cudamem_view_export_array_interface(view, flags, place))?;
                // SAFETY: the text lives, and ends with a zero byte.
                let json = unsafe { CStr::from_ptr(told(|place| cudamem_text_get(text, Some(place.unwrap()), None))?) };
                assert!(json.to_str()?.contains(",true]"), "{json:?}");
                done(cudamem_text_destroy(text))?;
            }
            done(cudamem_view_destroy(view))?;
            done(cudamem_view_destroy(other))?;
            done(cudamem_buffer_destroy(buffer))?;
            Ok(())
        })
    })
}
