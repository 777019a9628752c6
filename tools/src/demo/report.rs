//! The demo's result, as text and as JSON.

use super::measure::{Speed, Speeds};
use super::stream::{FileReport, share};
use crate::bytes::{duration, size, thousands};
use serde::Serialize;
use std::fmt::Write;

/// The whole result, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    pub(super) served: Served,
    pub(super) file: FileReport,
    #[serde(flatten)]
    pub(super) speeds: Speeds,
}

/// Describes what served the demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Served {
    pub(super) software: bool,
    pub(super) driver: String,
    pub(super) cuda: Option<String>,
    pub(super) device: i32,
    pub(super) device_name: String,
    pub(super) device_uuid: String,
    pub(super) vkgdr: String,
    pub(super) vkgdr_version: Option<String>,
    pub(super) coherent: bool,
    pub(super) atom: usize,
    pub(super) mapping_bytes: usize,
}

/// The driver and the path that served the demo.
pub(super) fn served(served: &Served) -> String {
    let path = match (&*served.vkgdr, served.software) {
        ("softgpu", _) => "softgpu's own memory".to_owned(),
        (vkgdr, true) => format!("{vkgdr} over CPU Vulkan"),
        (vkgdr, false) => format!("{vkgdr} over Vulkan"),
    };
    let by = match served.software {
        true => format!("{} (software), no GPU was used", served.driver),
        false => format!("{} on {}", served.driver, served.device_name),
    };
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "of an unknown release".to_owned());
    let coherence = match served.coherent {
        true => "coherent".to_owned(),
        false => format!("non-coherent, atoms of {} bytes", served.atom),
    };
    format!(
        "served by: {by}\n  driver   {}, CUDA {}\n  device   {}: {}, {}\n  memory   {path} (vkgdr {}), {}, {coherence}\n",
        served.driver,
        version(&served.cuda),
        served.device,
        served.device_name,
        served.device_uuid,
        version(&served.vkgdr_version),
        size(served.mapping_bytes as u64),
    )
}

/// The file that was streamed.
pub(super) fn file(file: &FileReport) -> String {
    let chunks = match file.chunks {
        1 => "1 piece".to_owned(),
        chunks => format!("{} pieces of at most {}", thousands(chunks), size(file.chunk_bytes as u64)),
    };
    format!(
        "file: {}, {} bytes in {chunks}, {}\n  CPU stores -> device -> driver's copy   {}\n  \
         driver's copy -> device -> CPU loads    {}\n",
        file.path.display(),
        thousands(file.bytes),
        duration(file.seconds),
        share(file.stored_by_cpu, file.bytes),
        share(file.loaded_by_cpu, file.bytes),
    )
}

/// The measured speeds.
pub(super) fn speeds(speeds: &Speeds, software: bool) -> String {
    let latency = &speeds.store_4_bytes;
    let mut text = format!(
        "a 4-byte store with its flush: {} by the CPU, {} by cuMemcpyHtoD: {}\n\n",
        duration(latency.cpu_seconds),
        duration(latency.driver_seconds),
        compare(latency.cpu_seconds, latency.driver_seconds),
    );
    let heading = format!("{:>8}   {:^36}   {:^36}", "", "CPU to device", "device to CPU");
    let _ = writeln!(text, "{}", heading.trim_end());
    let _ = writeln!(
        text,
        "{:>8}   {:>13} {:>13} {:>8}   {:>13} {:>13} {:>8}",
        "bytes", "CPU stores", "cuMemcpyHtoD", "ratio", "CPU loads", "cuMemcpyDtoH", "ratio"
    );
    for speed in &speeds.speeds {
        let _ = writeln!(
            text,
            "{:>8}   {:>13} {:>13} {:>8}   {:>13} {:>13} {:>8}",
            size(speed.bytes as u64),
            figure(speed, speed.cpu_store_seconds),
            figure(speed, speed.driver_write_seconds),
            ratio(speed.cpu_store_seconds, speed.driver_write_seconds),
            figure(speed, speed.cpu_load_seconds),
            figure(speed, speed.driver_read_seconds),
            ratio(speed.cpu_load_seconds, speed.driver_read_seconds),
        );
    }
    text.push_str("Medians; the driver's copies are from and to pageable memory. Ratio above 1: the CPU is faster.\n");
    if software {
        text.push_str("These are speeds of host memory, not of a GPU.\n");
    }
    text
}

/// Shows small sizes as times, and large sizes as bandwidth.
fn figure(speed: &Speed, seconds: f64) -> String {
    match speed.bytes {
        ..65536 => duration(seconds),
        bytes => format!("{:.2} GB/s", bytes as f64 / seconds / 1e9),
    }
}

fn ratio(cpu: f64, driver: f64) -> String {
    match driver / cpu {
        ratio if ratio >= 100.0 => format!("{ratio:.0}"),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

fn compare(cpu: f64, driver: f64) -> String {
    match driver / cpu {
        times if times >= 1.0 => format!("the CPU is {times:.1} times as fast"),
        times => format!("the driver is {:.1} times as fast", 1.0 / times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::measure::Latency;

    fn served_by(software: bool, vkgdr: &str, coherent: bool) -> String {
        served(&Served {
            software,
            driver: if software { "softgpu" } else { "libcuda.so.1" }.to_owned(),
            cuda: Some("13.0".to_owned()),
            device: 0,
            device_name: "NVIDIA H200".to_owned(),
            device_uuid: "GPU-x".to_owned(),
            vkgdr: vkgdr.to_owned(),
            vkgdr_version: Some("0.2".to_owned()),
            coherent,
            atom: if coherent { 1 } else { 64 },
            mapping_bytes: 16 << 20,
        })
    }

    #[test]
    fn the_report_says_plainly_who_served() {
        let text = served_by(true, "softgpu", true);
        assert!(text.starts_with("served by: softgpu (software), no GPU was used\n"), "{text}");
        let text = served_by(true, "vkgdr", false);
        assert!(text.contains("vkgdr over CPU Vulkan (vkgdr 0.2), 16 MiB, non-coherent, atoms of 64 bytes"), "{text}");
        let text = served_by(false, "vkgdr", true);
        assert!(text.starts_with("served by: libcuda.so.1 on NVIDIA H200\n"), "{text}");
        assert!(text.contains("driver   libcuda.so.1, CUDA 13.0\n") && text.contains("16 MiB, coherent\n"), "{text}");
    }

    #[test]
    fn speeds_are_times_for_small_sizes_and_rates_for_large_ones() {
        let one = |bytes| Speed {
            bytes,
            cpu_store_seconds: 1e-6,
            driver_write_seconds: 5e-6,
            cpu_load_seconds: 2e-6,
            driver_read_seconds: 1e-6,
        };
        let store_4_bytes = Latency { cpu_seconds: 0.1e-6, driver_seconds: 5.4e-6 };
        let text = speeds(&Speeds { store_4_bytes, speeds: vec![one(4), one(1 << 20)] }, false);
        assert!(
            text.contains("0.100 us by the CPU, 5.400 us by cuMemcpyHtoD: the CPU is 54.0 times as fast"),
            "{text}"
        );
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("5.00")).collect();
        assert!(rows[0].contains("1.000 us") && rows[0].ends_with("0.50"), "{text}");
        assert!(rows[1].contains("1048.58 GB/s"), "{text}");
        let widths: Vec<usize> = text.lines().skip(3).take(3).map(str::len).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "the columns are aligned: {text}");
    }
}
