//! Frames: order, room, and what is wrong.

use crate::hosts::{Hosts, shared};
use cuda_mem::frames::{FrameError, FrameRing};
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::Signals;
use cuda_mem::{Buffer, Context, MappedMemory, Stream};
use cuda_mem_remote::Error;
use std::thread;
use testkit::sources::SOURCES;
use testkit::suite::Outcome;
use testkit::{alone_with_late_ends, delay, pattern};

fn ring(context: &Context, frames: usize, size: usize) -> Result<FrameRing, cuda_mem::Error> {
    FrameRing::new(&PinnedMemory::new(context), &Signals::new(context)?, frames, size)
}

#[test]
fn frames_arrive_in_order_from_every_kind_of_memory() -> Outcome {
    alone_with_late_ends(|setup| {
        let (context, size) = (&setup.context, 100_000);
        let hosts = Hosts::new(context)?;
        let stream = Stream::new(context)?;
        let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), size, &stream)?;
        for (number, source) in SOURCES.iter().enumerate() {
            // Each is received in a ring of another kind, too.
            let signals = Signals::new(context)?;
            let ring = match number % 2 {
                0 => FrameRing::new(&PinnedMemory::new(context), &signals, 3, size)?,
                _ => FrameRing::new(&MappedMemory::new(context)?, &signals, 3, size)?,
            };
            let incoming = hosts.other.receive_frames(source.name, &ring)?;
            let mut outgoing = hosts.peer.frames(source.name, size)?;
            let bytes: Vec<_> = (0..5).map(|frame| pattern(size, 10 * number as u8 + frame)).collect();
            let memory = (source.make)(context)?.share();
            thread::scope(|scope| {
                let sender = scope
                    .spawn(|| bytes.iter().try_for_each(|bytes| outgoing.send(&shared(&memory, bytes)?, ..).map(drop)));
                for bytes in &bytes {
                    let frame = ring.next()?;
                    arrived.copy_from_frame(0, &frame, ..)?;
                    incoming.fill(frame)?;
                    assert!(arrived.to_vec()? == *bytes, "{}", source.name);
                }
                sender.join().expect("no panic")?;
                Outcome::Ok(())
            })?;
        }
        drop(arrived);
        hosts.close()
    })
}

#[test]
fn a_sent_range_may_be_overwritten_by_later_work() -> Outcome {
    alone_with_late_ends(|setup| {
        let (context, size) = (&setup.context, 3_000_000);
        let hosts = Hosts::new(context)?;
        let ring = ring(context, 4, size)?;
        let incoming = hosts.other.receive_frames("a", &ring)?;
        let (stream, consumer) = (Stream::new(context)?, Stream::new(context)?);
        let memory = DeviceMemory::new(context);
        let mut source = Buffer::<u8, _>::zeroed(&memory, size, &stream)?;
        let mut arrived = Vec::new();
        for _ in 0..4 {
            let frame = ring.next()?;
            let mut to = Buffer::<u8, _>::zeroed(&memory, size, &consumer)?;
            to.copy_from_frame(0, &frame, ..)?;
            incoming.fill(frame)?;
            arrived.push(to);
        }
        let mut outgoing = hosts.peer.frames("a", size)?;
        for value in 1..=4u8 {
            // The frame's work is late, and the next frame's comes at once.
            delay(&stream)?;
            source.fill(.., value)?;
            outgoing.send(&source, ..)?;
            source.fill(.., 99)?;
        }
        for (value, to) in (1..=4u8).zip(&arrived) {
            assert!(to.to_vec()?.iter().all(|byte| *byte == value), "frame {value}");
        }
        drop((arrived, source));
        hosts.close()
    })
}

#[test]
fn a_sender_waits_for_room_and_goes_on() -> Outcome {
    alone_with_late_ends(|setup| {
        let context = &setup.context;
        let hosts = Hosts::new(context)?;
        let ring = ring(context, 2, 10)?;
        let incoming = hosts.other.receive_frames("a", &ring)?;
        let source = shared(&DeviceMemory::new(context), &[7; 10])?;
        let mut outgoing = hosts.peer.frames("a", 10)?;
        let refused = outgoing.send(&source, ..).expect_err("there is no room").to_string();
        assert!(refused.contains("no memory for another frame"), "{refused}");
        incoming.fill(ring.next()?)?;
        incoming.fill(ring.next()?)?;
        assert_eq!((outgoing.send(&source, ..)?, outgoing.send(&source, ..)?), (0, 1));
        assert!(matches!(outgoing.send(&source, ..), Err(Error::TimedOut { .. })));
        crate::hosts::eventually("both frames are published", || ring.statistics().published == 2);
        incoming.fill(ring.next()?)?;
        assert_eq!(outgoing.send(&source, ..)?, 2);
        drop(source);
        hosts.close()
    })
}

#[test]
fn frames_of_another_size_are_refused_on_both_sides() -> Outcome {
    alone_with_late_ends(|setup| {
        let context = &setup.context;
        let hosts = Hosts::new(context)?;
        let (small, large) = (ring(context, 2, 10)?, ring(context, 2, 11)?);
        let mut outgoing = hosts.peer.frames("a", 11)?;
        let incoming = hosts.other.receive_frames("a", &small)?;
        let source = shared(&DeviceMemory::new(context), &[7; 11])?;
        let refused = outgoing.send(&source, ..).expect_err("another size").to_string();
        assert_eq!(refused, "OutgoingFrames::send: a frame has 11 bytes, and 10 are those of the other side's frames");
        let refused = incoming.fill(small.next()?).expect_err("another size").to_string();
        assert_eq!(refused, "IncomingFrames::fill: the frame has 10 bytes, and 11 are those of the peer's frames");
        let refused = incoming.fill(large.next()?).expect_err("another ring").to_string();
        assert_eq!(refused, "IncomingFrames::fill: the frame has 11 bytes, and 10 are those of the ring");
        let refused = outgoing.send(&source, 1..).expect_err("a part").to_string();
        assert_eq!(refused, "OutgoingFrames::send: the range has 10 bytes, and 11 are those of a frame");
        let refused = outgoing.send(&source, 1..12).expect_err("no such bytes").to_string();
        assert_eq!(refused, "OutgoingFrames::send: the range has 12 bytes, and 11 are those of the buffer");
        drop(source);
        hosts.close()
    })
}

#[test]
fn a_name_serves_once_in_each_direction() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        let ring = ring(&setup.context, 1, 10)?;
        let _there = hosts.peer.frames("a", 10)?;
        let _back = hosts.other.frames("a", 10)?;
        assert!(matches!(hosts.peer.frames("a", 10), Err(Error::Name { .. })));
        let received = hosts.other.receive_frames("a", &ring)?;
        let refused = hosts.other.receive_frames("a", &ring).expect_err("twice").to_string();
        assert_eq!(refused, r#"Peer::receive_frames: the name "a" is received already"#);
        drop(received);
        assert!(matches!(hosts.other.receive_frames("a", &ring), Err(Error::Name { .. })));
        for name in ["", &"x".repeat(256)] {
            assert!(matches!(hosts.peer.frames(name, 10), Err(Error::Name { .. })));
        }
        assert!(matches!(hosts.peer.frames("b", 0), Err(Error::Size { .. })));
        hosts.close()
    })
}

#[test]
fn frames_that_wait_are_abandoned_with_their_connection() -> Outcome {
    alone_with_late_ends(|setup| {
        let context = &setup.context;
        let hosts = Hosts::new(context)?;
        let ring = ring(context, 2, 10)?;
        let stream = Stream::new(context)?;
        let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 10, &stream)?;
        let incoming = hosts.other.receive_frames("a", &ring)?;
        let frame = ring.next()?;
        arrived.copy_from_frame(0, &frame, ..)?;
        incoming.fill(frame)?;
        let other = hosts.other.clone();
        hosts.close()?;
        crate::hosts::eventually("the end is known", || other.check().is_err());
        let waited = stream.synchronize().expect_err("its frame never came");
        assert!(matches!(waited, cuda_mem::Error::Frame(FrameError::Abandoned { .. })), "{waited}");
        let gone = incoming.fill(ring.next()?).expect_err("the peer is gone");
        assert!(matches!(gone, Error::PeerGone { .. }), "{gone}");
        Ok(())
    })
}

#[test]
fn frames_go_both_ways_at_full_speed() -> Outcome {
    // Both sides send more than fits into all buffers between them, and neither receives faster than it sends.
    alone_with_late_ends(|setup| {
        let (context, size, count) = (&setup.context, 2_500_000, 30);
        let hosts = Hosts::new(context)?;
        let send = |peer: &cuda_mem_remote::Peer| {
            let source = shared(&DeviceMemory::new(context), &pattern(size, 5)).map_err(|error| error.to_string())?;
            let mut outgoing = peer.frames("a", size).map_err(|error| error.to_string())?;
            (0..count).try_for_each(|_| outgoing.send(&source, ..).map(drop)).map_err(|error| error.to_string())
        };
        let receive = |peer: &cuda_mem_remote::Peer| {
            let ring = ring(context, 2, size).map_err(|error| error.to_string())?;
            let incoming = peer.receive_frames("a", &ring).map_err(|error| error.to_string())?;
            for _ in 0..count {
                incoming.next(&ring).and_then(|frame| incoming.fill(frame)).map_err(|error| error.to_string())?;
            }
            crate::hosts::eventually("all frames are published", || ring.statistics().published == count);
            Ok::<(), String>(())
        };
        thread::scope(|scope| {
            let threads = [
                scope.spawn(|| send(&hosts.peer)),
                scope.spawn(|| send(&hosts.other)),
                scope.spawn(|| receive(&hosts.peer)),
                scope.spawn(|| receive(&hosts.other)),
            ];
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        hosts.close()
    })
}
