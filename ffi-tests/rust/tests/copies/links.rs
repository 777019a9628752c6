//! Copies between host memory and one device over the host links of two devices.

use cuda_mem::copy::{HostLinks, HostLinksOptions, LinkRate};
use cuda_mem::memory::kind::{Device, Pinned};
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::{Buffer, CaptureMode, Context, Error, Stream, Topology};
use std::slice;
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{Setup, alone, hold, on_softgpu, pattern, same, test_name};

/// Staging of four pieces of 1 KiB, for copies of any size.
fn small() -> HostLinksOptions {
    let mut options = HostLinksOptions::default();
    (options.staging, options.minimum) = (4096, 0);
    options
}

/// The device that is copied to, and one whose link is used.
struct Pair {
    near: Context,
    far: Context,
}

impl Pair {
    fn of(setup: &Setup) -> Result<Self, Error> {
        Ok(Self { near: setup.context.clone(), far: setup.driver.device(1)?.primary_context()? })
    }

    /// Copies whose parts over the two links have these proportions.
    fn links(&self, near: u64, far: u64) -> Result<HostLinks, Error> {
        let rates = [(0, near), (1, far)].into_iter().filter(|(_, rate)| *rate > 0);
        let rates = rates.flat_map(|(ordinal, rate)| {
            [LinkRate::new(None, Some(ordinal), rate), LinkRate::new(Some(ordinal), None, rate)]
        });
        HostLinks::with_rates(&self.near, slice::from_ref(&self.far), &rates.collect::<Vec<_>>(), small())
    }

    fn memory(&self, size: usize) -> Result<Buffer<u8, Device>, Error> {
        Buffer::zeroed(&DeviceMemory::new(&self.near), size, &Stream::new(&self.near)?)
    }

    fn host(&self, bytes: &[u8]) -> Result<Buffer<u8, Pinned>, Error> {
        Buffer::from_slice(&PinnedMemory::new(&self.near), bytes, &Stream::new(&self.near)?)
    }
}

fn with_two(test: impl FnOnce(&Setup, &Pair) -> Outcome) -> Outcome {
    alone(|setup| {
        if setup.driver.device_count()? < 2 || !Topology::of(&setup.driver)?.is_mesh() {
            println!("skipped: two devices that access each other are needed (nvidia-smi topo -p2p r)");
            return Ok(());
        }
        test(setup, &Pair::of(setup)?)
    })
}

/// Runs copies, and returns how many of them went between devices, or `None` if the driver does not tell.
fn between_devices(setup: &Setup, work: impl FnOnce() -> Outcome) -> Result<Option<u64>, Box<dyn std::error::Error>> {
    softgpu::count_calls(true);
    let done = work();
    let count = softgpu::calls_of("cuMemcpyPeerAsync");
    softgpu::count_calls(false);
    done?;
    Ok(setup.is_software().then_some(count))
}

#[test]
fn parts_arrive_whole_by_any_shares_of_the_links() -> Outcome {
    with_two(|setup, pair| {
        let mut through_far = 0;
        for (near, far) in [(1, 1), (3, 1), (1, 40), (1, 0)] {
            let mut links = pair.links(near, far)?;
            assert_eq!(links.reserved_staging(), if far > 0 { 4096 } else { 0 });
            for size in [1, 255, 256, 511, 512, 513, 1024, 2047, 4097, 8192, 8193, 50_001] {
                let bytes = pattern(size + 10, size as u8);
                let host = pair.host(&bytes)?;
                let (mut memory, mut back) = (pair.memory(size + 5)?, pair.host(&vec![1; size + 9])?);
                let copies = between_devices(setup, || {
                    links.upload(&mut memory, 3, &host, 7..7 + size)?;
                    Ok(links.download(&mut back, 6, &memory, 3..3 + size)?)
                })?;
                let what = format!("{size} bytes by {near} to {far}");
                let expected = [&[0; 3], &bytes[7..7 + size], &[0; 2]].concat();
                same(&format!("{what}, uploaded"), &memory.to_vec()?, &expected)?;
                let expected = [&[1; 6], &bytes[7..7 + size], &[1; 3]].concat();
                same(&format!("{what}, downloaded"), &back.to_vec()?, &expected)?;
                if let Some(copies) = copies {
                    assert!(copies == 0 || far > 0, "{what}: {copies} copies between devices");
                    assert!(copies > 0 || far == 0 || size < 1024, "{what}: the other link was not used");
                    through_far += copies;
                }
            }
        }
        assert!(through_far > 0 || !setup.is_software());
        Ok(())
    })
}

#[test]
fn a_copy_comes_after_and_before_the_work_of_both_buffers() -> Outcome {
    with_two(|_, pair| {
        for (is_upload, is_target_held) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut links = pair.links(1, 1)?;
            let (memory, host) = (pair.memory(20_000)?.into_any(), pair.host(&[0; 20_000])?.into_any());
            let (mut to, mut from) = if is_upload { (memory, host) } else { (host, memory) };
            let mut later = pair.memory(20_000)?;
            let open = hold(if is_target_held { to.stream() } else { from.stream() })?;
            to.fill(.., 1)?;
            from.fill(.., 2)?;
            match is_upload {
                true => links.upload(&mut to, 0, &from, ..)?,
                false => links.download(&mut to, 0, &from, ..)?,
            }
            from.fill(.., 3)?;
            later.copy_from_buffer(0, &to, ..)?;
            to.fill(.., 4)?;
            assert!(!to.stream().is_done()?, "the call returns while earlier work waits");
            open.send(())?;
            same("later", &later.to_vec()?, &[2; 20_000])?;
            same("the source", &from.to_vec()?, &[3; 20_000])?;
            same("the target", &to.to_vec()?, &[4; 20_000])?;
        }
        Ok(())
    })
}

#[test]
fn copies_that_follow_each_other_share_the_staging() -> Outcome {
    with_two(|_, pair| {
        let mut links = pair.links(1, 2)?;
        let hosts = [pair.host(&pattern(9000, 1))?, pair.host(&pattern(9000, 2))?];
        let mut memory = [pair.memory(9000)?, pair.memory(9000)?];
        let mut back = [pair.host(&[0; 9000])?, pair.host(&[0; 9000])?];
        // The first copies wait; the others have other streams, and wait for the staging only.
        let open = hold(hosts[0].stream())?;
        for n in 0..2 {
            links.upload(&mut memory[n], 0, &hosts[n], ..)?;
            links.download(&mut back[n], 0, &memory[n], ..)?;
        }
        // The copies go on without it.
        drop(links);
        open.send(())?;
        same("the first", &back[0].to_vec()?, &pattern(9000, 1))?;
        same("the second", &back[1].to_vec()?, &pattern(9000, 2))?;
        Ok(())
    })
}

#[test]
fn the_staging_is_all_that_other_devices_give() -> Outcome {
    with_two(|setup, pair| {
        let mut options = small();
        options.staging = 8 << 20;
        let rates = [LinkRate::new(None, Some(0), 1), LinkRate::new(None, Some(1), 1)];
        // Access between the devices, and what a first copy needs.
        drop(pair.links(1, 1)?);
        let free = pair.far.memory_info()?.free;
        let mut links = HostLinks::with_rates(&pair.near, slice::from_ref(&pair.far), &rates, options)?;
        assert_eq!(links.rates(), rates, "only uploads are divided");
        let (host, mut memory) = (pair.host(&pattern(40 << 20, 5))?, pair.memory(40 << 20)?);
        links.upload(&mut memory, 0, &host, ..)?;
        let taken = free - pair.far.memory_info()?.free;
        assert_eq!(links.reserved_staging(), 8 << 20);
        if setup.is_software() {
            assert_eq!(taken, 8 << 20);
        }
        same("memory", &memory.to_vec()?, &pattern(40 << 20, 5))?;
        drop(links);
        if setup.is_software() {
            assert_eq!(pair.far.memory_info()?.free, free);
        }
        Ok(())
    })
}

#[test]
fn small_copies_use_the_own_link() -> Outcome {
    with_two(|setup, pair| {
        let mut options = small();
        options.minimum = 5000;
        let rates = [LinkRate::new(None, Some(0), 1), LinkRate::new(None, Some(1), 1)];
        let mut links = HostLinks::with_rates(&pair.near, slice::from_ref(&pair.far), &rates, options)?;
        let (host, mut memory) = (pair.host(&pattern(5000, 5))?, pair.memory(5000)?);
        let counts =
            [4999, 5000].map(|size| between_devices(setup, || Ok(links.upload(&mut memory, 0, &host, ..size)?)));
        let [small, large] = counts;
        if let (Some(small), Some(large)) = (small?, large?) {
            assert!(small == 0 && large > 0, "{small} and {large} copies between devices");
        }
        Ok(same("memory", &memory.to_vec()?, &pattern(5000, 5))?)
    })
}

#[test]
fn a_device_that_loses_its_access_is_used_no_more() -> Outcome {
    with_two(|setup, pair| {
        let mut links = pair.links(1, 1)?;
        let (host, mut memory) = (pair.host(&pattern(9000, 5))?, pair.memory(9000)?);
        pair.far.deny_access(&pair.near)?;
        let count = between_devices(setup, || Ok(links.upload(&mut memory, 0, &host, ..)?))?;
        assert!(count.is_none_or(|count| count == 0), "{count:?} copies between devices");
        same("memory", &memory.to_vec()?, &pattern(9000, 5))?;
        pair.far.allow_access(&pair.near)?;
        memory.fill(.., 0)?;
        let count = between_devices(setup, || Ok(links.upload(&mut memory, 0, &host, ..)?))?;
        assert!(count.is_none_or(|count| count > 0), "the access was given again");
        Ok(same("memory", &memory.to_vec()?, &pattern(9000, 5))?)
    })
}

#[test]
fn a_device_without_a_path_lends_no_link() {
    on_softgpu(&test_name!("part_without_a_path"), "none", "2");
}

#[test]
#[ignore = "a part of another test"]
fn part_without_a_path() -> Outcome {
    alone(|setup| {
        let pair = Pair::of(setup)?;
        let mut links = pair.links(1, 1)?;
        assert_eq!(links.rates(), [LinkRate::new(None, Some(0), 1), LinkRate::new(Some(0), None, 1)]);
        assert_eq!(links.reserved_staging(), 0);
        let (host, mut memory) = (pair.host(&pattern(9000, 5))?, pair.memory(9000)?);
        let count = between_devices(setup, || Ok(links.upload(&mut memory, 0, &host, ..)?))?;
        assert_eq!(count, Some(0));
        Ok(same("memory", &memory.to_vec()?, &pattern(9000, 5))?)
    })
}

#[test]
fn the_links_of_a_machine_are_measured() -> Outcome {
    with_two(|_, pair| {
        let mut options = small();
        options.staging = 1 << 20;
        let mut links = HostLinks::new(&pair.near, slice::from_ref(&pair.far), options)?;
        let rates = links.rates();
        let of = |from, to| rates.iter().find(|rate| (rate.from, rate.to) == (from, to));
        assert!(of(None, Some(0)).is_some() && of(Some(0), None).is_some(), "the own link is always used: {rates:?}");
        assert!(rates.iter().all(|rate| rate.bytes_per_second > 1 << 20), "{rates:?}");
        let used = of(None, Some(1)).is_some() || of(Some(1), None).is_some();
        assert_eq!(links.reserved_staging(), if used { 1 << 20 } else { 0 });
        let again = HostLinks::with_rates(&pair.near, slice::from_ref(&pair.far), &rates, options)?;
        assert_eq!(again.rates(), rates);
        let (host, mut memory) = (pair.host(&pattern(9000, 5))?, pair.memory(9000)?);
        links.upload(&mut memory, 0, &host, ..)?;
        Ok(same("memory", &memory.to_vec()?, &pattern(9000, 5))?)
    })
}

#[test]
fn wrong_arguments_are_named() -> Outcome {
    with_two(|_, pair| {
        let text = |outcome: Result<(), Error>| outcome.unwrap_err().to_string();
        let make = |through: &[&Context], rates: &[LinkRate], staging| {
            let mut options = small();
            options.staging = staging;
            let through: Vec<Context> = through.iter().map(|context| (*context).clone()).collect();
            HostLinks::with_rates(&pair.near, &through, rates, options).map(drop)
        };
        let own = [LinkRate::new(None, Some(0), 1)];
        let far = &pair.far;
        let told = text(make(&[far, far], &own, 4096));
        assert!(told.contains("HostLinks::with_rates") && told.contains("device 1 again"), "{told}");
        let told = text(make(&[&pair.near], &own, 4096));
        assert!(told.contains("device 0 again"), "{told}");
        let told = text(make(&[far], &own, 1023));
        assert!(told.contains("options.staging is 1023") && told.contains("1024"), "{told}");
        let told = text(make(&[far], &[LinkRate::new(None, Some(1), 1)], 4096));
        assert!(told.contains("none of device 0"), "{told}");

        let mut links = pair.links(1, 1)?;
        let (mut host, mut memory) = (pair.host(&[0; 100])?, pair.memory(100)?);
        let mut elsewhere = Buffer::<u8, _>::zeroed(&DeviceMemory::new(far), 100, &Stream::new(far)?)?;
        let told = text(links.upload(&mut elsewhere, 0, &host, ..));
        assert!(told.contains("HostLinks::upload") && told.contains("of device 1"), "{told}");
        let told = text(links.download(&mut host, 0, &elsewhere, ..));
        assert!(told.contains("HostLinks::download") && told.contains("of device 1"), "{told}");
        let told = text(links.upload(&mut memory, 0, &elsewhere, ..));
        assert!(told.contains("PinnedMemory"), "{told}");
        let mut second = pair.host(&[0; 100])?;
        let told = text(links.upload(&mut second, 0, &host, ..));
        assert!(told.contains("host memory"), "{told}");
        assert!(matches!(links.upload(&mut memory, 1, &host, ..), Err(Error::OutOfRange { .. })));
        assert!(matches!(links.download(&mut host, 0, &memory, 1..102), Err(Error::OutOfRange { .. })));
        links.upload(&mut memory, 100, &host, 50..50)?;

        let stream = memory.stream().clone();
        let graph = stream.capture(CaptureMode::ThreadLocal, |_| {
            for refused in [links.upload(&mut memory, 0, &host, ..), links.download(&mut host, 0, &memory, ..)] {
                let told = text(refused);
                assert!(told.contains("HostLinks::") && told.contains("capturing a graph"), "{told}");
            }
            Ok(())
        })?;
        drop(graph);
        links.upload(&mut memory, 0, &host, ..)?;
        Ok(memory.stream().synchronize_for(Duration::from_secs(20))?)
    })
}
