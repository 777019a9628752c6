//! The search for a library: first an explicit path, then the environment, then the names that the system's loader
//! knows, then files where the library may be besides, then the providers linked into the program.
//!
//! cuda-sys, vkgdr-sys and ucx-sys share this module. An open library is never closed: tables hold its functions, and other
//! libraries of the process may also keep references to it.

use core::error::Error;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::mem::ManuallyDrop;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the address of a function by name, or null. A linked-in provider offers this in place of `dlsym`.
pub type Resolver = fn(&CStr) -> *const c_void;

/// A provider that is linked into the program.
#[derive(Clone, Copy, Debug)]
pub struct Linked {
    /// The name that selects the provider in the environment.
    pub name: &'static str,
    /// Returns the addresses of the provider's functions.
    pub symbol: Resolver,
    /// Whether the search takes this provider, although nobody named it, if no library is found.
    pub last_resort: bool,
}

/// Where to look for a library.
///
/// The order is: [`path`](Self::path); the environment variable [`variable`](Self::variable) (a path, or the name of a
/// linked-in provider; ignored in a program that runs with raised privileges); the [`names`](Self::names), through the
/// system's loader; the [`files`](Self::files); a linked-in provider that is a last resort. If a path or the environment variable is set, it is the
/// only candidate: the search uses what the user names, or reports why it cannot.
#[derive(Clone, Debug)]
pub struct Search {
    /// The name of the library in error texts: `the CUDA driver`.
    pub what: &'static str,
    /// What the user should do if no library is found.
    pub remedy: &'static str,
    /// The environment variable that names a library.
    pub variable: &'static str,
    /// The names that the system's loader is asked for.
    pub names: &'static [&'static str],
    /// Lists the files where the library may be besides.
    pub files: fn() -> Vec<PathBuf>,
    /// An explicit path, or the name of a linked-in provider.
    pub path: Option<PathBuf>,
    /// The providers that are linked into the program.
    pub linked: Vec<Linked>,
}

/// How a program runs on the software GPU, for the advice of errors. `libcudamem` states it for C.
macro_rules! without_a_gpu {
    () => {
        "CUDA_MEM_LIBCUDA=softgpu in a Rust program with cuda-mem's feature `softgpu`, else the path of libsoftgpu.so \
         (`cuda-mem doctor` prints it)"
    };
}
pub(crate) use without_a_gpu;

/// How a program runs without a GPU, as the advice of errors has it.
pub const WITHOUT_A_GPU: &str = without_a_gpu!();

/// One place that was searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The path or name.
    pub candidate: String,
    /// Why it failed, in the loader's own words.
    pub reason: String,
}

/// No library was found. The text lists every place with its reason, and what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The library that was searched for.
    pub what: &'static str,
    /// Every place that was searched, in order.
    pub attempts: Vec<Attempt>,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load {}; tried:", self.what)?;
        for attempt in &self.attempts {
            write!(f, "\n  - {}: {}", attempt.candidate, attempt.reason)?;
        }
        write!(f, "\n{}", self.remedy)
    }
}

impl Error for LoadError {}

/// A library that was found.
#[derive(Debug)]
pub struct Opened {
    /// Its path or name, or the linked-in provider's name.
    pub name: String,
    symbols: Symbols,
}

#[derive(Debug)]
enum Symbols {
    /// Never closed.
    Library(ManuallyDrop<Library>),
    Linked(Resolver),
}

impl Opened {
    /// The address of a symbol, or null.
    pub fn symbol(&self, name: &CStr) -> *const c_void {
        match &self.symbols {
            Symbols::Linked(resolver) => resolver(name),
            // SAFETY: this code only takes the symbol's address. `Functions::fill` states its type.
            Symbols::Library(library) => unsafe {
                library.get::<*const c_void>(name).map_or(core::ptr::null(), |symbol| symbol.into_raw())
            },
        }
    }
}

impl Search {
    /// Opens the first candidate that loads.
    ///
    /// # Errors
    ///
    /// No candidate loads.
    ///
    /// # Safety
    ///
    /// Opening a library runs its initialisation code. The caller trusts the candidates, and what they export under the
    /// interface's names has the interface's signatures.
    pub unsafe fn open(&self) -> Result<Opened, LoadError> {
        let chosen = match &self.path {
            Some(path) => Some((path.clone().into_os_string(), "the given path")),
            None => environment(self.variable).map(|value| (value, self.variable)),
        };
        if let Some((value, source)) = chosen {
            return match self.linked.iter().find(|linked| value == linked.name) {
                Some(linked) => Ok(linked.opened()),
                // SAFETY: the caller's contract.
                None => unsafe { open(Path::new(&value)) }.map_err(|attempt| self.failed_choice(attempt, source)),
            };
        }
        let mut attempts = Vec::new();
        for candidate in self.names.iter().map(PathBuf::from).chain((self.files)()) {
            // SAFETY: the caller's contract.
            match unsafe { open(&candidate) } {
                Ok(opened) => return Ok(opened),
                Err(attempt) => attempts.push(attempt),
            }
        }
        match self.linked.iter().find(|linked| linked.last_resort) {
            Some(linked) => Ok(linked.opened()),
            None => Err(LoadError { what: self.what, attempts, remedy: self.remedy.to_owned() }),
        }
    }

    /// The error for a library that the user chose and that does not open.
    fn failed_choice(&self, attempt: Attempt, source: &str) -> LoadError {
        let linked: Vec<&str> = self.linked.iter().map(|linked| linked.name).collect();
        let names = match linked.is_empty() {
            false => format!(", or the name of one that is linked into this program: {}", linked.join(", ")),
            true => {
                let what = self.what.trim_start_matches("the ");
                format!("; no {what} is linked into this program. {}", self.remedy)
            }
        };
        let remedy =
            format!("{source} names it, so nothing else was tried. It takes the path of a shared library{names}");
        LoadError { what: self.what, attempts: vec![attempt], remedy }
    }
}

impl Linked {
    fn opened(&self) -> Opened {
        Opened { name: self.name.to_owned(), symbols: Symbols::Linked(self.symbol) }
    }
}

/// Opens one library, which is never closed.
///
/// # Safety
///
/// As [`Search::open`].
unsafe fn open(path: &Path) -> Result<Opened, Attempt> {
    let name = path.display().to_string();
    // SAFETY: the caller trusts the library's initialisation code.
    match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
        // The library stays open, as the module's documentation explains. The system's loader keeps its description.
        Ok(library) => Ok(Opened { name, symbols: Symbols::Library(ManuallyDrop::new(library)) }),
        Err(error) => Err(Attempt { reason: reason(&error, &name), candidate: name }),
    }
}

/// Why a library did not open, in the loader's own words, which libloading keeps in the error's source. The library's
/// name at the beginning is removed.
fn reason(error: &dyn Error, name: &str) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text).to_owned()
}

/// Returns an environment variable that is set and not empty. Returns `None` if the program runs with raised privileges
/// (for example a set-user-id program), because a user with fewer rights may have set its environment. All crates of
/// the project read their variables with this function, or with [`environment_or_empty`].
pub fn environment(variable: &str) -> Option<OsString> {
    environment_or_empty(variable).filter(|value| !value.is_empty())
}

/// Returns an environment variable that is set, also if it is empty. `None` under raised privileges, as
/// [`environment`].
pub fn environment_or_empty(variable: &str) -> Option<OsString> {
    if has_raised_privileges() { None } else { std::env::var_os(variable) }
}

/// Returns the names of the environment's variables that begin with `prefix`. There are none under raised privileges, as
/// with [`environment`].
pub fn environment_names(prefix: &str) -> Vec<String> {
    if has_raised_privileges() {
        return Vec::new();
    }
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn has_raised_privileges() -> bool {
    #[cfg(not(miri))]
    // SAFETY: `getauxval` only reads the process's auxiliary vector.
    let raised = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    #[cfg(miri)]
    let raised = false;
    raised
}
