//! What both examples share: the GPU, the key, and two processes of one program.

use cuda_mem::{Context, Driver, Error as CudaError};
use cuda_mem_remote::Key;
use std::error::Error as StdError;
use std::process::{Child, Command};

pub type Outcome<T> = Result<T, Box<dyn StdError>>;

const VARIABLE: &str = "CUDA_MEM_REMOTE_KEY";

/// The first GPU. On a machine without a driver, the software GPU, which is said.
pub fn context() -> Outcome<Context> {
    match Context::open(0) {
        Err(CudaError::Load(_)) => {
            println!("on the software GPU: this machine has no driver for a GPU (cuda-mem doctor says more)");
            Ok(Driver::software()?.device(0)?.primary_context()?)
        }
        other => Ok(other?),
    }
}

/// The key of the environment, which both hosts have.
pub fn key() -> Outcome<Key> {
    let digits = std::env::var(VARIABLE);
    let digits = digits.map_err(|_| format!("set {VARIABLE} to 64 hexadecimal digits, the same on both hosts"))?;
    Ok(Key::from_hex(&digits)?)
}

/// Starts this program a second time, with a new key that both have from now on.
pub fn second_process(key: &Key, arguments: &[String]) -> Outcome<Child> {
    Ok(Command::new(std::env::current_exe()?).args(arguments).env(VARIABLE, key.to_hex()).spawn()?)
}

/// The value behind an option, or a default.
pub fn option(name: &str, default: usize) -> Outcome<usize> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments
        .next()
        .map_or(Ok(default), |value| value.parse().map_err(|_| format!("{name} {value}: not a number").into()))
}
