//! UCX's library, of the wheel that `scripts/ucx-wheels` downloads: it has every function of the table, and makes a context
//! and a worker without touching the process's memory functions.

use crate::toolchain::{root, run, say, skip};
use core::ptr;
use cuda_sys::Release;
use cuda_sys::load::Search;
use std::path::PathBuf;
use std::process::Command;
use ucx_sys::{
    Functions, Ucp, ucp_feature, ucp_lib_attr, ucp_lib_attr_field, ucp_params, ucp_params_field, ucp_worker_attr,
    ucp_worker_attr_field, ucp_worker_params, ucp_worker_params_field, ucs_status_t, ucs_thread_mode_t,
};

fn library() -> PathBuf {
    root().join(".cache/ucx/1.22.0/lib/libucp.so.0")
}

#[test]
fn the_wheels_library_makes_a_context_and_a_worker() {
    if !library().exists() {
        return skip("UCX's library is missing: run scripts/ucx-wheels");
    }
    let program = std::env::current_exe().expect("this program");
    let mut part = Command::new(program);
    part.args(["--exact", "ucx_library::a_context_and_a_worker", "--ignored", "--nocapture"]);
    // UCX reads it when it is loaded. Without it, UCX rewrites the first bytes of mmap and its like.
    let said = run(part.env("UCX_MEM_EVENTS", "n")).unwrap_or_else(|error| panic!("{error}"));
    let line = said.lines().find(|line| line.starts_with("UCX ")).unwrap_or_else(|| panic!("{said}"));
    say(&format!("{line}\n"));
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn a_context_and_a_worker() {
    let before = start_of_mmap();
    let search = Search { path: Some(library()), ..Ucp::SEARCH };
    // SAFETY: the library is UCX's own.
    let ucp = unsafe { Ucp::open(&search) }.expect("it loads");
    assert_eq!(ucp.provider().version, Some(Release::new(1, 22)));
    let missing: Vec<_> =
        Functions::SYMBOLS.iter().filter(|symbol| ucp.functions().address(symbol.name).is_null()).collect();
    assert!(missing.is_empty(), "{missing:?}");

    // SAFETY: all pointers are to live values of the types that the functions state, and each structure says which of its
    // fields are set. The worker ends before its context.
    unsafe {
        let ok =
            |status: Result<ucs_status_t, cuda_sys::MissingSymbol>| assert_eq!(status.unwrap(), ucs_status_t::UCS_OK);
        ok(ucp.ucs_global_opts_set_value(c"MODULES".as_ptr(), c"^cuda".as_ptr()));

        let mut built = ucp_lib_attr {
            field_mask: all(&ucp, ucp_lib_attr_field::UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL),
            ..Default::default()
        };
        ok(ucp.ucp_lib_query(&mut built));
        assert_eq!(built.max_thread_level, ucs_thread_mode_t::UCS_THREAD_MODE_MULTI);

        let mut settings = ptr::null_mut();
        ok(ucp.ucp_config_read(ptr::null(), ptr::null(), &mut settings));
        ok(ucp.ucp_config_modify(settings, c"TLS".as_ptr(), c"tcp".as_ptr()));
        let params = ucp_params {
            field_mask: all(
                &ucp,
                ucp_params_field::UCP_PARAM_FIELD_FEATURES | ucp_params_field::UCP_PARAM_FIELD_NODE_LOCAL_ID,
            ),
            features: all(&ucp, ucp_feature::UCP_FEATURE_AM | ucp_feature::UCP_FEATURE_WAKEUP),
            ..Default::default()
        };
        let mut context = ptr::null_mut();
        let (major, minor) = (Ucp::OLDEST.major(), Ucp::OLDEST.minor());
        ok(ucp.ucp_init_version(major, minor, &params, settings, &mut context));
        ucp.ucp_config_release(settings).unwrap();

        let single = ucp_worker_params {
            field_mask: all(&ucp, ucp_worker_params_field::UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: ucs_thread_mode_t::UCS_THREAD_MODE_SINGLE,
            ..Default::default()
        };
        let mut worker = ptr::null_mut();
        ok(ucp.ucp_worker_create(context, &single, &mut worker));
        let mut about = ucp_worker_attr {
            field_mask: all(
                &ucp,
                ucp_worker_attr_field::UCP_WORKER_ATTR_FIELD_THREAD_MODE
                    | ucp_worker_attr_field::UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER,
            ),
            ..Default::default()
        };
        ok(ucp.ucp_worker_query(worker, &mut about));
        assert_eq!(about.thread_mode, ucs_thread_mode_t::UCS_THREAD_MODE_SINGLE);
        let mut descriptor = -1;
        ok(ucp.ucp_worker_get_efd(worker, &mut descriptor));
        while ucp.ucp_worker_progress(worker).unwrap() > 0 {}
        ucp.ucp_worker_destroy(worker).unwrap();
        ucp.ucp_cleanup(context).unwrap();
        assert!(descriptor >= 0 && about.max_am_header > 0);
        println!("UCX 1.22 made a context and a worker; a header of a message has up to {} bytes", about.max_am_header);
    }

    assert_eq!(start_of_mmap(), before, "UCX rewrote mmap");
}

/// A mask whose bits the library knows, as a field of a structure.
fn all<M: ucx_sys::Mask>(ucp: &Ucp, mask: M) -> u64 {
    u64::from(ucp.require(mask).expect("UCX 1.22 knows every bit").value())
}

fn start_of_mmap() -> [u8; 16] {
    // SAFETY: the function is longer than this.
    unsafe { (libc::mmap as *const [u8; 16]).read() }
}
