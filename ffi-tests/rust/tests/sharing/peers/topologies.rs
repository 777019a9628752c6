//! Machines whose devices cannot all access each other, each simulated in a process of its own.

use super::{Side, with_two};
use cuda_mem::buffer::{BatchOptions, CopyBatch, PeerRoute};
use cuda_mem::memory::ResourceHandle;
use cuda_mem::view::ViewCopyOptions;
use cuda_mem::{Buffer, Error, PeerError, Topology};
use testkit::suite::Outcome;
use testkit::{Setup, alone, on_softgpu, pattern, test_name};

/// Copies between all sources of two devices, and checks the route.
fn check(setup: &Setup, to: i32, from: i32, route: PeerRoute) -> Outcome {
    let (near, far) = (Side::new(setup, to)?, Side::new(setup, from)?);
    let bytes = pattern(3000, 11);
    for (name, source) in far.sources()? {
        let memory = Buffer::from_slice(&source, &bytes, &far.stream)?;
        let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), bytes.len(), &near.stream)?;
        copy.copy_from_buffer(0, &memory, ..)?;
        assert_eq!(memory.route_to(&copy), route, "{name}, from {from} to {to}");
        assert!(copy.to_vec()? == bytes, "{name}, from {from} to {to}");
        copy.fill(.., 0)?;
        let mut batch = CopyBatch::new(&near.stream);
        batch.copy(&mut copy, 0, &memory, ..)?;
        batch.submit()?;
        assert!(copy.to_vec()? == bytes, "{name}, from {from} to {to}, in a batch");
        copy.fill(.., 0)?;
        copy.view_mut(&[3000])?.copy_from(&memory.view(&[3000])?)?;
        assert!(copy.to_vec()? == bytes, "{name}, from {from} to {to}, as views");
        let allowed = source.allow_access(near.context.device());
        let mut options = BatchOptions::default();
        options.require_direct = true;
        let mut batch = CopyBatch::with_options(&near.stream, options);
        let in_batch = batch.copy(&mut copy, 0, &memory, ..);
        drop(batch);
        let mut options = ViewCopyOptions::default();
        options.require_direct = true;
        let as_views = copy.view_mut(&[3000])?.copy_from_with(&memory.view(&[3000])?, &options);
        if route == PeerRoute::Direct {
            allowed.and(in_batch).and(as_views)?;
            continue;
        }
        let through_host = |outcome: &cuda_mem::Result<()>| match outcome {
            Err(Error::Peer(PeerError::ThroughHost { device, owner, .. })) => (*device, *owner) == (to, from),
            _ => false,
        };
        assert!(through_host(&in_batch) && through_host(&as_views), "{name}: {in_batch:?}, {as_views:?}");
        let Err(error) = allowed else { panic!("{name}: access was given") };
        let named = match error {
            Error::Peer(PeerError::NoPath { device, owner, .. } | PeerError::Unverified { device, owner, .. }) => {
                (device, owner) == (to, from)
            }
            _ => false,
        };
        assert!(named, "{name}: {error}");
    }
    Ok(())
}

#[test]
fn without_paths_all_copies_go_through_the_host() {
    on_softgpu(&test_name!("part_none"), "none", "2");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_none() -> Outcome {
    alone(|setup| {
        check(setup, 0, 1, PeerRoute::ThroughHost)?;
        check(setup, 1, 0, PeerRoute::ThroughHost)
    })
}

#[test]
fn devices_of_a_pair_copy_directly_and_others_do_not() {
    on_softgpu(&test_name!("part_pairs"), "pairs", "4");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_pairs() -> Outcome {
    alone(|setup| {
        let topology = Topology::of(&setup.driver)?;
        assert!(!topology.is_mesh() && topology.ring().is_none());
        check(setup, 2, 3, PeerRoute::Direct)?;
        check(setup, 1, 2, PeerRoute::ThroughHost)
    })
}

#[test]
fn a_path_in_one_direction_serves_that_direction() {
    on_softgpu(&test_name!("part_one_way"), "one-way", "2");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_one_way() -> Outcome {
    alone(|setup| {
        check(setup, 0, 1, PeerRoute::Direct)?;
        check(setup, 1, 0, PeerRoute::ThroughHost)
    })
}

#[test]
fn access_that_loses_copies_is_found_and_taken_back() {
    on_softgpu(&test_name!("part_broken"), "broken", "2");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_broken() -> Outcome {
    with_two(|setup, near, far| {
        let error = far.context.allow_access(&near.context).unwrap_err();
        assert!(matches!(error, Error::Peer(PeerError::Unverified { device: 0, owner: 1, .. })), "{error}");
        check(setup, 0, 1, PeerRoute::ThroughHost)
    })
}
