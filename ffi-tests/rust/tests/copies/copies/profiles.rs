//! The profiles by which engines choose.

use cuda_mem::copy::{
    CopyEngine, CopyMethod, DeviceSide, Direction, HostSide, MachineProfile, MethodProfile, Route, RouteProfile, Sample,
};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Stream};
use testkit::alone;
use testkit::suite::Outcome;

#[test]
fn the_first_large_copy_takes_no_longer_than_the_next() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 8 << 20, &stream)?;
        let engine = CopyEngine::new(&setup.context)?;
        if !setup.is_software() {
            println!("skipped: the software GPU counts calls: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let bytes = vec![1; 8 << 20];
        let mut copies = || {
            softgpu::count_calls(true);
            engine.write(&mut buffer, 0, &bytes)?;
            let count = ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoD_v2"].map(softgpu::calls_of).iter().sum::<u64>();
            softgpu::count_calls(false);
            Ok::<_, cuda_mem::Error>(count)
        };
        let (first, next) = (copies()?, copies()?);
        assert_eq!(first, next, "a copy makes no others to measure the machine");
        assert_eq!(engine.profile(), MachineProfile::typical());
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
            methods: vec![
                MethodProfile { method: CopyMethod::Registered, samples: samples(1.0) },
                MethodProfile { method: CopyMethod::Staged { threads: 1 }, samples: samples(5.0) },
                MethodProfile { method: CopyMethod::Driver, samples: samples(6.0) },
            ],
        });
        let engine = CopyEngine::builder(&setup.context).profile(profile.clone()).build()?;
        // The engine never locks pages, unless that is requested.
        assert_eq!(engine.method(route, 1 << 20), CopyMethod::Staged { threads: 1 });
        assert_eq!(engine.profile(), profile);
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 4 << 20, &stream)?;
        engine.write(&mut buffer, 0, &vec![1; 4 << 20])?;
        assert_eq!(engine.profile(), profile, "a copy changes nothing");
        profile.routes[0].methods.truncate(1);
        engine.set_profile(profile.clone())?;
        assert_eq!(engine.method(route, 1 << 20), CopyMethod::Driver, "what is always there");
        profile.routes[0].methods[0].samples[0].nanoseconds = -1.0;
        let refused = engine.set_profile(profile.clone()).unwrap_err().to_string();
        assert!(refused.contains("profile") && refused.contains("above 0"), "{refused}");
        assert!(CopyEngine::builder(&setup.context).profile(profile).build().is_err());
        Ok(())
    })
}

#[test]
fn registering_pays_when_memory_is_copied_often() -> Outcome {
    alone(|setup| {
        let engine = CopyEngine::new(&setup.context)?;
        assert_eq!(engine.pays_to_register(Direction::ToDevice, 1 << 24, 10), None, "not measured yet");
        let route = |host| Route { direction: Direction::ToDevice, host, device: DeviceSide::Plain };
        let method =
            |method, nanoseconds| MethodProfile { method, samples: vec![Sample { bytes: 1 << 20, nanoseconds }] };
        let mut profile = MachineProfile::empty();
        let pageable = vec![method(CopyMethod::Driver, 100.0), method(CopyMethod::Registered, 500.0)];
        profile.set_route(RouteProfile { route: route(HostSide::Pageable), methods: pageable });
        profile.set_route(RouteProfile {
            route: route(HostSide::Pinned),
            methods: vec![method(CopyMethod::Driver, 20.0)],
        });
        engine.set_profile(profile)?;
        // 500 once and then 20 each, compared with 100 each.
        let pays = |copies| engine.pays_to_register(Direction::ToDevice, 1 << 20, copies);
        assert_eq!((pays(1), pays(5), pays(6), pays(1000)), (Some(false), Some(false), Some(true), Some(true)));
        Ok(())
    })
}
