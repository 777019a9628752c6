//! When the engine measures a machine, and where it keeps the profile.

use cuda_mem::copy::{
    CopyEngine, DeviceSide, Direction, HostSide, MachineProfile, ProfileCache, Route, RouteProfile, Sample, Way,
    WayProfile,
};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Stream};
use ffi_tests::alone;
use ffi_tests::suite::Outcome;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// The test's own directory.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("cuda-mem-{name}-{}", std::process::id())))
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_first_large_copy_measures_and_the_next_engine_reads_what_was_found() -> Outcome {
    alone(|setup| {
        let (context, directory) = (&setup.context, Directory::new("first-large"));
        let stream = Stream::new(context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 2 << 20, &stream)?;
        let make = || CopyEngine::builder(context).profile_cache(ProfileCache::Directory(directory.0.clone())).build();
        let engine = make()?;
        engine.write(&mut buffer, 0, &[1; 1000])?;
        assert_eq!(directory.files(), Vec::<PathBuf>::new(), "a small copy measures nothing");
        assert_eq!(engine.profile().routes, MachineProfile::typical().routes);
        let began = Instant::now();
        engine.write(&mut buffer, 0, &vec![1; 2 << 20])?;
        println!("the first large copy took {:?}", began.elapsed());
        let profile = engine.profile();
        assert!(profile.routes != MachineProfile::typical().routes);
        let [file] = &directory.files()[..] else { return Err(format!("{:?}", directory.files()).into()) };
        assert!(file.to_string_lossy().contains(&context.device().uuid()?.to_string()), "{file:?}");
        // Mapped memory was not used, so it was not measured: the file contains less than the profile.
        let kept: MachineProfile = serde_json::from_slice(&fs::read(file)?)?;
        assert_eq!(kept.routes.len(), 4);
        assert!(kept.routes.iter().all(|known| known.route.device == DeviceSide::Plain));
        assert!(make()?.profile() == profile, "what is kept is what was found");
        // A damaged file is not an error, and a new file replaces it.
        fs::write(file, "{ \"format\": 1, ")?;
        let again = make()?;
        assert_eq!(again.profile().routes, MachineProfile::typical().routes);
        let measured = again.measure()?;
        assert!(make()?.profile() == measured);
        Ok(())
    })
}

#[test]
fn a_directory_that_cannot_be_written_is_told_and_no_obstacle() -> Outcome {
    alone(|setup| {
        let (context, directory) = (&setup.context, Directory::new("no-directory"));
        fs::write(&directory.0, "a file")?;
        let engine =
            CopyEngine::builder(context).profile_cache(ProfileCache::Directory(directory.0.clone())).build()?;
        engine.measure()?;
        let errors = context.take_drop_errors().errors;
        assert_eq!(errors.len(), 1, "{errors:?}");
        let text = errors[0].to_string();
        assert!(text.contains("profile"), "{text}");
        fs::remove_file(&directory.0)?;
        Ok(())
    })
}

#[test]
fn a_profile_that_is_given_is_what_counts() -> Outcome {
    alone(|setup| {
        let route = Route { direction: Direction::ToDevice, host: HostSide::Pageable, device: DeviceSide::Plain };
        let samples = |nanoseconds| vec![Sample { bytes: 100, nanoseconds }];
        let mut profile = MachineProfile::empty();
        profile.set_route(RouteProfile {
            route,
            ways: vec![
                WayProfile { way: Way::Registered, samples: samples(1.0) },
                WayProfile { way: Way::Staged { threads: 1 }, samples: samples(5.0) },
                WayProfile { way: Way::Driver, samples: samples(6.0) },
            ],
        });
        let engine = CopyEngine::builder(&setup.context).profile(profile.clone()).build()?;
        // The engine never locks pages, unless that is requested.
        assert_eq!(engine.way(route, 1 << 20), Way::Staged { threads: 1 });
        assert_eq!(engine.profile(), profile);
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 4 << 20, &stream)?;
        engine.write(&mut buffer, 0, &vec![1; 4 << 20])?;
        assert_eq!(engine.profile(), profile, "nothing was measured");
        profile.routes[0].ways.truncate(1);
        engine.set_profile(profile.clone())?;
        assert_eq!(engine.way(route, 1 << 20), Way::Driver, "what is always there");
        profile.routes[0].ways[0].samples[0].nanoseconds = -1.0;
        let refused = engine.set_profile(profile.clone()).unwrap_err().to_string();
        assert!(refused.contains("profile") && refused.contains("above 0"), "{refused}");
        assert!(CopyEngine::builder(&setup.context).profile(profile).build().is_err());
        Ok(())
    })
}

#[test]
fn registering_pays_when_memory_is_copied_often() -> Outcome {
    alone(|setup| {
        let engine = CopyEngine::builder(&setup.context).profile_cache(ProfileCache::Off).build()?;
        assert_eq!(engine.pays_to_register(Direction::ToDevice, 1 << 24, 10), None, "not measured yet");
        let route = |host| Route { direction: Direction::ToDevice, host, device: DeviceSide::Plain };
        let way = |way, nanoseconds| WayProfile { way, samples: vec![Sample { bytes: 1 << 20, nanoseconds }] };
        let mut profile = MachineProfile::empty();
        let pageable = vec![way(Way::Driver, 100.0), way(Way::Registered, 500.0)];
        profile.set_route(RouteProfile { route: route(HostSide::Pageable), ways: pageable });
        profile.set_route(RouteProfile { route: route(HostSide::Pinned), ways: vec![way(Way::Driver, 20.0)] });
        engine.set_profile(profile)?;
        // 500 once and then 20 each, compared with 100 each.
        let pays = |copies| engine.pays_to_register(Direction::ToDevice, 1 << 20, copies);
        assert_eq!((pays(1), pays(5), pays(6), pays(1000)), (Some(false), Some(false), Some(true), Some(true)));
        Ok(())
    })
}
