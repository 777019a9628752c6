//! Compares softgpu's cuGetProcAddress with cudaTypedefs.h: for each function and release, softgpu returns the form of
//! that release, or nothing. Forms take different arguments, so another form would read them wrongly. For each function
//! that has per-thread forms, softgpu serves these too.

use crate::releases::{Headers, releases};
use crate::since::{form, ordinal};
use crate::toolchain::say;
use cuda_mem::cuda_sys::{CUdriverProcAddressQueryResult, CUresult, Functions};
use cuda_mem::softgpu::{self, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_void};
use std::ptr;

/// The releases that introduced the forms of each function, by its name without suffix.
type Forms = BTreeMap<String, BTreeSet<u32>>;

/// The address that a driver returns for a name without suffix and a release.
type Ask<'a> = &'a dyn Fn(&str, u32) -> *const c_void;

fn forms(headers: &[Headers]) -> Forms {
    let mut forms = Forms::new();
    for (name, release) in
        headers.iter().flat_map(|headers| headers.pointers.types.keys()).filter_map(|name| form(name))
    {
        forms.entry(name.to_owned()).or_default().insert(release.number());
    }
    forms
}

/// The address of the form that `release` introduced; null if softgpu does not serve it. Of forms that cuda-sys does
/// not declare, softgpu serves only first ones.
fn of_release(base: &str, release: u32) -> *const c_void {
    let symbol = Functions::SYMBOLS.iter().find(|symbol| {
        symbol.since.number() == release && symbol.name.to_str().is_ok_and(|name| ordinal(name).0 == base)
    });
    if let Some(symbol) = symbol {
        return softgpu::cuda_symbol(symbol.name);
    }
    let first = CString::new(base).expect("names contain no zero");
    let is_declared = Functions::SYMBOLS.iter().any(|symbol| symbol.name == first.as_c_str());
    if is_declared || release >= 11000 { ptr::null() } else { softgpu::cuda_symbol(&first) }
}

/// The answers that are another form than that of the release, each as a line.
fn wrong(forms: &Forms, ask: Ask<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (base, releases) in forms {
        for release in releases.iter().filter(|release| **release < 14000) {
            let later = releases.range(release + 1..).next().map_or(13990, |next| next - 10);
            for asked in [*release, later] {
                let answer = ask(base, asked);
                if !answer.is_null() && answer != of_release(base, *release) {
                    wrong.push(format!("{base} of {asked}: not the form of {release}"));
                }
            }
        }
    }
    wrong
}

fn softgpus(base: &str, release: u32) -> *const c_void {
    let name = CString::new(base).expect("names contain no zero");
    let get = softgpu::FUNCTIONS.cuGetProcAddress_v2.expect("softgpu serves it");
    let (mut address, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult(9));
    let release = i32::try_from(release).expect("a release is a small number");
    let (version, mut served) = (softgpu::FUNCTIONS.cuDriverGetVersion.expect("softgpu serves it"), 0);
    // SAFETY: the name is a C string, and the results are writable.
    let answer = unsafe {
        assert_eq!(version(&mut served), CUresult::CUDA_SUCCESS);
        get(name.as_ptr(), &mut address, release, 0, &mut status)
    };
    if release > served {
        assert_eq!(answer, CUresult::CUDA_ERROR_INVALID_VALUE, "{base} of {release}");
        return ptr::null();
    }
    assert_eq!(answer, CUresult::CUDA_SUCCESS, "{base} of {release}");
    assert_eq!(address.is_null(), status != CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
    address
}

/// The suffix of each function's per-thread form, by the function's name without suffix.
fn suffixes(headers: &[Headers]) -> BTreeMap<String, &'static str> {
    let mut suffixes = BTreeMap::new();
    for name in headers.iter().flat_map(|headers| headers.pointers.types.keys()) {
        for suffix in ["_ptsz", "_ptds"] {
            if let Some((base, _)) = name.strip_suffix(suffix).and_then(form) {
                suffixes.insert(base.to_owned(), suffix);
            }
        }
    }
    suffixes
}

/// Checks that each function of softgpu has the per-thread form that cudaTypedefs.h names, and no other. Returns their
/// number.
fn per_thread_forms(headers: &[Headers]) -> usize {
    let (suffixes, mut count) = (suffixes(headers), 0);
    for symbol in Functions::SYMBOLS {
        let name = symbol.name.to_str().expect("names are ASCII");
        let suffix = suffixes.get(ordinal(name).0);
        for tried in ["_ptsz", "_ptds"] {
            let own = CString::new(format!("{name}{tried}")).expect("names contain no zero");
            let is_served = !softgpu::cuda_symbol(&own).is_null();
            assert_eq!(is_served, suffix == Some(&tried), "{own:?}");
            count += usize::from(is_served);
        }
    }
    count
}

#[test]
fn softgpu_returns_the_form_of_the_release_or_none() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let forms = forms(releases);
    for version in [11040, 12000, 13000, 13020] {
        softgpu::configure(Settings { version, ..Default::default() }).expect("a release that softgpu serves");
        let wrong = wrong(&forms, &softgpus);
        assert!(wrong.is_empty(), "as CUDA {version}:\n{}", wrong.join("\n"));
    }
    let found = |base: &str| forms[base].iter().filter(|release| !softgpus(base, **release).is_null()).count();
    let counts: Vec<usize> = forms.keys().map(|base| found(base)).filter(|count| *count > 0).collect();
    let (forms_found, own) = (counts.iter().sum::<usize>(), per_thread_forms(releases));
    say(&format!(
        "forms that softgpu returns: {forms_found} of {} functions, and {own} per-thread forms\n",
        counts.len()
    ));
    assert!(counts.len() > 170, "softgpu serves only {} functions by name", counts.len());

    // A driver that returns its newest form for every later release fails.
    let newest = |base: &str, release: u32| {
        let older = forms[base].iter().rev().filter(|since| **since <= release && **since != 12050);
        older.map(|since| of_release(base, *since)).find(|address| !address.is_null()).unwrap_or(ptr::null())
    };
    let wrong = wrong(&forms, &newest);
    assert!(wrong.iter().any(|line| line == "cuStreamGetCtx of 12050: not the form of 12050"), "{wrong:?}");
}
