//! Who may connect, and where, over each engine.

use crate::hosts::{Hosts, is_ucx, options};
use cuda_mem_remote::{Engine, Error, Key, Remote};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;
use testkit::suite::Outcome;
use testkit::{alone_with_late_ends, in_its_own_process, run_alone, test_name};

#[test]
fn another_key_is_refused_on_both_sides() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        let stranger = Remote::new(&setup.context, &Key::generate()?, &options())?;
        let refused = stranger.connect(hosts.listener.address()).expect_err("another key");
        assert!(matches!(refused, Error::WrongKey { .. }), "{refused}");
        assert!(refused.to_string().contains("give all peers the same"), "{refused}");
        let refused = hosts.listener.accept().expect_err("another key");
        assert!(matches!(refused, Error::WrongKey { .. }), "{refused}");
        hosts.close()
    })
}

#[test]
fn an_address_where_nobody_listens_is_an_error_at_once() -> Outcome {
    alone_with_late_ends(|setup| {
        let here = Remote::new(&setup.context, &Key::generate()?, &options())?;
        let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let begin = Instant::now();
        let refused = here.connect(closed).expect_err("nobody listens");
        assert!(matches!(refused, Error::System { .. } | Error::Refused { .. }), "{refused}");
        assert!(begin.elapsed() < options().deadline, "{:?}", begin.elapsed());
        Ok(())
    })
}

/// The addresses at which this process listens, and an entry for each of IPv6.
fn listens_at() -> std::io::Result<Vec<Ipv4Addr>> {
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut addresses = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let words: Vec<_> = line.split_whitespace().collect();
            // The state of a socket that listens.
            if words[3] == "0A" && own.iter().any(|inode| inode == words[9]) {
                let digits = words[1].split(':').next().unwrap_or_default();
                let number = u32::from_str_radix(digits, 16).unwrap_or(0);
                addresses.push(Ipv4Addr::from(number.to_ne_bytes()));
            }
        }
    }
    Ok(addresses)
}

#[test]
fn only_the_named_interface_listens() -> Outcome {
    alone_with_late_ends(|setup| {
        let hosts = Hosts::new(&setup.context)?;
        let addresses = listens_at()?;
        assert!(!addresses.is_empty() && addresses.iter().all(Ipv4Addr::is_loopback), "{addresses:?}");
        assert_eq!(hosts.peer.transport().engine.starts_with("UCX"), is_ucx());
        hosts.close()
    })
}

#[test]
#[ignore = "a part of the test below, which gives it an environment"]
fn part_without_ucx() -> Outcome {
    let setup = testkit::Setup::from_environment()?;
    let mut options = options();
    options.engine = Engine::UcxTrustedNetwork { interface: "lo".to_owned() };
    let refused = Remote::new(&setup.context, &Key::generate()?, &options).expect_err("there is no UCX");
    assert!(
        matches!(refused, Error::NoEngine(_)) && refused.to_string().contains("pip install libucx-cu13"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn a_missing_ucx_is_an_error_that_says_what_to_install() {
    let mut part = in_its_own_process(&test_name!("part_without_ucx"));
    run_alone(part.env("CUDA_MEM_LIBUCP", "/nowhere/libucp.so.0"));
}
