//! Two network namespaces, each with a program, and a cable between them on which packets vanish.

use crate::hosts::{eventually, options};
use crate::owner::{self, OPERATIONS, Owner, memory};
use cuda_mem_remote::{Error, Key, Remote};
use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{alone_with_late_ends, in_its_own_process, run_alone, test_name};

/// The addresses of both ends of the cable.
const NEAR: &str = "10.77.0.1";
const FAR: &str = "10.77.0.2";

/// A shell that begins in a network namespace of its own. It sees its own interfaces in /sys, as UCX does.
const ALONE: &str = "mount --make-private /sys && mount -t sysfs sysfs /sys && ip link set lo up";

/// Runs a command in a network namespace of its own, after what the shell does first.
fn in_a_network(user: &[&str], first: &str, command: &Command) -> Command {
    let mut shell = Command::new("unshare");
    shell.args(user).args(["--net", "--mount", "--propagation", "unchanged"]);
    shell.args(["sh", "-c", &format!("{ALONE} && {first} && exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    // Users may not have `ip` among their commands.
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    shell
}

/// Gives a command a network namespace of its own, in which [`owner`] finds the other end of a cable. If that is not possible,
/// prints how it is.
pub fn with_a_cable(command: &Command) -> Option<Command> {
    let first = "ip link add near type veth peer name far";
    let first = format!("{first} && ip address add {NEAR}/24 dev near && ip link set near up");
    // As root, or as the root of a namespace of users.
    let users: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let mut refused = String::new();
    for user in users {
        match in_a_network(user, &first, &Command::new("true")).output() {
            Ok(output) if output.status.success() => {
                let mut command = in_a_network(user, &first, command);
                command.env("REMOTE_INTERFACE", "near");
                return Some(command);
            }
            Ok(output) => refused = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => refused = format!("unshare: {error}"),
        }
    }
    let why = format!(
        "a cable between two network namespaces is missing ({refused}): apt-get install iproute2; run as root, or allow namespaces \
         of users by sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1 and \
         kernel.apparmor_restrict_unprivileged_userns=0"
    );
    assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "{why}");
    println!("skipped: {why}");
    None
}

/// An owner at the other end of the cable.
pub fn owner(key: &Key, settings: &[(&str, &OsStr)]) -> Result<Owner, Box<dyn std::error::Error>> {
    let take = "nsenter --target $PPID --net ip link set far netns $$";
    let take = format!("{take} && ip address add {FAR}/24 dev far && ip link set far up && {}", up("far"));
    let mut command = in_a_network(&[], &take, &owner::command());
    command.env("REMOTE_ADDRESS", format!("{FAR}:0")).env("REMOTE_INTERFACE", "far").envs(settings.iter().copied());
    let owner = Owner::by(&mut command, key)?;
    testkit::compilers::run(Command::new("sh").args(["-c", &up("near")]));
    Ok(owner)
}

/// Waits until the system uses an interface, which takes up to a second after both ends are up. UCX finds no other.
fn up(interface: &str) -> String {
    format!("until grep --quiet up /sys/class/net/{interface}/operstate; do sleep 0.05; done")
}

#[test]
fn vanished_packets_are_noticed_in_time() {
    if let Some(mut part) = with_a_cable(&in_its_own_process(&test_name!("part_where_packets_vanish"))) {
        run_alone(&mut part);
    }
}

#[test]
#[ignore = "a part of the test above, which gives it a network"]
fn part_where_packets_vanish() -> Outcome {
    alone_with_late_ends(|setup| {
        let key = Key::generate()?;
        let owner = owner(&key, &[])?;
        let far = owner.id().to_string();
        let remote = Remote::new(&setup.context, &key, &options())?;
        let here = memory(setup)?;
        let run = |words: &str| {
            let mut command = Command::new("sh");
            testkit::compilers::run(command.args(["-c", words, &far]));
        };
        // What a side sends to an address that nobody has vanishes.
        let nobody = "lladdr 02:00:00:00:00:77 nud permanent";
        let inside = "nsenter --target $0 --net ip";
        let near = [format!("ip neigh replace {FAR} {nobody} dev near"), format!("ip neigh del {FAR} dev near")];
        let both = [
            format!("{} && {inside} neigh replace {NEAR} {nobody} dev far", near[0]),
            format!("{} && {inside} neigh del {NEAR} dev far", near[1]),
        ];
        let cable = ["down", "up"].map(|state| format!("{inside} link set far {state}"));
        for [end, mend] in [near, both, cable] {
            owner.ends(&remote, setup, Duration::from_secs(7), || run(&end))?;
            // The other side has noticed too.
            OPERATIONS.iter().try_for_each(|_| owner.says("nothing came from it for").map(drop))?;
            let begin = Instant::now();
            let refused = remote.connect(owner.address.as_str()).expect_err("no packet arrives");
            // The system and UCX see that the cable is out.
            let is_known = matches!(refused, Error::Unreachable { .. } | Error::System { .. } | Error::Ucx { .. });
            assert!(is_known, "{end}: {refused}");
            assert!(begin.elapsed() < options().deadline + Duration::from_secs(1), "{end}: {:?}", begin.elapsed());
            run(&mend);
            // The system takes up to a second to use a cable that is in again.
            eventually("another connection is made", || owner.serves(&remote, &here).is_ok());
        }
        Ok(())
    })
}
