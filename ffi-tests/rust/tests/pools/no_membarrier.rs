//! Pools of a process that may not call membarrier, by which one thread empties another's cache.

use cuda_mem::memory::PinnedMemory;
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Driver, Error, Stream};
use std::thread;
use testkit::forks::in_child;

/// Forbids the system call to the calling thread and to the threads that it starts from now on.
fn forbid_membarrier() -> Result<(), &'static str> {
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    // If the number of the call, at offset 0, is membarrier's, refuse the call.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, refused, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is of that length; the system copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    // SAFETY: the call takes numbers.
    let called = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
    match (installed, called) {
        (true, -1) => Ok(()),
        (true, _) => Err("the filter does not refuse membarrier"),
        (false, _) => Err("the system does not take the filter"),
    }
}

/// Threads allocate, fill and read buffers of a pool that is too small for all, so that they need each other's memory.
fn work(pool: &Pool<cuda_mem::memory::kind::Pinned>) -> Result<usize, Error> {
    let work_of = |number: u32| -> Result<usize, Error> {
        let stream = Stream::new(pool.context())?;
        let mut made = 0;
        for round in 0..300 {
            let length = 1 + (round * 37 + number as usize * 101) % 8000;
            let buffer = match Buffer::filled(pool, length, number, &stream) {
                Err(Error::OutOfMemory { .. }) => continue,
                made => made?,
            };
            assert!(buffer.to_vec()?.iter().all(|element| *element == number), "another thread's bytes");
            made += 1;
        }
        Ok(made)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || work_of(number))).collect();
        let made = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        made.sum::<Result<usize, Error>>()
    })
}

fn small_pool(driver: &Driver) -> Result<Pool<cuda_mem::memory::kind::Pinned>, Error> {
    let mut options = PoolOptions::default();
    (options.initial, options.maximum) = (1 << 18, 1 << 18);
    Pool::new(&PinnedMemory::new(&driver.device(0)?.primary_context()?), &options)
}

fn told(result: Result<(), Error>) -> Result<(), &'static str> {
    result.map_err(|error| &*error.to_string().leak())
}

#[test]
fn a_process_that_never_may_uses_whole_fences() {
    let result = in_child(|| {
        forbid_membarrier()?;
        told((|| {
            let driver = Driver::software()?;
            let pool = small_pool(&driver)?;
            assert!(work(&pool)? > 300, "most allocations find memory");
            assert_eq!(pool.statistics().blocks.current, 0);
            drop(pool);
            assert!(driver.take_drop_errors().errors.is_empty());
            Ok(())
        })())
    });
    assert_eq!(result, None);
}

#[test]
fn a_process_that_no_longer_may_keeps_what_threads_cached() {
    let result = in_child(|| {
        let driver = Driver::software().map_err(|_| "no software driver")?;
        let pool = small_pool(&driver).map_err(|_| "no pool")?;
        forbid_membarrier()?;
        told((|| {
            work(&pool)?;
            let context = pool.context().clone();
            drop(pool);
            let told: Vec<String> = context.take_drop_errors().errors.iter().map(ToString::to_string).collect();
            assert!(told.iter().any(|error| error.contains("membarrier")), "{told:?}");
            Ok(())
        })())
    });
    assert_eq!(result, None);
}
