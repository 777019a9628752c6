//! Error names, and addresses of functions.

use super::lab::codes::*;
use super::lab::{Lab, Run};
use cuda_mem::cuda_sys::*;
use std::ffi::{CStr, c_char};
use std::ptr;

cases! {
    Shared error_names,
    Shared error_strings,
    Shared error_texts,
    Shared addresses,
    Alone private_tables,
    Shared addresses_by_release,
    Shared addresses_without_results,
}

fn private_tables(l: &mut Lab) -> Run {
    let (mut table, id) = (ptr::dangling(), CUuuid { bytes: [7; 16] });
    ask!(l, "unknown table", cuGetExportTable(&mut table, &id));
    l.say("unknown table: result is null", table.is_null());
    ask!(l, "without a result", cuGetExportTable(ptr::null_mut(), &id));
    ask!(l, "without an id", cuGetExportTable(&mut table, ptr::null()));
    Ok(())
}

fn words(text: *const c_char) -> String {
    if text.is_null() {
        return "null".to_owned();
    }
    // SAFETY: the driver's texts are C strings that live as long as the driver.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn error_names(l: &mut Lab) -> Run {
    let mut text = ptr::null();
    for code in [0, 1, 2, 3, 4, 46, 201, 208, 212, 224, 226, 400, 709, 717, 801, 911, 916] {
        ask!(l, format!("code {code}") => OK, cuGetErrorName(CUresult(code), &mut text));
        l.say(format!("name of {code}"), words(text));
    }
    for code in [917, 998, 1000, 31337, u32::MAX] {
        text = c"before".as_ptr();
        ask!(l, format!("unknown code {code}") => VALUE, cuGetErrorName(CUresult(code), &mut text));
        l.say(format!("name of unknown {code}"), words(text));
    }
    ask!(l, "without a result" => VALUE, cuGetErrorName(VALUE, ptr::null_mut()));
    Ok(())
}

fn error_strings(l: &mut Lab) -> Run {
    let mut text = ptr::null();
    ask!(l, "known code" => OK, cuGetErrorString(VALUE, &mut text));
    l.check("a sentence", words(text).len() > 4, true);
    text = c"before".as_ptr();
    ask!(l, "unknown code" => VALUE, cuGetErrorString(CUresult(31337), &mut text));
    l.say("sentence of an unknown code", words(text));
    ask!(l, "without a result" => VALUE, cuGetErrorString(VALUE, ptr::null_mut()));
    Ok(())
}

/// What programs print, so that they match on it.
fn error_texts(l: &mut Lab) -> Run {
    let mut text = ptr::null();
    for code in (0..1000).map(CUresult).filter(|code| code.name().is_some()) {
        if call!(l, cuGetErrorString(code, &mut text)).is_ok_and(|answer| answer == OK) {
            l.say(format!("text of {}", code.0), words(text));
        }
    }
    Ok(())
}

fn asked(l: &mut Lab, label: &str, name: &CStr, release: i32, flags: u64) -> usize {
    let (mut found, mut status) = (ptr::without_provenance_mut(8), CUdriverProcAddressQueryResult(7));
    ask!(l, label, cuGetProcAddress_v2(name.as_ptr(), &mut found, release, flags, &mut status));
    l.say(format!("{label}: status"), status.0);
    let what = match found.addr() {
        0 => "null",
        8 => "untouched",
        _ => "a function",
    };
    l.say(format!("{label}: result"), what);
    found.addr()
}

fn addresses(l: &mut Lab) -> Run {
    asked(l, "unknown name", c"cuNoSuchFunction", 12000, 0);
    asked(l, "empty name", c"", 12000, 0);
    asked(l, "name with its suffix", c"cuMemAlloc_v2", 12000, 0);
    asked(l, "name before it came", c"cuMemPoolCreate", 11010, 0);
    asked(l, "name as it came", c"cuMemPoolCreate", 11020, 0);
    asked(l, "release 0", c"cuMemAlloc", 0, 0);
    asked(l, "negative release", c"cuMemAlloc", -1, 0);
    asked(l, "a release of the far future", c"cuMemAlloc", 99000, 0);
    asked(l, "unknown flags", c"cuMemAlloc", 12000, 0x100);
    asked(l, "both stream flags", c"cuMemcpyHtoD", 12000, 3);
    let legacy = asked(l, "legacy stream flag", c"cuMemcpyHtoD", 12000, 1);
    let usual = asked(l, "no flag", c"cuMemcpyHtoD", 12000, 0);
    let thread = asked(l, "per-thread flag", c"cuMemcpyHtoD", 12000, 2);
    l.say("the legacy form is the usual one", legacy == usual);
    l.say("the per-thread form is another", thread != usual);
    let usual = asked(l, "no flag, cuMemAlloc", c"cuMemAlloc", 12000, 0);
    let thread = asked(l, "per-thread flag, cuMemAlloc", c"cuMemAlloc", 12000, 2);
    l.say("cuMemAlloc has one form", thread == usual);
    let table = l.driver.functions().address(c"cuMemAlloc_v2").addr();
    l.say("the exported symbol is the same function", table == usual);
    Ok(())
}

fn addresses_by_release(l: &mut Lab) -> Run {
    let old = asked(l, "cuMemAlloc of 2.0", c"cuMemAlloc", 2000, 0);
    let new = asked(l, "cuMemAlloc of 3.2", c"cuMemAlloc", 3020, 0);
    l.say("cuMemAlloc changed with 3.2", old != new);
    let old = asked(l, "cuMemcpyBatchAsync of 12.8", c"cuMemcpyBatchAsync", 12080, 0);
    let new = asked(l, "cuMemcpyBatchAsync of 13.0", c"cuMemcpyBatchAsync", 13000, 0);
    l.say("cuMemcpyBatchAsync changed with 13.0", old != new);
    let old = asked(l, "cuMemAdvise of 8.0", c"cuMemAdvise", 8000, 0);
    let middle = asked(l, "cuMemAdvise of 12.2", c"cuMemAdvise", 12020, 0);
    let new = asked(l, "cuMemAdvise of 13.0", c"cuMemAdvise", 13000, 0);
    l.say("cuMemAdvise of 12.2 is the old one", middle == old);
    l.say("cuMemAdvise of 13.0 is the new one", new != old);
    asked(l, "cuMemcpyBatchAsync of 12.7", c"cuMemcpyBatchAsync", 12070, 0);
    Ok(())
}

fn addresses_without_results(l: &mut Lab) -> Run {
    let (mut found, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult(7));
    ask!(
        l,
        "no place for the function",
        cuGetProcAddress_v2(c"cuInit".as_ptr(), ptr::null_mut(), 12000, 0, &mut status)
    );
    ask!(l, "no name", cuGetProcAddress_v2(ptr::null(), &mut found, 12000, 0, &mut status));
    ask!(l, "no place for the status", cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut found, 12000, 0, ptr::null_mut()));
    l.say("found without a status", !found.is_null());
    Ok(())
}
