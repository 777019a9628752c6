//! Programs without the key, and networks that change bytes.

use crate::hosts::{Hosts, eventually, options, shared};
use crate::relay::{Mischief, Relay};
use cuda_mem::memory::DeviceMemory;
use cuda_mem_remote::{Cause, Error, Key, Remote, Rights};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{alone_with_late_ends, pattern};

#[test]
fn a_program_of_another_kind_is_named_as_such() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        // It comes.
        let mut web = TcpStream::connect(hosts.listener.address())?;
        web.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let refused = hosts.listener.accept().expect_err("it is no peer").to_string();
        assert!(refused.contains("is no cuda-mem-remote"), "{refused}");
        // It is there: a web server, and a later release.
        for (answer, expected) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "is no cuda-mem-remote"),
            (b"\x00\x10cuda-mem-remot\x02\x00", "protocol 2"),
        ] {
            let server = TcpListener::bind("127.0.0.1:0")?;
            let address = server.local_addr()?;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let (mut stream, _) = server.accept().expect("a connection");
                    stream.write_all(answer).expect("an answer");
                    let _ = stream.read(&mut [0; 100]);
                });
                let refused = hosts.here.connect(address).expect_err("it is no peer").to_string();
                assert!(refused.contains(expected), "{refused}");
            });
        }
        hosts.close()
    })
}

#[test]
fn strangers_who_say_nothing_hold_up_nobody() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        let silent: Vec<_> = (0..30).map(|_| TcpStream::connect(hosts.listener.address())).collect::<Result<_, _>>()?;
        let begin = Instant::now();
        let peer = hosts.here.connect(hosts.listener.address())?;
        let other = hosts.listener.accept()?;
        assert!(begin.elapsed() < options().deadline, "{:?}", begin.elapsed());
        peer.close()?;
        other.close()?;
        drop(silent);
        hosts.close()
    })
}

#[test]
fn an_address_where_nobody_answers_is_an_error_in_time() -> Outcome {
    alone_with_late_ends(|setup| {
        let here = Remote::new(&setup.context, &Key::generate()?, &options())?;
        // It takes connections and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let begin = Instant::now();
        let refused = here.connect(silent.local_addr()?).expect_err("nobody answers");
        assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
        assert!(begin.elapsed() < options().deadline + Duration::from_secs(2));
        assert!(matches!(here.listen("192.0.2.1:1"), Err(Error::System { .. })), "an address of another host");
        Ok(())
    })
}

#[test]
fn changed_repeated_and_missing_bytes_end_the_connection() -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = DeviceMemory::new(&setup.context);
        for mischief in [Mischief::Change, Mischief::Repeat, Mischief::LeaveOut] {
            let hosts = Hosts::new(&setup.context)?;
            let relay = Relay::to(hosts.listener.address())?;
            let (peer, other) = (hosts.here.connect(relay.address)?, hosts.listener.accept()?);
            let owned = shared(&memory, &pattern(300_000, 1))?;
            let offer = hosts.there.offer(&owned, Rights::Write);
            let remote = peer.open(&offer.ticket())?;
            remote.write(0, &owned, ..)?.wait()?;
            relay.set(mischief);
            let new = shared(&memory, &pattern(300_000, 2))?;
            let written = remote.write(0, &new, ..).and_then(cuda_mem_remote::Operation::wait);
            assert!(written.is_err(), "{mischief:?}: {written:?}");
            eventually("the other side knows", || other.check().is_err());
            let Err(Error::PeerGone { cause, .. }) = other.check() else { return Err("the connection lives".into()) };
            // The rest of a message may never come.
            assert!(matches!(cause, Cause::Protection | Cause::Silent { .. }), "{mischief:?}: {cause}");
            // What arrived before is of the one or the other, never of neither.
            let bytes = owned.to_vec()?;
            let known = bytes.iter().zip(pattern(300_000, 1)).zip(pattern(300_000, 2));
            assert!(known.into_iter().all(|((byte, old), new)| *byte == old || *byte == new));
            drop((peer, other, remote, offer));
            hosts.close()?;
        }
        Ok(())
    })
}
