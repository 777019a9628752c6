//! The soak: random work of many threads over all resources, with delays and faults on the software GPU. Without
//! options it runs for some seconds; `--seconds 3600 --round 20 --world 6` runs for an hour. `src/soak/` describes it.

use std::process::ExitCode;
use testkit::soak::{Options, child, names, run, threads};

fn main() -> ExitCode {
    threads::install();
    if let Some(played) = child::play() {
        return match played {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("the other process: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let outcome = Options::read(std::env::args().skip(1), &names()).and_then(|options| run(&options));
    match outcome {
        Ok(()) => {
            println!("test result: ok. 1 passed; 0 failed; 0 ignored");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("test result: FAILED. 0 passed; 1 failed; 0 ignored\n{what}");
            ExitCode::FAILURE
        }
    }
}
