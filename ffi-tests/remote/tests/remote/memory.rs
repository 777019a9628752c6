//! Memory that peers fetch and write.

use crate::hosts::{Hosts, options, shared};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Stream};
use cuda_mem_remote::{Error, Peer, Remote, Rights, Ticket, TicketError};
use std::time::{Duration, Instant};
use testkit::sources::SOURCES;
use testkit::suite::Outcome;
use testkit::{alone_with_late_ends, delay, hold, pattern};

#[test]
fn memory_of_every_kind_goes_to_every_kind() -> Outcome {
    alone_with_late_ends(|setup| {
        let (context, size) = (&setup.context, 3 * cuda_mem_remote::RemoteOptions::SLOT / 2);
        let hosts = Hosts::new(context)?;
        for (number, from) in SOURCES.iter().enumerate() {
            let owned = shared(&(from.make)(context)?.share(), &pattern(size, number as u8))?;
            let offer = hosts.there.offer(&owned, Rights::ReadWrite);
            let remote = hosts.peer.open(&offer.ticket())?;
            assert_eq!(remote.size(), size as u64);
            for to in SOURCES {
                let here = shared(&(to.make)(context)?.share(), &vec![0; size])?;
                remote.fetch(5.., &here, 3)?.wait()?;
                assert!(here.to_vec()?[3..size - 2] == owned.to_vec()?[5..], "from {} to {}", from.name, to.name);
                remote.write(9, &here, 3..size - 6)?.wait()?;
                assert!(owned.to_vec()?[9..] == here.to_vec()?[3..size - 6], "from {} to {}", to.name, from.name);
            }
        }
        hosts.close()
    })
}

#[test]
fn transfers_of_all_sizes_arrive_whole() -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        let hosts = Hosts::new(&setup.context)?;
        for size in [1, 1 << 10, 65_024, 65_025, 1 << 20, (16 << 20) + 1, 64 << 20] {
            let owned = shared(&memory, &pattern(size, 1))?;
            let offer = hosts.there.offer(&owned, Rights::ReadWrite);
            let remote = hosts.peer.open(&offer.ticket())?;
            let here = shared(&memory, &vec![0; size])?;
            remote.fetch(.., &here, 0)?.wait()?;
            assert!(here.to_vec()? == pattern(size, 1), "{size} bytes fetched");
            let new = shared(&memory, &pattern(size, 2))?;
            remote.write(0, &new, ..)?.wait()?;
            assert!(owned.to_vec()? == pattern(size, 2), "{size} bytes written");
        }
        hosts.close()
    })
}

#[test]
fn transfers_come_in_the_order_of_streams() -> Outcome {
    alone_with_late_ends(|setup| {
        let (memory, size) = (DeviceMemory::new(&setup.context), 2_000_000);
        let hosts = Hosts::new(&setup.context)?;
        let mut owned = shared(&memory, &vec![1; size])?;
        let offer = hosts.there.offer(&owned, Rights::ReadWrite);
        let remote = hosts.peer.open(&offer.ticket())?;
        // The owner's and the destination's earlier work is late.
        let mut here = shared(&memory, &vec![0; size])?;
        delay(owned.stream())?;
        owned.fill(.., 2)?;
        delay(here.stream())?;
        here.fill(.., 9)?;
        remote.fetch(.., &here, 0)?.wait()?;
        owned.fill(.., 3)?;
        // Later work of the destination.
        let mut copy = Buffer::<u8, _>::zeroed(&memory, size, here.stream())?;
        copy.copy_from_buffer(0, &here, ..)?;
        assert!(copy.to_vec()?.iter().all(|byte| *byte == 2));
        // A write's source may be overwritten at once.
        delay(here.stream())?;
        here.fill(.., 4)?;
        let written = remote.write(0, &here, ..)?;
        here.fill(.., 5)?;
        written.wait()?;
        assert!(owned.to_vec()?.iter().all(|byte| *byte == 4));
        drop(offer);
        hosts.close()
    })
}

#[test]
fn an_operation_is_awaited() -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        let hosts = Hosts::new(&setup.context)?;
        let owned = shared(&memory, &pattern(100_000, 1))?;
        let offer = hosts.there.offer(&owned, Rights::Read);
        let remote = hosts.peer.open(&offer.ticket())?;
        let here = shared(&memory, &[0; 100_000])?;
        delay(owned.stream())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(10), remote.fetch(.., &here, 0)?).await??;
            Outcome::Ok(())
        })?;
        assert!(here.to_vec()? == owned.to_vec()?);
        drop(offer);
        hosts.close()
    })
}

/// The error of a fetch of 10 bytes.
fn fetch_error(peer: &Peer, ticket: &Ticket, context: &cuda_mem::Context) -> Result<Error, Error> {
    let here = shared(&DeviceMemory::new(context), &[0; 10])?;
    let outcome = peer.open(ticket)?.fetch(0..10, &here, 0)?.wait();
    assert_eq!(here.to_vec()?, [0; 10]);
    Ok(outcome.expect_err("the ticket does not serve"))
}

#[test]
fn tickets_that_do_not_serve_are_refused() -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        let hosts = Hosts::new(&setup.context)?;
        let owned = shared(&memory, &pattern(100, 1))?;
        let here = shared(&memory, &[0; 200])?;
        let ticket = |rights| hosts.there.offer(&owned, rights);

        let (read, write) = (ticket(Rights::Read), ticket(Rights::Write));
        let refused = hosts.peer.open(&read.ticket())?.write(0, &here, ..10)?.wait();
        assert!(matches!(refused, Err(Error::Ticket(TicketError::Rights { .. }))), "{refused:?}");
        let refused = fetch_error(&hosts.peer, &write.ticket(), &setup.context)?;
        assert!(matches!(refused, Error::Ticket(TicketError::Rights { .. })), "{refused}");
        // Nothing is sent for ranges that the ticket does not have.
        for range in [0..101, 100..101, 50..1 << 62, 5..5] {
            let refused = hosts.peer.open(&read.ticket())?.fetch(range, &here, 0).expect_err("the range");
            assert!(matches!(refused, Error::Ticket(TicketError::OutOfRange { .. })), "{refused}");
        }
        let refused = hosts.peer.open(&read.ticket())?.fetch(..100, &here, 101).expect_err("too long");
        assert!(matches!(refused, Error::Size { .. }), "{refused}");

        // A ticket that the peer has changed, of any size.
        for byte in [0, 8, 16, 23, 24, 25, 56] {
            let mut changed = *read.ticket().as_bytes();
            changed[byte] ^= 0x80;
            let refused = fetch_error(&hosts.peer, &Ticket::from_bytes(&changed)?, &setup.context)?;
            assert!(matches!(refused, Error::Ticket(TicketError::Forged)), "byte {byte}: {refused}");
        }
        assert!(matches!(Ticket::from_bytes(&[0; 56]), Err(TicketError::Length { bytes: 56 })));
        // Another owner's ticket.
        let refused = fetch_error(&hosts.other, &read.ticket(), &setup.context)?;
        assert!(matches!(refused, Error::Ticket(TicketError::Forged)), "{refused}");

        let late = read.ticket();
        drop(read);
        let refused = fetch_error(&hosts.peer, &late, &setup.context)?;
        assert!(matches!(refused, Error::Ticket(TicketError::Revoked)), "{refused}");
        // The owner serves on.
        hosts.peer.open(&write.ticket())?.write(0, &here, ..10)?.wait()?;
        assert_eq!(owned.to_vec()?[..11], [&[0; 10][..], &pattern(100, 1)[10..11]].concat());
        drop(write);
        hosts.close()
    })
}

#[test]
fn several_peers_use_one_owner() -> Outcome {
    alone_with_late_ends(|setup| {
        let (context, size) = (&setup.context, 5_000_000);
        let memory = DeviceMemory::new(context);
        let key = cuda_mem_remote::Key::generate()?;
        let owner = Remote::new(context, &key, &options())?;
        let listener = owner.listen("127.0.0.1:0")?;
        let owned = shared(&memory, &pattern(size, 1))?;
        let offer = owner.offer(&owned, Rights::Read);
        std::thread::scope(|scope| {
            let fetch = |seed: u8| -> Result<(), Error> {
                let peer = Remote::new(context, &key, &options())?.connect(listener.address())?;
                let here = shared(&memory, &vec![seed; size])?;
                let remote = peer.open(&offer.ticket())?;
                // Several at a time.
                let parts: Vec<_> = (0..10).map(|part| (part * size / 10)..((part + 1) * size / 10)).collect();
                let under_way: Vec<_> =
                    parts.iter().map(|part| remote.fetch(part.clone(), &here, part.start)).collect::<Result<_, _>>()?;
                under_way.into_iter().try_for_each(cuda_mem_remote::Operation::wait)?;
                assert!(here.to_vec()? == pattern(size, 1));
                peer.close()
            };
            let threads: Vec<_> = (0..3).map(|seed| scope.spawn(move || fetch(seed))).collect();
            let peers = (0..3).map(|_| listener.accept()).collect::<Result<Vec<_>, _>>()?;
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
            peers.into_iter().try_for_each(Peer::close)
        })?;
        Ok(())
    })
}

#[test]
fn a_fetch_of_memory_that_is_held_up_ends_in_time() -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        let hosts = Hosts::new(&setup.context)?;
        let owned = shared(&memory, &pattern(1000, 1))?;
        let offer = hosts.there.offer(&owned, Rights::Read);
        let remote = hosts.peer.open(&offer.ticket())?;
        let here = shared(&memory, &[0; 1000])?;
        let open = hold(owned.stream())?;
        let begin = Instant::now();
        let refused = remote.fetch(.., &here, 0)?.wait().expect_err("the owner's stream is held up");
        assert!(matches!(refused, Error::TimedOut { .. }) && begin.elapsed() < Duration::from_secs(4), "{refused}");
        // What comes afterwards changes nothing.
        drop(open);
        let again = shared(&memory, &[0; 1000])?;
        remote.fetch(.., &again, 0)?.wait()?;
        assert!(again.to_vec()? == owned.to_vec()? && here.to_vec()? == [0; 1000]);
        drop(offer);
        hosts.close()
    })
}

#[test]
fn a_connection_outlives_work_that_is_held_up() -> Outcome {
    // For longer than a peer may be silent.
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        let hosts = Hosts::new(&setup.context)?;
        let stream = Stream::new(&setup.context)?;
        let mut source = Buffer::<u8, _>::zeroed(&memory, 10, &stream)?;
        let open = hold(&stream)?;
        source.fill(.., 7)?;
        let owned = shared(&memory, &[0; 10])?;
        let offer = hosts.there.offer(&owned, Rights::Write);
        let written = hosts.peer.open(&offer.ticket())?.write(0, &source, ..)?;
        assert!(matches!(written.wait(), Err(Error::TimedOut { .. })));
        std::thread::sleep(options().silence);
        hosts.peer.check()?;
        hosts.other.check()?;
        drop(open);
        hosts.peer.open(&offer.ticket())?.write(0, &source, ..)?.wait()?;
        assert_eq!(owned.to_vec()?, [7; 10]);
        drop((source, offer));
        hosts.close()
    })
}
