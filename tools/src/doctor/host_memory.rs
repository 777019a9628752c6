//! The host's memory, as page-locking needs it.

use super::finding::{Finding, Recorder};
use std::fs::read_to_string;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

pub(super) fn probe(out: &mut Recorder<'_>) {
    out.section("Host memory");
    out.add(huge_pages(read_to_string(HUGE_PAGES).ok().as_deref()));
    out.add(lock_limit(&read_to_string("/proc/self/limits").unwrap_or_default()));
}

/// Whether large page-locked memory gets huge pages. `enabled` is the system's file, in which brackets mark the setting.
fn huge_pages(enabled: Option<&str>) -> Finding {
    let setting = enabled.and_then(|text| text.split_once('[')?.1.split_once(']')).map(|(setting, _)| setting);
    match setting {
        Some(setting @ ("always" | "madvise")) => {
            Finding::ok("host.huge_pages", "huge pages", format!("{setting}: page-locking takes 0.07 s a GiB"))
                .value(setting)
        }
        Some(setting) => {
            Finding::note("host.huge_pages", "huge pages", format!("{setting}: page-locking takes twice as long"))
                .value(setting)
                .remedy(format!("as root: echo madvise > {HUGE_PAGES}"))
        }
        None => {
            let text = "the system has none, or does not show its setting: page-locking takes twice as long";
            Finding::note("host.huge_pages", "huge pages", text).value(serde_json::Value::Null)
        }
    }
}

/// The limit of locked memory. NVIDIA's driver does not count towards it on most systems, so it is only noted.
fn lock_limit(limits: &str) -> Finding {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    let text = match soft {
        Some("unlimited") => "unlimited".to_owned(),
        Some(bytes) => {
            format!("{bytes} bytes: should the driver refuse to lock memory, raise it (`ulimit -l unlimited`)")
        }
        None => "unknown".to_owned(),
    };
    Finding::note("host.lock_limit", "locked memory", text).value(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_reported_with_the_remedy() {
        assert_eq!(huge_pages(Some("always [madvise] never\n")).remedy, None);
        let never = huge_pages(Some("always madvise [never]\n"));
        assert_eq!(never.value, "never");
        assert!(never.remedy.unwrap().contains("echo madvise"));
        assert!(huge_pages(None).value.is_null() && huge_pages(Some("nonsense")).value.is_null());
    }

    #[test]
    fn the_limit_of_locked_memory_is_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608              8388608              bytes\n";
        assert_eq!(lock_limit(limits).value, "8388608");
        assert_eq!(lock_limit("Max locked memory  unlimited  unlimited  bytes").text, "unlimited");
        assert!(lock_limit("").value.is_null());
    }
}
