//! UCX, which carries messages between machines.

use super::driver::mapped_file;
use super::finding::{Finding, Recorder};
use cuda_mem::cuda_sys::Provider;
use cuda_mem::cuda_sys::load::LoadError;
use serde_json::{Value, json};
use ucx_sys::Ucp;

/// Reports which UCX is found, or what to install. Only the library is loaded: no context is made.
pub(super) fn probe(out: &mut Recorder<'_>) {
    out.section("Network");
    out.step("loading UCX");
    out.add(finding(Ucp::load().map(Ucp::provider)));
}

fn finding(loaded: Result<&Provider, LoadError>) -> Finding {
    match loaded {
        Ok(provider) => {
            let name = &*provider.library;
            let file = std::fs::read_to_string("/proc/self/maps").ok().and_then(|maps| mapped_file(&maps, "libucp.so"));
            let place = file.as_deref().filter(|file| *file != name).map_or(String::new(), |file| format!(" ({file})"));
            let version = provider.version.map(|version| version.to_string());
            let text = format!("{name}{place}, UCX {}", version.as_deref().unwrap_or("of an unknown release"));
            Finding::ok("network.ucx", "UCX", text).value(json!({ "library": name, "file": file, "version": version }))
        }
        Err(error) => {
            // Of one place that the user names, or whose library is too old, the reason is of use.
            let text = match error.attempts.as_slice() {
                [one] => format!("{}: {}", one.candidate, one.reason),
                _ => "not found".to_owned(),
            };
            Finding::note("network.ucx", "UCX", text).value(Value::Null).remedy(error.remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::cuda_sys::Release;
    use cuda_mem::cuda_sys::load::Attempt;

    #[test]
    fn ucx_is_reported_with_its_place_and_release() {
        let version = Some(Release::new(1, 22));
        let provider = Provider { interface: "UCX", library: "/opt/libucp.so.0".into(), version, is_softgpu: false };
        let found = finding(Ok(&provider));
        assert_eq!(found.text, "/opt/libucp.so.0, UCX 1.22");
        assert_eq!((&found.value["version"], found.remedy), (&"1.22".into(), None));
    }

    #[test]
    fn a_ucx_that_does_not_serve_is_reported_with_the_reason() {
        let attempt = |reason: &str| Attempt { candidate: "libucp.so.0".to_owned(), reason: reason.to_owned() };
        let failed = |attempts| finding(Err(LoadError { what: "UCX", attempts, remedy: "Install it".to_owned() }));
        let old = failed(vec![attempt("it is UCX 1.13")]);
        assert_eq!((&*old.text, old.remedy.as_deref()), ("libucp.so.0: it is UCX 1.13", Some("Install it")));
        assert_eq!(failed(vec![attempt("not there"), attempt("nor there")]).text, "not found");
    }
}
