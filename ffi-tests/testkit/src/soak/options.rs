//! The options of a run.

use std::time::Duration;

/// The options of a soak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long it runs. It completes at least the rounds of one world.
    pub duration: Duration,
    /// The number of threads.
    pub threads: usize,
    /// The seed of all random choices.
    pub seed: u64,
    /// The length of one round. All threads end with it.
    pub round: Duration,
    /// The number of rounds after which contexts, pools and engines are created again.
    pub world: u32,
    /// Whether every second round has faults, which need the software GPU.
    pub faults: bool,
    /// Whether a tool that holds files and memory in this process observes it, as compute-sanitizer does. The figures
    /// of the process are then printed and not judged.
    pub observed: bool,
    /// Kinds of work to leave out. Without `mapped`, the other kinds do not use mapped memory either.
    pub without: Vec<String>,
    /// Kinds of work to do. If empty, all kinds.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(4),
            threads: 8,
            seed: 1,
            round: Duration::from_secs(1),
            world: 2,
            faults: true,
            observed: false,
            without: Vec::new(),
            only: Vec::new(),
        }
    }
}

/// The answer to an invalid command line.
pub const USAGE: &str = "soak [--seconds N] [--threads N] [--seed N] [--round SECONDS] [--world ROUNDS] [--no-faults] \
                         [--observed] [--without KIND,KIND] [--only KIND,KIND]";

impl Options {
    /// Reads a command line, without the program's name. Ignores `--quiet`, which test programs get.
    ///
    /// # Errors
    ///
    /// A word is not an option, or a value is invalid. `known` lists the kinds of work.
    pub fn read(arguments: impl IntoIterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let (mut options, mut arguments) = (Self::default(), arguments.into_iter());
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value: {USAGE}"));
            match name.as_str() {
                "--quiet" => {}
                "--no-faults" => options.faults = false,
                "--observed" => options.observed = true,
                "--seconds" => options.duration = Duration::from_secs(number(&name, &value()?)?),
                "--round" => options.round = Duration::from_secs(number(&name, &value()?)?.max(1)),
                "--threads" => options.threads = number(&name, &value()?)?.clamp(1, 256) as usize,
                "--world" => options.world = number(&name, &value()?)?.clamp(1, 1 << 20) as u32,
                "--seed" => options.seed = number(&name, &value()?)?,
                "--without" => options.without = kinds(&name, &value()?, known)?,
                "--only" => options.only = kinds(&name, &value()?, known)?,
                _ => return Err(format!("{name} is not an option: {USAGE}")),
            }
        }
        Ok(options)
    }

    /// Whether to do a kind of work.
    pub fn wants(&self, kind: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|name| name == kind);
        (self.only.is_empty() || names(&self.only)) && !names(&self.without)
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} is {value:?}, but must be a number"))
}

fn kinds(name: &str, value: &str, known: &[&str]) -> Result<Vec<String>, String> {
    let kinds: Vec<String> = value.split(',').map(str::to_owned).collect();
    match kinds.iter().find(|kind| !known.contains(&kind.as_str())) {
        Some(kind) => Err(format!("{name}: {kind:?} is not a kind of work; the kinds are {}", known.join(", "))),
        None => Ok(kinds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        Options::read(line.split_whitespace().map(str::to_owned), &["buffers", "views"])
    }

    #[test]
    fn command_line_sets_named_options_and_errors_quote_bad_words() {
        assert_eq!(read("--quiet"), Ok(Options::default()));
        let options = read("--seconds 9 --threads 2 --seed 7 --no-faults --observed --without views").unwrap();
        assert_eq!((options.duration, options.threads, options.seed), (Duration::from_secs(9), 2, 7));
        assert_eq!((options.faults, options.observed), (false, true));
        assert_eq!((options.wants("views"), options.wants("buffers")), (false, true));
        assert!(!read("--only views").unwrap().wants("buffers"));
        for (line, word) in [("--second 1", "--second"), ("--seconds x", "\"x\""), ("--only y", "\"y\"")] {
            let error = read(line).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(read("--seed").is_err());
    }
}
