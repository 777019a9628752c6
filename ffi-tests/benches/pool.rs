//! The cost of a pool, compared with the driver's own pool.
//!
//! `cargo bench -p benches --bench pool` runs it over the driver that the environment names. `--brief` is a short run
//! that only shows that it works. Names of parts (`pairs`, `random`, `holes`, `threads`, `addresses`) run only these parts.

use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, kind};
use cuda_mem::pool::{AddressPools, Pool, PoolOptions};
use cuda_mem::{Context, Error, Stream};
use testkit::Setup;
use testkit::pool_workloads::{self as workloads, Length};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bench =
        Bench { setup: Setup::from_environment()?, brief: arguments.iter().any(|argument| argument == "--brief") };
    println!("{}", bench.setup.describe());
    // Programs usually make the context current on the working thread, so do that here.
    let _current = bench.setup.context.bind()?;
    // `cargo bench -- random holes` runs only these parts.
    let named: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| *wanted == name);
    if wanted("pairs") {
        bench.pairs()?;
    }
    if wanted("random") {
        bench.random()?;
    }
    if wanted("holes") {
        bench.holes()?;
    }
    if wanted("threads") {
        bench.threads()?;
    }
    if wanted("addresses") {
        bench.addresses()?;
    }
    Ok(())
}

struct Bench {
    setup: Setup,
    brief: bool,
}

impl Bench {
    fn length(&self, rounds: usize, batch: usize) -> Length {
        if self.brief { Length { rounds: 3, batch: 100 } } else { Length { rounds, batch } }
    }

    fn pool(&self, change: impl FnOnce(&mut PoolOptions)) -> Result<Pool<kind::Device>, Error> {
        let mut settings = PoolOptions::default();
        change(&mut settings);
        Pool::new(&DeviceMemory::new(&self.setup.context), &settings)
    }

    fn driver_pool(&self) -> Result<DevicePool, Error> {
        DevicePool::new(&self.setup.context, &DriverPoolOptions::default())
    }

    fn pairs(&self) -> Result<(), Error> {
        println!("\nan allocation and a free together, one thread, one stream, ns, medians");
        println!("{:>12} {:>10} {:>10} {:>12}", "bytes", "pool", "Buffer", "driver pool");
        let (stream, length) = (&Stream::new(&self.setup.context)?, self.length(301, 1000));
        for size in [256, 4096, 1 << 20] {
            let (ours, theirs) = (self.pool(|_| {})?, self.driver_pool()?);
            println!(
                "{size:>12} {:>10.1} {:>10.1} {:>12.1}",
                workloads::pair(&*ours.share(), stream, size, length)?,
                workloads::buffer_pair(&ours, stream, size, length)?,
                workloads::pair(&*theirs.share(), stream, size, length)?
            );
        }
        Ok(())
    }

    fn random(&self) -> Result<(), Error> {
        println!("\nblocks of 256 B to 2 MiB, log-uniform, replaced at random: an operation, ns, medians");
        println!("{:>12} {:>10} {:>16} {:>12}", "live blocks", "pool", "without caches", "driver pool");
        let stream = &Stream::new(&self.setup.context)?;
        for live in if self.brief { &[100][..] } else { &[1000, 1500, 2000] } {
            let (ours, heap) = (self.pool(|_| {})?, self.pool(|settings| settings.cache_capacity = 0)?);
            println!(
                "{live:>12} {:>10.1} {:>16.1} {:>12.1}",
                workloads::random(&*ours.share(), stream, *live, self.length(31, 20_000))?,
                workloads::random(&*heap.share(), stream, *live, self.length(31, 20_000))?,
                workloads::random(&*self.driver_pool()?.share(), stream, *live, self.length(5, 2_000))?
            );
        }
        Ok(())
    }

    fn holes(&self) -> Result<(), Error> {
        println!("\n1 KiB allocated and freed among holes of 1 KiB, ns; without caches, each pair goes to the heap");
        println!("{:>12} {:>10} {:>10} {:>16} {:>10}", "holes", "pool", "p99.9", "without caches", "p99.9");
        let (stream, length) = (&Stream::new(&self.setup.context)?, self.length(101, 2000));
        for holes in if self.brief { &[64][..] } else { &[64, 1024, 4096, 16_384, 65_536] } {
            let (ours, heap) = (self.pool(|_| {})?, self.pool(|settings| settings.cache_capacity = 0)?);
            let ours = workloads::holes(&*ours.share(), stream, *holes, length)?;
            let heap = workloads::holes(&*heap.share(), stream, *holes, length)?;
            println!("{holes:>12} {:>10.1} {:>10.0} {:>16.1} {:>10.0}", ours.mean, ours.p999, heap.mean, heap.p999);
        }
        Ok(())
    }

    fn threads(&self) -> Result<(), Error> {
        println!("\nthreads with 8 blocks of 256 B to 32 KiB each, replaced in turn: millions of operations a second");
        println!("{:>12} {:>14} {:>14} {:>10}", "threads", "own streams", "one stream", "times one");
        let (mut first, length) = (None, self.length(100, 5000));
        for threads in if self.brief { &[1, 2][..] } else { &[1, 2, 4, 8, 16] } {
            let streams = streams(&self.setup.context, *threads)?;
            let own = workloads::threads(&self.pool(|_| {})?, &streams, *threads, length)?;
            let one = workloads::threads(&self.pool(|_| {})?, &streams[..1], *threads, length)?;
            println!("{threads:>12} {own:>14.1} {one:>14.1} {:>10.2}", own / *first.get_or_insert(own));
        }
        Ok(())
    }

    fn addresses(&self) -> Result<(), Error> {
        println!("\na pair by address, ns; medians, with threads the time of one pair on each");
        println!("{:>12} {:>14} {:>14} {:>14}", "bytes", "0 live", "100 live", "100000 live");
        let (stream, length) = (&Stream::new(&self.setup.context)?, self.length(301, 1000));
        for size in [256, 4096, 1 << 20] {
            print!("{size:>12}");
            for live in [0, 100, if self.brief { 1000 } else { 100_000 }] {
                let pools = AddressPools::new(&self.setup.driver, &PoolOptions::default())?;
                print!(" {:>14.1}", workloads::address_pair(&pools, stream, size, live, length)?);
            }
            println!();
        }
        println!("{:>12} {:>14}", "threads", "own streams");
        for threads in if self.brief { &[1, 2][..] } else { &[1, 2, 4, 8, 16] } {
            let pools = AddressPools::new(&self.setup.driver, &PoolOptions::default())?;
            let streams = streams(&self.setup.context, *threads)?;
            println!("{threads:>12} {:>14.1}", workloads::address_threads(&pools, &streams, self.length(100, 5000))?);
        }
        Ok(())
    }
}

fn streams(context: &Context, count: usize) -> Result<Vec<Stream>, Error> {
    (0..count).map(|_| Stream::new(context)).collect()
}
