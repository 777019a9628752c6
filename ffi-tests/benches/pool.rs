//! What a pool costs, beside the driver's own pool.
//!
//! `cargo bench -p ffi-tests --bench pool` runs it over whatever the environment names. `--brief` is a short run that only
//! shows that it works.

use cuda_mem::memory::{DeviceMemory, DevicePool, PoolOptions, ResourceHandle};
use cuda_mem::pool::{Pool, PoolSettings};
use cuda_mem::{Context, Error, Stream};
use ffi_tests::Setup;
use ffi_tests::pool_workloads::{self as workloads, Length};

fn main() -> Result<(), Error> {
    let brief = std::env::args().any(|argument| argument == "--brief");
    let length = |rounds, batch| if brief { Length { rounds: 3, batch: 100 } } else { Length { rounds, batch } };
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let (context, stream) = (&setup.context, &Stream::new(&setup.context)?);
    // As programs do: the context is current on the thread that works.
    let _current = context.bind()?;
    let pool = || Pool::new(&DeviceMemory::new(context), &PoolSettings::default());
    let driver_pool = || DevicePool::new(context, &PoolOptions::default());

    println!("\nan allocation and a free together, one thread, one stream, ns, medians");
    println!("{:>12} {:>10} {:>10} {:>12}", "bytes", "pool", "Buffer", "driver pool");
    for size in [256, 4096, 1 << 20] {
        let (ours, theirs, length) = (pool()?, driver_pool()?, length(301, 1000));
        println!(
            "{size:>12} {:>10.1} {:>10.1} {:>12.1}",
            workloads::pair(&*ours.share(), stream, size, length)?,
            workloads::buffer_pair(&ours, stream, size, length)?,
            workloads::pair(&*theirs.share(), stream, size, length)?
        );
    }

    println!("\nblocks of 256 B to 2 MiB, log-uniform, replaced at random: an operation, ns, medians");
    println!("{:>12} {:>10} {:>12}", "live blocks", "pool", "driver pool");
    for live in if brief { &[100][..] } else { &[1000, 1500, 2000] } {
        println!(
            "{live:>12} {:>10.1} {:>12.1}",
            workloads::random(&*pool()?.share(), stream, *live, length(31, 20_000))?,
            workloads::random(&*driver_pool()?.share(), stream, *live, length(5, 2_000))?
        );
    }

    println!("\n1 KiB allocated and freed among holes of 1 KiB, ns; without fronts, each pair goes to the heap");
    println!("{:>12} {:>10} {:>10} {:>16} {:>10}", "holes", "pool", "p99.9", "without fronts", "p99.9");
    let mut without = PoolSettings::default();
    without.front_capacity = 0;
    for holes in if brief { &[64][..] } else { &[64, 1024, 4096, 16_384, 65_536] } {
        let ours = workloads::holes(&*pool()?.share(), stream, *holes, length(101, 2000))?;
        let heap = Pool::new(&DeviceMemory::new(context), &without)?;
        let heap = workloads::holes(&*heap.share(), stream, *holes, length(101, 2000))?;
        println!("{holes:>12} {:>10.1} {:>10.0} {:>16.1} {:>10.0}", ours.mean, ours.p999, heap.mean, heap.p999);
    }

    println!("\nthreads with 8 blocks of 256 B to 32 KiB each, replaced in turn: millions of operations a second");
    println!("{:>12} {:>14} {:>14} {:>10}", "threads", "own streams", "one stream", "times one");
    let mut first = None;
    for threads in if brief { &[1, 2][..] } else { &[1, 2, 4, 8, 16] } {
        let streams = streams(context, *threads)?;
        let own = workloads::threads(&pool()?, &streams, *threads, length(100, 5000))?;
        let one = workloads::threads(&pool()?, &streams[..1], *threads, length(100, 5000))?;
        println!("{threads:>12} {own:>14.1} {one:>14.1} {:>10.2}", own / *first.get_or_insert(own));
    }
    Ok(())
}

fn streams(context: &Context, count: usize) -> Result<Vec<Stream>, Error> {
    (0..count).map(|_| Stream::new(context)).collect()
}
