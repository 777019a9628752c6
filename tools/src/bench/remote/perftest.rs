//! UCX's own benchmark, ucx_perftest, where it is found.

use super::program::Rounds;
use super::side::Outcome;
use std::env;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program, and what it needs.
#[derive(Debug)]
pub(super) struct Perftest {
    program: PathBuf,
    /// Where UCX's libraries are.
    libraries: OsString,
    /// The devices that each side sees, its own first. `None`: memory of the host.
    devices: Option<[String; 2]>,
}

impl Perftest {
    /// Looks for it beside UCX's library, and on the path.
    pub(super) fn find(libucp: Option<&Path>, devices: Option<[i32; 2]>) -> Outcome<Self> {
        let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
        let devices = devices
            .map(|[asks, answers]| [seen(visible.as_deref(), asks, answers), seen(visible.as_deref(), answers, asks)]);
        let path = env::var_os("PATH").unwrap_or_default();
        let folder = libucp.and_then(Path::parent);
        let found = places(folder, env::split_paths(&path)).find(|place| place.is_file());
        let program =
            found.ok_or("ucx_perftest is not on the path: it comes with UCX, also with `pip install libucx-cu13`")?;
        // Its own build does not say where its libraries are.
        let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let libraries = env::join_paths(folder.map(Path::to_owned).into_iter().chain(env::split_paths(&others)))?;
        Ok(Self { program, libraries, devices })
    }

    pub(super) fn transport(&self) -> String {
        let memory = if self.devices.is_some() { "device memory" } else { "memory of the host" };
        format!("{} -t ucp_am_lat, of {memory}", self.program.display())
    }

    /// The time of a message with its answer: twice the median latency that it tells.
    pub(super) fn rounds(&mut self, Rounds { bytes, count, .. }: Rounds) -> Outcome<Vec<u64>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        // It polls without a pause, for which both sides need a processor that nobody else wants.
        let wait =
            if std::thread::available_parallelism().is_ok_and(|count| count.get() >= 4) { "poll" } else { "sleep" };
        let mut arguments = vec!["-t", "ucp_am_lat", "-E", wait, "-f", "-v", "-w", "2", "-p", &port];
        let (bytes, count) = (bytes.to_string(), count.to_string());
        arguments.extend(["-s", &bytes, "-n", &count]);
        let start = |side: usize, address: Option<&str>| -> Outcome<Child> {
            let mut command = Command::new(&self.program);
            command.args(address).args(&arguments).env("LD_LIBRARY_PATH", &self.libraries);
            if let Some(devices) = &self.devices {
                command.args(["-m", "cuda"]).env("CUDA_VISIBLE_DEVICES", &devices[side]);
            }
            Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn()?)
        };
        let _server = Server(start(1, None)?);
        let mut said = String::new();
        // The server says nothing when it waits.
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(100));
            let output = start(0, Some("127.0.0.1"))?.wait_with_output()?;
            if let Some(latency) = latency(&String::from_utf8_lossy(&output.stdout)) {
                return Ok(vec![(latency * 2000.0) as u64]);
            }
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            if !said.contains("refused") {
                break;
            }
        }
        Err(format!("ucx_perftest: {}", said.lines().last().unwrap_or("it told no latency").trim()).into())
    }
}

/// The side that answers. It ends with this value.
#[derive(Debug)]
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the program may be: beside UCX's libraries, where the packages for pip have it, and on the path.
fn places(libraries: Option<&Path>, path: impl Iterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    let beside = libraries.into_iter().flat_map(|folder| [folder.join("../bin"), folder.to_owned()]);
    beside.chain(path).map(|folder| folder.join("ucx_perftest"))
}

/// The devices that a side sees: its own, and the other's, which memory shared between the two needs.
fn seen(visible: Option<&str>, own: i32, other: i32) -> String {
    let name = |device: i32| match visible {
        Some(visible) => visible.split(',').nth(device as usize).unwrap_or_default().to_owned(),
        None => device.to_string(),
    };
    if own == other { name(own) } else { format!("{},{}", name(own), name(other)) }
}

/// The median latency in microseconds, from the last line of comma-separated values.
fn latency(output: &str) -> Option<f64> {
    output.lines().last()?.split(',').nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_the_median_of_the_values() {
        let output = "iterations,50.0_percentile_lat,avg_lat,overall_lat\n 200,23.484,30.1,23.455\n";
        assert_eq!(latency(output), Some(23.484));
        assert_eq!(latency("iterations,50.0_percentile_lat,avg_lat\n"), None);
        assert_eq!(latency(""), None);
    }

    #[test]
    fn each_side_sees_its_own_device_first() {
        assert_eq!([seen(None, 0, 1), seen(None, 1, 0), seen(None, 2, 2)], ["0,1", "1,0", "2"]);
        assert_eq!(seen(Some("5,GPU-1234"), 1, 0), "GPU-1234,5");
    }

    #[test]
    fn the_program_beside_the_libraries_comes_first() {
        let found: Vec<_> = places(Some(Path::new("/opt/libucx/lib")), ["/usr/bin".into()].into_iter()).collect();
        assert_eq!(found[0], Path::new("/opt/libucx/lib/../bin/ucx_perftest"));
        assert_eq!(found.last().unwrap(), Path::new("/usr/bin/ucx_perftest"));
    }
}
