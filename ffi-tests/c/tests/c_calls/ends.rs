//! Ends of the C library's buffers and arrays: beside calls of other threads, after calls that must not change their
//! kind, and in places where no call can return the error.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr;
use cuda_mem::interchange::arrow::{ArrowArray, ArrowDeviceArray};
use cudamem::arrow::*;
use cudamem::buffer::*;
use cudamem::engine_work::*;
use cudamem::guard::*;
use cudamem::handles::*;
use cudamem::host_memory::*;
use cudamem::library::*;
use cudamem::objects::cudamem_is_done;
use cudamem::status::*;
use cudamem::stream::*;
use cudamem::virtual_memory::*;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::c_objects::{Buffer, Context, Resource, Result, Stream, done, filled, told};

/// Runs one test at a time, because the drop error function applies to the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits long enough for another thread to reach its wait.
fn a_while() {
    std::thread::sleep(Duration::from_millis(100));
}

/// Delays a stream's work until it is opened, or for at most some seconds.
#[derive(Debug, Default)]
struct Gate {
    open: AtomicBool,
    passed: AtomicBool,
}

impl Gate {
    fn before(stream: &Stream) -> Result<&'static Self> {
        extern "C" fn hold(gate: *mut c_void) {
            // SAFETY: the pointer is a gate, which is never freed.
            let gate = unsafe { &*gate.cast::<Gate>() };
            let start = Instant::now();
            while !gate.open.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(1));
            }
            gate.passed.store(true, Ordering::Release);
        }
        let gate: &Self = Box::leak(Box::default());
        done(cudamem_stream_launch_host_function(stream.0, Some(hold), ptr::from_ref(gate).cast_mut().cast()))?;
        Ok(gate)
    }

    fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    fn has_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }
}

fn is_idle(stream: &Stream) -> Result<bool> {
    told(|place| cudamem_is_done(stream.0.id, place))
}

#[test]
fn buffer_destroy_waits_for_the_stream_that_was_just_set() -> Result {
    // Larger than the blocks that the pool keeps for each thread.
    const SIZE: usize = 8 << 20;
    let _alone = alone();
    let context = Context::open()?;
    let (home, other) = (context.stream()?, context.stream()?);
    let pool = context.device_memory()?.pool(0)?;
    let buffer = ManuallyDrop::new(pool.allocate(SIZE, &home)?);
    let (handle, stream, address) = (buffer.0, other.0, buffer.device_pointer()?);
    let (held, using) = (Gate::before(&home)?, Gate::before(&other)?);
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 16];
        // SAFETY: the vector has that many bytes.
        unsafe { cudamem_buffer_read(handle, 0, bytes.as_mut_ptr().cast(), bytes.len()) }
    });
    a_while();
    let ending = std::thread::spawn(move || match cudamem_buffer_set_stream(handle, stream) {
        CUDAMEM_SUCCESS => cudamem_buffer_destroy(handle),
        refused => refused,
    });
    a_while();
    held.open();
    let read = reading.join().expect("no panic");
    // The read may have come after the destroy.
    assert!([CUDAMEM_SUCCESS, CUDAMEM_ERROR_INVALID_HANDLE].contains(&read), "{read}");
    assert_eq!(ending.join().expect("no panic"), CUDAMEM_SUCCESS);
    // The next owner of the memory comes after the other stream's work.
    let next = pool.allocate(SIZE, &home)?;
    let free_at_once = next.device_pointer()? == address && is_idle(&home)?;
    assert!(!free_at_once || using.has_passed());
    using.open();
    other.synchronize()?;
    home.synchronize()
}

/// What an array's release finds.
#[derive(Debug, Default)]
struct Producer {
    work_is_done: AtomicBool,
    released_early: AtomicBool,
}

extern "C" fn work(user: *mut c_void) {
    std::thread::sleep(Duration::from_millis(2));
    // SAFETY: the producer outlives the stream's work.
    unsafe { &*user.cast::<Producer>() }.work_is_done.store(true, Ordering::Release);
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: the array is a producer's, and it is released once.
    unsafe {
        let producer = &*(*array).private_data.cast::<Producer>();
        producer.released_early.fetch_or(!producer.work_is_done.load(Ordering::Acquire), Ordering::AcqRel);
        (*array).release = None;
    }
}

#[test]
fn arrow_release_beside_a_call_waits_for_pending_work() -> Result {
    const ON_CPU: i32 = 1;
    let _alone = alone();
    let context = Context::open()?;
    let stream = context.stream()?;
    for _ in 0..100 {
        let producer = Producer::default();
        let user = ptr::from_ref(&producer).cast_mut().cast();
        let mut raw = ArrowDeviceArray {
            array: ArrowArray {
                length: 0,
                null_count: 0,
                offset: 0,
                n_buffers: 0,
                n_children: 0,
                buffers: ptr::null_mut(),
                children: ptr::null_mut(),
                dictionary: ptr::null_mut(),
                release: Some(release),
                private_data: user,
            },
            device_id: -1,
            device_type: ON_CPU,
            sync_event: ptr::null_mut(),
            reserved: [0; 3],
        };
        // SAFETY: the array is valid.
        let array: cudamem_arrow_array = told(|place| unsafe { cudamem_arrow_array_import(&mut raw, place) })?;
        done(cudamem_stream_launch_host_function(stream.0, Some(work), user))?;
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the struct consists of numbers, for which zero is a valid value.
                let mut info: cudamem_arrow_array_info = unsafe { core::mem::zeroed() };
                info.size = size_of::<cudamem_arrow_array_info>();
                // Repeat until the handle or the array in it is gone.
                // SAFETY: the struct is as large as it says.
                while unsafe { cudamem_arrow_array_get_info(array, &mut info) } == CUDAMEM_SUCCESS {}
            });
            cudamem_arrow_array_destroy_after(array, stream.0)
        });
        stream.synchronize()?;
        assert_eq!(ended, CUDAMEM_SUCCESS);
        assert!(!producer.released_early.load(Ordering::Acquire));
    }
    Ok(())
}

/// A resource whose blocks lie between guard zones.
fn guarded(upstream: &Resource) -> Result<Resource> {
    // SAFETY: no options.
    told(|place| unsafe { cudamem_resource_create_guarded(upstream.0, ptr::null(), place) }).map(Resource)
}

/// Writes beyond the end of a buffer that the CPU can address.
fn damage(buffer: &Buffer, stream: &Stream) -> Result {
    stream.synchronize()?;
    // SAFETY: the zone behind the block belongs to the guard, which allows tests to write it.
    unsafe { buffer.host_pointer()?.cast::<u8>().add(buffer.size()?).write(1) };
    Ok(())
}

static TOLD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn tell(status: cudamem_status, _: *const core::ffi::c_char, _: *mut c_void) {
    assert_eq!(status, CUDAMEM_ERROR_DAMAGED);
    TOLD.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn buffer_drop_invalidates_the_handle_and_reports_damage() -> Result {
    let _alone = alone();
    let context = Context::open()?;
    let stream = context.stream()?;
    let guard = guarded(&context.pinned_memory(0)?)?;
    done(cudamem_set_drop_error_callback(Some(tell), ptr::null_mut()))?;
    let before = TOLD.load(Ordering::Relaxed);
    let buffer = ManuallyDrop::new(guard.allocate(100, &stream)?);
    damage(&buffer, &stream)?;
    done(cudamem_buffer_drop(buffer.0))?;
    assert_eq!(TOLD.load(Ordering::Relaxed), before + 1);
    assert_eq!(buffer.size().map_err(|failure| failure.status), Err(CUDAMEM_ERROR_INVALID_HANDLE));
    let sound = ManuallyDrop::new(guard.allocate(100, &stream)?);
    done(cudamem_buffer_drop(sound.0))?;
    done(cudamem_buffer_drop(cudamem_buffer { id: 0 }))?;
    assert_eq!(cudamem_buffer_drop(sound.0), CUDAMEM_ERROR_INVALID_HANDLE);
    drop(guard);
    assert_eq!(TOLD.load(Ordering::Relaxed), before + 1);
    done(cudamem_set_drop_error_callback(None, ptr::null_mut()))
}

fn fill(buffer: &Buffer, size: usize, value: &[u8]) -> cudamem_status {
    // SAFETY: the slice has that many bytes.
    unsafe { cudamem_buffer_fill(buffer.0, 0, size, value.as_ptr().cast(), value.len()) }
}

/// Fills, comparisons, advice and prefetches, which make no slice.
fn work_that_shares_nothing(buffer: &Buffer) -> Result {
    for value in [&[7][..], &[1, 2], &[1, 2, 3, 4], &[1; 8], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6]] {
        done(fill(buffer, 96, value))?;
    }
    assert_eq!(fill(buffer, 95, &[1, 2, 3, 4]), CUDAMEM_ERROR_MISALIGNED);
    assert!(buffer.equals(buffer)?);
    Ok(())
}

#[test]
fn what_is_filled_compared_or_advised_stays_the_only_part() -> Result {
    let _alone = alone();
    let context = Context::open()?;
    let stream = context.stream()?;
    for (source, managed) in [(context.pinned_memory(0), false), (context.managed_memory(0), true)] {
        let guard = match source {
            Ok(source) => guarded(&source)?,
            Err(failure) if failure.status == CUDAMEM_ERROR_UNSUPPORTED => {
                println!("skipped: {failure}");
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let (buffer, twin) = (guard.allocate(100, &stream)?, guard.allocate(100, &stream)?);
        work_that_shares_nothing(&buffer)?;
        done(fill(&twin, 100, &[1]))?;
        done(fill(&buffer, 100, &[1, 1, 1, 1]))?;
        assert!(buffer.equals(&twin)? && twin.equals(&buffer)?);
        if managed {
            done(cudamem_buffer_advise(buffer.0, 0, 100, CUDAMEM_ADVICE_READ_MOSTLY, 0, 0))?;
            // SAFETY: the struct is as large as it says.
            let kept = filled(|info| unsafe { cudamem_buffer_get_managed_info(buffer.0, 0, 100, info) })?;
            assert_eq!(kept.read_mostly, 1);
            done(cudamem_buffer_advise(buffer.0, 0, 100, CUDAMEM_ADVICE_NOT_READ_MOSTLY, 0, 0))?;
        }
        // A part that still exists would keep the memory, and the damage would stay unseen.
        damage(&buffer, &stream)?;
        assert_eq!(cudamem_buffer_destroy(buffer.0), CUDAMEM_ERROR_DAMAGED);
    }
    let memory = match context.virtual_memory(CUDAMEM_LOCATION_DEVICE, 0) {
        Err(failure) if failure.status == CUDAMEM_ERROR_UNSUPPORTED => {
            println!("skipped: {failure}");
            return Ok(());
        }
        memory => memory?,
    };
    let growing = told(|place| cudamem_buffer_create_growable(memory.0, 4096, stream.0, place)).map(Buffer)?;
    for size in [100, 8192] {
        done(cudamem_buffer_grow(growing.0, size, None))?;
        work_that_shares_nothing(&growing)?;
    }
    Ok(())
}

/// This includes the first fill, which once turned the buffer into a shared one.
#[test]
fn fills_and_slices_wait_for_nothing() -> Result {
    let _alone = alone();
    let context = Context::open()?;
    let stream = context.stream()?;
    let buffer = context.device_memory()?.allocate(4096, &stream)?;
    let gate = Gate::before(&stream)?;
    done(fill(&buffer, 4096, &[1, 2, 3, 4]))?;
    let part = buffer.slice(0, 100)?;
    assert!(!is_idle(&stream)? && !gate.has_passed());
    gate.open();
    drop(part);
    stream.synchronize()
}

#[test]
fn pending_read_reports_completion_beside_a_waiting_thread() -> Result {
    let _alone = alone();
    let context = Context::open()?;
    let stream = context.stream()?;
    let buffer = context.device_memory()?.allocate(64, &stream)?;
    done(fill(&buffer, 64, &[5]))?;
    let engine = context.engine()?;
    let gate = Gate::before(&stream)?;
    let mut bytes = [0u8; 64];
    // SAFETY: the bytes live until the read has been waited for.
    let pending: cudamem_pending_read = told(|place| unsafe {
        cudamem_engine_read_buffer_on(engine.0, stream.0, buffer.0, 0, bytes.as_mut_ptr().cast(), bytes.len(), place)
    })?;
    let waiting = std::thread::spawn(move || cudamem_pending_read_wait(pending));
    a_while();
    assert!(!told(|place| cudamem_is_done(pending.id, place))? || gate.has_passed());
    assert!(!gate.has_passed());
    gate.open();
    assert_eq!(waiting.join().expect("no panic"), CUDAMEM_SUCCESS);
    assert!(told(|place| cudamem_is_done(pending.id, place))?);
    assert_eq!(bytes, [5; 64]);
    done(cudamem_pending_read_destroy(pending))
}

#[test]
fn a_file_that_is_imported_is_closed_whatever_fails() -> Result {
    let _alone = alone();
    let context = Context::open()?;
    let imported = |context: cudamem_context, with_place: bool| {
        let file = std::fs::File::open("/dev/null").expect("it can be opened");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut place = core::mem::MaybeUninit::uninit();
        let status = cudamem_physical_import(context, file.into_raw_fd(), 4096, with_place.then_some(&mut place));
        // Meanwhile no other thread of this program opens /dev/null.
        (status, std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == "/dev/null"))
    };
    assert_eq!(imported(cudamem_context { id: 0 }, true), (CUDAMEM_ERROR_INVALID_HANDLE, false));
    assert_eq!(imported(context.0, false), (CUDAMEM_ERROR_INVALID_ARGUMENT, false));
    let (status, open) = imported(context.0, true);
    assert!(status != CUDAMEM_SUCCESS && !open, "{status}");
    Ok(())
}
