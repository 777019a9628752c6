//! Programs from the third audit of the safe interface, by topic.
//!
//! They use the driver that the environment names. Programs that hung run on a thread with a time limit.

mod c_library;
mod channels;
mod contexts;
mod frees;
mod gates;
mod older_drivers;
mod other_libraries;
mod peers_and_pools;
mod permissions;
mod pools;
mod second_streams;
mod streams;
mod teardown_codes;

use cuda_mem::{Error, Stream};
use std::sync::mpsc::{Sender, channel};

/// Makes a stream wait until the sender is used or dropped.
fn hold(stream: &Stream) -> Result<Sender<()>, Error> {
    let (open, opened) = channel();
    stream.launch_host_function(move || opened.recv().unwrap_or_default())?;
    Ok(open)
}
