//! Reports of waits that take long.

use core::fmt;
use core::time::Duration;

/// A wait that takes longer than the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowWait {
    /// What the thread is doing, such as "reading a buffer by the CPU".
    pub doing: &'static str,
    /// The call that waits.
    pub call: &'static str,
    /// The name of the waiting thread, or its number.
    pub thread: Box<str>,
    /// What the thread waits for.
    pub target: WaitTarget,
    /// How long the thread has waited.
    pub waited: Duration,
    /// The known flags, counters and rings that the queued work itself waits for, with their values.
    pub awaits: Vec<Box<str>>,
}

/// What a thread waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitTarget {
    /// All work queued on a stream so far.
    Stream {
        /// The driver's handle.
        raw: usize,
        /// The ordinal of its device.
        device: i32,
    },
    /// All work of a context, which some calls of the driver wait for.
    Context {
        /// The ordinal of its device.
        device: i32,
    },
    /// Work before an event.
    Event {
        /// The ordinal of its device.
        device: i32,
    },
    /// The word of a flag or counter, or items or room of a ring: its name, its value, and what it needs, such as
    /// `flag "ready": value 3, needs >= 4`.
    Signal(Box<str>),
    /// Another thread of this process.
    #[default]
    Thread,
    /// Another process, at the other end of a channel.
    Process,
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitTarget::Stream { raw, device } => write!(f, "stream {raw:#x} of device {device}"),
            WaitTarget::Context { device } => write!(f, "all work of device {device}"),
            WaitTarget::Event { device } => write!(f, "an event of device {device}"),
            WaitTarget::Signal(signal) => f.write_str(signal),
            WaitTarget::Thread => f.write_str("another thread"),
            WaitTarget::Process => f.write_str("another process"),
        }
    }
}

impl fmt::Display for SlowWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { doing, call, thread, target, waited, awaits } = self;
        write!(f, "thread {thread} has waited {:.1} s for {target} in {call}", waited.as_secs_f64())?;
        if doing != call {
            write!(f, ", {doing}")?;
        }
        for (index, word) in awaits.iter().enumerate() {
            write!(f, "{}{word}", if index == 0 { "; queued work waits for " } else { " and for " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_everything_on_one_line() {
        let target = WaitTarget::Stream { raw: 0x10, device: 1 };
        let mut wait = SlowWait {
            doing: "reading a buffer by the CPU",
            call: "Stream::synchronize",
            thread: "\"main\"".into(),
            target,
            waited: Duration::from_millis(10_040),
            awaits: vec!["flag \"ready\" (value 3, needs 4)".into()],
        };
        let text = "thread \"main\" has waited 10.0 s for stream 0x10 of device 1 in Stream::synchronize, reading a buffer by \
                    the CPU; queued work waits for flag \"ready\" (value 3, needs 4)";
        assert_eq!(wait.to_string(), text);
        wait.awaits.push("counter #2".into());
        assert!(wait.to_string().ends_with(" and for counter #2"));
        wait.doing = wait.call;
        wait.awaits.clear();
        assert!(wait.to_string().ends_with("in Stream::synchronize"));
    }
}
