//! The orders in which both sides end.

use crate::hosts::{Hosts, eventually, shared};
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::Signals;
use cuda_mem_remote::{Error, Rights};
use testkit::suite::Outcome;
use testkit::{alone_with_late_ends, forks, pattern};

/// How a side of a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Drop,
    Close,
}

#[test]
fn each_order_of_ends_leaves_nothing_behind() -> Outcome {
    alone_with_late_ends(|setup| {
        let context = &setup.context;
        let memory = DeviceMemory::new(context);
        for (first, second) in
            [(End::Drop, End::Drop), (End::Drop, End::Close), (End::Close, End::Drop), (End::Close, End::Close)]
        {
            for here_first in [true, false] {
                let hosts = Hosts::new(context)?;
                let ring = FrameRing::new(&PinnedMemory::new(context), &Signals::new(context)?, 2, 1000)?;
                let owned = shared(&memory, &pattern(2_000_000, 1))?;
                let here = shared(&memory, &vec![0; 2_000_000])?;
                let offer = hosts.there.offer(&owned, Rights::ReadWrite);
                let remote = hosts.peer.open(&offer.ticket())?;
                let incoming = hosts.other.receive_frames("a", &ring)?;
                incoming.fill(ring.next()?)?;
                let outgoing = hosts.peer.frames("a", 1000)?;
                // All of them are under way.
                let operations =
                    [remote.fetch(.., &here, 0)?, remote.write(0, &here, ..)?, remote.fetch(.., &here, 0)?];

                let (one, two) = if here_first { (hosts.peer, hosts.other) } else { (hosts.other, hosts.peer) };
                if first == End::Close {
                    one.close()?;
                }
                drop((remote, incoming, outgoing));
                if second == End::Close {
                    two.close()?;
                }
                for operation in operations {
                    match operation.wait() {
                        Ok(()) | Err(Error::PeerGone { .. }) => {}
                        Err(error) => return Err(format!("{first:?}, then {second:?}: {error}").into()),
                    }
                }
            }
        }
        Ok(())
    })
}

#[test]
fn what_was_sent_before_a_close_arrives() -> Outcome {
    alone_with_late_ends(|setup| {
        let context = &setup.context;
        for _ in 0..10 {
            let hosts = Hosts::new(context)?;
            let ring = FrameRing::new(&PinnedMemory::new(context), &Signals::new(context)?, 8, 100_000)?;
            let incoming = hosts.other.receive_frames("a", &ring)?;
            let frames = (0..8).map(|_| ring.next()).collect::<Result<Vec<_>, _>>()?;
            frames.into_iter().try_for_each(|frame| incoming.fill(frame))?;
            let mut outgoing = hosts.peer.frames("a", 100_000)?;
            let source = shared(&DeviceMemory::new(context), &pattern(100_000, 1))?;
            for _ in 0..8 {
                testkit::delay(source.stream())?;
                outgoing.send(&source, ..)?;
            }
            hosts.peer.close()?;
            eventually("all frames are published", || ring.statistics().published == 8);
        }
        Ok(())
    })
}

#[test]
fn a_fetch_for_a_stream_that_waits_for_a_frame_does_no_harm() -> Outcome {
    // Copies to memory of the host wait for its stream, and the stream waits for a frame of the same peer.
    alone_with_late_ends(|setup| {
        let context = &setup.context;
        let hosts = Hosts::new(context)?;
        let pinned = PinnedMemory::new(context);
        let ring = FrameRing::new(&pinned, &Signals::new(context)?, 2, 1000)?;
        let owned = shared(&DeviceMemory::new(context), &pattern(2_000_000, 1))?;
        let offer = hosts.there.offer(&owned, Rights::Read);
        let remote = hosts.peer.open(&offer.ticket())?;
        let incoming = hosts.peer.receive_frames("a", &ring)?;
        // Less than the staging: more would fail, so that the frame comes in time.
        let here = shared(&pinned, &vec![0; 2_000_000])?;
        let frame = ring.next()?;
        frame.wait_on(here.stream())?;
        incoming.fill(frame)?;
        let fetched = remote.fetch(.., &here, 0)?;
        // Another one goes on meanwhile.
        let device = shared(&DeviceMemory::new(context), &[0; 1000])?;
        hosts.other.frames("a", 1000)?.send(&owned, ..1000)?;
        fetched.wait()?;
        remote.fetch(..1000, &device, 0)?.wait()?;
        assert!(here.to_vec()? == pattern(2_000_000, 1) && device.to_vec()? == pattern(2_000_000, 1)[..1000]);
        drop(offer);
        hosts.close()
    })
}

#[test]
fn times_that_cannot_work_are_refused() -> Outcome {
    let setup = testkit::Setup::from_environment()?;
    let key = cuda_mem_remote::Key::generate()?;
    for (deadline, silence) in [(u64::MAX, 5), (10, 1), (10, u64::MAX)] {
        let mut options = crate::hosts::options();
        options.deadline = std::time::Duration::from_secs(deadline);
        options.silence = std::time::Duration::from_secs(silence);
        let refused =
            cuda_mem_remote::Remote::new(&setup.context, &key, &options).expect_err("out of bounds").to_string();
        assert!(refused.starts_with("Remote::new: RemoteOptions::") && refused.contains("must be"), "{refused}");
    }
    Ok(())
}

#[test]
fn the_side_that_is_left_learns_why() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        hosts.peer.check()?;
        let kept = hosts.peer.clone();
        hosts.peer.close()?;
        assert!(kept.check().expect_err("closed").to_string().ends_with("is gone: this program closed the connection"));
        eventually("the end is known", || hosts.other.check().is_err());
        assert!(hosts.other.check().expect_err("closed").to_string().ends_with("is gone: it closed the connection"));
        // Connect again to go on.
        let peer = hosts.here.connect(hosts.listener.address())?;
        let other = hosts.listener.accept()?;
        let owned = shared(&DeviceMemory::new(&setup.context), &[7; 10])?;
        let offer = hosts.there.offer(&owned, Rights::Read);
        let here = shared(&DeviceMemory::new(&setup.context), &[0; 10])?;
        peer.open(&offer.ticket())?.fetch(.., &here, 0)?.wait()?;
        assert_eq!(here.to_vec()?, [7; 10]);
        peer.close()?;
        other.close()?;
        Ok(())
    })
}

#[test]
fn a_forked_process_is_told_so_by_each_call() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &Signals::new(&setup.context)?, 2, 10)?;
        let owned = shared(&DeviceMemory::new(&setup.context), &[7; 10])?;
        let offer = hosts.there.offer(&owned, Rights::ReadWrite);
        let remote = hosts.peer.open(&offer.ticket())?;
        let mut outgoing = hosts.peer.frames("a", 10)?;
        let incoming = hosts.other.receive_frames("a", &ring)?;
        let frame = ring.next()?;
        let wrong = forks::in_child(|| {
            let is = |call: &'static str, error: Option<Error>| match error {
                Some(Error::Forked { .. }) => Ok(()),
                _ => Err(call),
            };
            is("check", hosts.peer.check().err())?;
            is("frames", hosts.peer.frames("b", 10).err())?;
            is("receive_frames", hosts.other.receive_frames("b", &ring).err())?;
            is("send", outgoing.send(&owned, ..).err())?;
            is("fill", incoming.fill(frame).err())?;
            is("open", hosts.peer.open(&offer.ticket()).err())?;
            is("fetch", remote.fetch(.., &owned, 0).err())?;
            is("write", remote.write(0, &owned, ..).err())?;
            is("connect", hosts.here.connect(hosts.listener.address()).err())?;
            is("listen", hosts.here.listen("127.0.0.1:0").err())?;
            is("accept", hosts.listener.accept().err())
        });
        assert_eq!(wrong, None);
        drop((remote, outgoing, incoming));
        hosts.close()
    })
}
