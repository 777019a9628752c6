//! The settings of the simulated machine.

use crate::sync::lock;
use crate::table;
use cuda_sys::load::{environment, environment_names, environment_or_empty};
use std::borrow::Cow;
use std::sync::Mutex;

/// The simulated machine. Start from [`Settings::default`] and change fields.
///
/// Most settings are fixed when the driver starts (cuInit). Each `vkgdr_open` reads `coherent` and `atom`. Each look-up
/// of a function reads `version` and `without`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of devices: 1 to 64. `SOFTGPU_DEVICES`, by default 2.
    pub devices: usize,
    /// Which devices the program sees, and in which order: numbers, or `GPU-` with the beginning of a UUID, separated by
    /// commas. A wrong entry ends the list; without devices, cuInit fails. `CUDA_VISIBLE_DEVICES`, by default all.
    pub visible: Option<String>,
    /// Which devices can access each other's memory. `SOFTGPU_PEERS`: `mesh`, `pairs`, `none`, `one-way`, or `broken`; by
    /// default `mesh`.
    pub peers: Peers,
    /// The memory of each device in bytes. The host commits it as programs touch it. `SOFTGPU_MEMORY`, by default 80
    /// GiB.
    pub memory: u64,
    /// Whether mapped memory is coherent. If not, CPU and device have separate storage, and only flush and invalidate
    /// move atoms between the two. `SOFTGPU_COHERENT` (0 or 1), by default 1.
    pub coherent: bool,
    /// The unit of flush and invalidate in bytes: a power of two, 64 KiB at most. `SOFTGPU_ATOM`, by default 64.
    pub atom: usize,
    /// Whether devices have the identity of the machine's CPU Vulkan devices, so that programs can import Vulkan
    /// memory. `SOFTGPU_VULKAN` (0 or 1), by default 0.
    pub vulkan: bool,
    /// The CUDA release that softgpu serves; later functions are absent. `SOFTGPU_VERSION`, by default 13000: the
    /// release whose answers were recorded.
    pub version: u32,
    /// Functions that are absent. The shared library exports them all; there, a call answers
    /// CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER. `SOFTGPU_WITHOUT`, names separated by commas, by default none.
    pub without: Vec<String>,
    /// Whether the CPU faults when it touches memory that only devices may use. `SOFTGPU_STRICT` (0 or 1), by default
    /// 0: device addresses are then addresses of the process.
    pub strict: bool,
    /// How many bytes of freed memory stay inaccessible, so that every touch faults, before their addresses are used
    /// again. `SOFTGPU_QUARANTINE`, by default 0.
    pub quarantine: u64,
    /// Whether softgpu reports unordered work on two streams that touches the same bytes, as
    /// [`Misuse::NoOrder`](crate::Misuse::NoOrder). The order in which the work ran does not matter. `SOFTGPU_RACES` (0
    /// or 1), by default 0.
    pub races: bool,
    /// Whether frees and loads that wait for all work of a context, and queued copies to pageable memory, hold the
    /// context's lock meanwhile, so that calls of other threads wait behind them, as in the real driver. `SOFTGPU_LOCKS` (0 or 1), by default 1.
    pub locks: bool,
    /// How many streams of a context share one hardware channel. A context takes another channel when more of its
    /// streams are alive than ever before; cuStreamCreate then waits for the work of the context, with the context's
    /// lock if `locks` is set. On an H100 (driver 580.159) it is about every 43rd stream, and the call waits while a
    /// host function blocks a stream of the context. 0: no stream needs another channel. `SOFTGPU_CHANNELS`, by default
    /// 43.
    pub channels: usize,
    /// If set, work on streams is delayed, so that missing waits show. The number determines the delays.
    /// `SOFTGPU_SEED`, by default not set.
    pub seed: Option<u64>,
    /// Device attributes with other values, or with `None` if the driver does not know them: older devices and drivers.
    /// `SOFTGPU_ATTRIBUTES`, numbers and values separated by commas, such as `144=0,142=unknown`; by default none.
    pub attributes: Vec<(u32, Option<i32>)>,
    /// The path of a shared library that exports the code of kernels under their names. The guide shows one.
    /// `SOFTGPU_KERNELS`, by default none.
    pub kernels: Option<String>,
}

/// Which devices can access each other's memory, by their numbers in the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// Each device can access every other one.
    #[default]
    Mesh,
    /// Devices 0 and 1, 2 and 3, and so on can access each other.
    Pairs,
    /// No device can access another.
    None,
    /// A device can access those with higher numbers.
    OneWay,
    /// As `Mesh`, but copies that use the access write nothing, as with some drivers behind an IOMMU. Copies through the
    /// host work.
    Broken,
}

impl Peers {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "mesh" => Self::Mesh,
            "pairs" => Self::Pairs,
            "none" => Self::None,
            "one-way" => Self::OneWay,
            "broken" => Self::Broken,
            _ => return None,
        })
    }

    /// Whether a device can access another device's memory.
    ///
    /// ```
    /// use softgpu::Peers;
    /// assert!(Peers::Pairs.allow(2, 3) && !Peers::Pairs.allow(1, 2));
    /// assert!(Peers::OneWay.allow(0, 1) && !Peers::OneWay.allow(1, 0));
    /// ```
    pub fn allow(self, device: usize, other: usize) -> bool {
        device != other
            && match self {
                Self::Mesh | Self::Broken => true,
                Self::Pairs => device / 2 == other / 2,
                Self::None => false,
                Self::OneWay => device < other,
            }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 2,
            visible: None,
            peers: Peers::Mesh,
            memory: 80 << 30,
            coherent: true,
            atom: 64,
            vulkan: false,
            version: USUAL,
            without: Vec::new(),
            strict: false,
            quarantine: 0,
            races: false,
            locks: true,
            channels: 43,
            seed: None,
            attributes: Vec::new(),
            kernels: None,
        }
    }
}

/// A setting that softgpu cannot serve.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("softgpu: {name} is {value}, but must be {want}")]
pub struct SettingsError {
    /// The field, or the environment variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The values that softgpu accepts.
    pub want: Cow<'static, str>,
}

cuda_sys::debug_as_display!(SettingsError);

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const DEVICES: &str = "a number from 1 to 64";
const PEERS: &str = "mesh, pairs, none, one-way or broken";
const MEMORY: &str = "a number of bytes from 1 MiB to 64 TiB";
const ATOM: &str = "a power of two from 1 to 65536";
pub(crate) const SWITCH: &str = "0 or 1";
const VERSION: &str = "a release from 11000 to 13020, such as 11020 for 11.2";
const BYTES: &str = "a number of bytes";
const SEED: &str = "a number";
const STREAMS: &str = "a number of streams";
const WITHOUT: &str = "the full name of a driver or vkgdr function, such as cuMemAlloc_v2";
const ATTRIBUTES: &str = "attribute numbers with their values, such as 144=0,142=unknown";
/// The newest release that softgpu serves.
pub(crate) const NEWEST: u32 = 13020;
/// The release that softgpu serves by default.
pub(crate) const USUAL: u32 = 13000;

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    // An empty list hides all devices.
    let get = if name == VISIBLE { environment_or_empty } else { environment };
    get(name).map(|value| value.to_string_lossy().into_owned())
}

/// The variables of the environment that softgpu knows: its settings, and the path by which tests and bindings find its
/// library.
const NAMES: [&str; 20] = [
    "SOFTGPU_ATOM",
    "SOFTGPU_ATTRIBUTES",
    "SOFTGPU_CHANNELS",
    "SOFTGPU_COHERENT",
    "SOFTGPU_DEVICES",
    "SOFTGPU_FAIL",
    "SOFTGPU_KERNELS",
    "SOFTGPU_LIBRARY",
    "SOFTGPU_LOCKS",
    "SOFTGPU_MEMORY",
    "SOFTGPU_PEERS",
    "SOFTGPU_QUARANTINE",
    "SOFTGPU_RACES",
    "SOFTGPU_REPORT",
    "SOFTGPU_SEED",
    "SOFTGPU_STRICT",
    "SOFTGPU_TRACE",
    "SOFTGPU_VERSION",
    "SOFTGPU_VULKAN",
    "SOFTGPU_WITHOUT",
];

/// The variable whose name is most like `name`. The prefix, which all have, would outweigh the rest.
fn nearest(name: &str) -> &'static str {
    let rest = |name: &str| name.trim_start_matches("SOFTGPU_").to_owned();
    let likeness = |known: &&str| strsim::jaro_winkler(&rest(known), &rest(name));
    NAMES.into_iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other))).unwrap_or_default()
}

/// Refuses a misspelt variable: without it a test would pass without the checks that it asked for.
fn check_names(names: Vec<String>) -> Result<(), SettingsError> {
    let is_known = |name: &String| name.starts_with("SOFTGPU_TEST_") || NAMES.contains(&name.as_str());
    match names.into_iter().find(|name| !is_known(name)) {
        Some(value) => {
            let want = format!("one of {}; did you mean {}?", NAMES.join(", "), nearest(&value)).into();
            Err(SettingsError { name: "a variable of the environment", value, want })
        }
        None => Ok(()),
    }
}

impl Settings {
    /// Reads the settings from the environment. A variable that is not set gives the default.
    ///
    /// # Errors
    ///
    /// The value of a variable is not a number, is out of range, or names a function that does not exist; softgpu has no
    /// setting of the name of a variable that begins with `SOFTGPU_`.
    pub fn from_environment() -> Result<Self, SettingsError> {
        check_names(environment_names("SOFTGPU_"))?;
        Self::from_variables(&mut variable)
    }

    fn from_variables(get: &mut dyn FnMut(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut number = |name: &'static str, usual: u64, want: &'static str| match get(name) {
            None => Ok(usual),
            Some(value) => value.trim().parse().map_err(|_| SettingsError { name, value, want: want.into() }),
        };
        let usual = Self::default();
        let devices = number("SOFTGPU_DEVICES", usual.devices as u64, DEVICES)?;
        let memory = number("SOFTGPU_MEMORY", usual.memory, MEMORY)?;
        let atom = number("SOFTGPU_ATOM", usual.atom as u64, ATOM)?;
        let coherent = number("SOFTGPU_COHERENT", u64::from(usual.coherent), SWITCH)?;
        let vulkan = number("SOFTGPU_VULKAN", u64::from(usual.vulkan), SWITCH)?;
        let strict = number("SOFTGPU_STRICT", u64::from(usual.strict), SWITCH)?;
        let races = number("SOFTGPU_RACES", u64::from(usual.races), SWITCH)?;
        let locks = number("SOFTGPU_LOCKS", u64::from(usual.locks), SWITCH)?;
        let version = number("SOFTGPU_VERSION", u64::from(usual.version), VERSION)?;
        let channels = number("SOFTGPU_CHANNELS", usual.channels as u64, STREAMS)?;
        let quarantine = number("SOFTGPU_QUARANTINE", usual.quarantine, BYTES)?;
        let seed = match get("SOFTGPU_SEED") {
            None => None,
            Some(value) => match value.trim().parse() {
                Ok(seed) => Some(seed),
                Err(_) => return Err(SettingsError { name: "SOFTGPU_SEED", value, want: SEED.into() }),
            },
        };
        let peers = match get("SOFTGPU_PEERS") {
            None => usual.peers,
            Some(value) => match Peers::of_name(value.trim()) {
                Some(peers) => peers,
                None => return Err(SettingsError { name: "SOFTGPU_PEERS", value, want: PEERS.into() }),
            },
        };
        let attributes = get("SOFTGPU_ATTRIBUTES").unwrap_or_default();
        let attributes = attributes.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
            let (name, value, want) = ("SOFTGPU_ATTRIBUTES", pair.into(), ATTRIBUTES.into());
            attribute(pair).ok_or(SettingsError { name, value, want })
        });
        let attributes = attributes.collect::<Result<_, _>>()?;
        let without = get("SOFTGPU_WITHOUT").unwrap_or_default();
        let without = without.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let switches = [
            ("SOFTGPU_COHERENT", coherent),
            ("SOFTGPU_VULKAN", vulkan),
            ("SOFTGPU_STRICT", strict),
            ("SOFTGPU_RACES", races),
            ("SOFTGPU_LOCKS", locks),
        ];
        for (name, value) in switches {
            if value > 1 {
                return Err(SettingsError { name, value: value.to_string(), want: SWITCH.into() });
            }
        }
        let settings = Self {
            devices: usize::try_from(devices).unwrap_or(usize::MAX),
            visible: get(VISIBLE),
            peers,
            memory,
            coherent: coherent == 1,
            atom: usize::try_from(atom).unwrap_or(usize::MAX),
            vulkan: vulkan == 1,
            version: u32::try_from(version).unwrap_or(u32::MAX),
            without,
            strict: strict == 1,
            quarantine,
            races: races == 1,
            locks: locks == 1,
            channels: usize::try_from(channels).unwrap_or(usize::MAX),
            seed,
            attributes,
            kernels: get("SOFTGPU_KERNELS"),
        };
        settings.check(["SOFTGPU_DEVICES", "SOFTGPU_MEMORY", "SOFTGPU_ATOM", "SOFTGPU_VERSION", "SOFTGPU_WITHOUT"])?;
        Ok(settings)
    }

    pub(crate) fn leaves_out(&self) -> bool {
        self.version < USUAL || !self.without.is_empty()
    }

    fn check(&self, [devices, memory, atom, version, without]: [&'static str; 5]) -> Result<(), SettingsError> {
        let wrong = |name, value: String, want: &'static str| Err(SettingsError { name, value, want: want.into() });
        if !(1..=64).contains(&self.devices) {
            return wrong(devices, self.devices.to_string(), DEVICES);
        }
        if !(1 << 20..=64 << 40).contains(&self.memory) {
            return wrong(memory, self.memory.to_string(), MEMORY);
        }
        if !self.atom.is_power_of_two() || self.atom > 65536 {
            return wrong(atom, self.atom.to_string(), ATOM);
        }
        if !(11000..=NEWEST).contains(&self.version) {
            return wrong(version, self.version.to_string(), VERSION);
        }
        if let Some(name) = self.without.iter().find(|name| !table::is_known(name)) {
            return wrong(without, name.clone(), WITHOUT);
        }
        Ok(())
    }
}

/// Parses an attribute with its value, such as `144=0` or `144=unknown`.
fn attribute(pair: &str) -> Option<(u32, Option<i32>)> {
    let (number, value) = pair.split_once('=')?;
    let value = match value.trim() {
        "unknown" => None,
        value => Some(value.parse().ok()?),
    };
    Some((number.trim().parse().ok()?, value))
}

static CHOSEN: Mutex<Option<Settings>> = Mutex::new(None);

/// Chooses the simulated machine. Without this call the environment does.
///
/// # Errors
///
/// A setting is out of range, or names a function that does not exist. Then nothing changes.
///
/// ```
/// softgpu::configure(softgpu::Settings { devices: 1, memory: 1 << 30, ..Default::default() })?;
/// assert!(softgpu::configure(softgpu::Settings { atom: 48, ..Default::default() }).is_err());
/// # Ok::<(), softgpu::SettingsError>(())
/// ```
pub fn configure(settings: Settings) -> Result<(), SettingsError> {
    settings.check(["devices", "memory", "atom", "version", "without"])?;
    *lock(&CHOSEN) = Some(settings);
    Ok(())
}

/// The settings in force.
pub(crate) fn chosen() -> Result<Settings, SettingsError> {
    match &*lock(&CHOSEN) {
        Some(settings) => Ok(settings.clone()),
        None => Settings::from_environment(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_refused_by_its_name() {
        let check = |names: &[&str]| check_names(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(check(&["SOFTGPU_RACES", "SOFTGPU_LIBRARY", "SOFTGPU_TEST_LOCKS"]), Ok(()));
        let text = check(&["SOFTGPU_RACES", "SOFTGPU_RACE"]).unwrap_err().to_string();
        assert!(text.contains("is SOFTGPU_RACE, but must be one of SOFTGPU_ATOM, "), "{text}");
        for (wrong, right) in [("RACE", "RACES"), ("DEVICE", "DEVICES"), ("FAULT", "FAIL"), ("MEM", "MEMORY")] {
            let text = check(&[&format!("SOFTGPU_{wrong}")]).unwrap_err().to_string();
            assert!(text.ends_with(&format!("; did you mean SOFTGPU_{right}?")), "{text}");
        }
    }

    #[test]
    fn the_environment_sets_what_it_names_and_bad_values_are_named() {
        let with = |name: &'static str, value: &'static str| {
            Settings::from_variables(&mut move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(with("OTHER", "1"), Ok(Settings::default()));
        assert_eq!(with("SOFTGPU_ATOM", "256"), Ok(Settings { atom: 256, ..Settings::default() }));
        assert_eq!(with("SOFTGPU_COHERENT", " 0 "), Ok(Settings { coherent: false, ..Settings::default() }));
        assert_eq!(with("SOFTGPU_CHANNELS", "8"), Ok(Settings { channels: 8, ..Settings::default() }));
        assert_eq!(with("SOFTGPU_PEERS", "one-way"), Ok(Settings { peers: Peers::OneWay, ..Settings::default() }));
        assert_eq!(with(VISIBLE, ""), Ok(Settings { visible: Some(String::new()), ..Settings::default() }));
        let attributes = vec![(144, Some(0)), (142, None)];
        let old = Settings { attributes, ..Settings::default() };
        assert_eq!(with("SOFTGPU_ATTRIBUTES", "144=0, 142 = unknown,"), Ok(old));
        let without = ["cuMemcpyBatchAsync", "vkgdr_memory_export_fd"].map(str::to_owned).into();
        let lacking = Settings { without, ..Settings::default() };
        assert_eq!(with("SOFTGPU_WITHOUT", "cuMemcpyBatchAsync, vkgdr_memory_export_fd"), Ok(lacking));
        for (name, value) in [
            ("SOFTGPU_WITHOUT", "cuMemAlloc"),
            ("SOFTGPU_ATTRIBUTES", "144"),
            ("SOFTGPU_DEVICES", "0"),
            ("SOFTGPU_DEVICES", "65"),
            ("SOFTGPU_MEMORY", "80G"),
            ("SOFTGPU_ATOM", "48"),
            ("SOFTGPU_COHERENT", "2"),
            ("SOFTGPU_VULKAN", "yes"),
            ("SOFTGPU_VERSION", "13030"),
            ("SOFTGPU_STRICT", "2"),
            ("SOFTGPU_RACES", "2"),
            ("SOFTGPU_LOCKS", "2"),
            ("SOFTGPU_CHANNELS", "few"),
            ("SOFTGPU_PEERS", "ring"),
            ("SOFTGPU_SEED", "x"),
        ] {
            let error = with(name, value).unwrap_err();
            assert!(error.to_string().starts_with(&format!("softgpu: {name} is {value}, but must be ")), "{error}");
        }
    }
}
