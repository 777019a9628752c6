//! Reading traces: this crate's own format, and RMM's.

use super::format::{MARK, VERSION};
use super::{Action, Trace, TraceError, TraceEvent};
use csv::{ErrorKind, ReaderBuilder, StringRecord};
use std::io::{BufRead, BufReader, Read};

/// RMM's names of the first six columns of `OWN`.
const RMM: [&str; 6] = ["Time", "Thread", "Action", "Pointer", "Size", "Stream"];
const OWN: [&str; 7] = ["time_ns", "thread", "action", "address", "size", "stream", "name"];

const DAY: u64 = 86_400_000_000_000;

impl Trace {
    /// Reads a trace in this crate's [format](crate::adaptor::trace#format), or a log of RMM.
    ///
    /// RMM writes times of the day: a step back of more than half a day begins a new day. The first event gets time 0.
    ///
    /// # Errors
    ///
    /// The reader failed; or the text is not a trace, is of another version, or has an invalid value: the error names
    /// line, column and value.
    pub fn read(reader: impl Read) -> Result<Self, TraceError> {
        let mut reader = BufReader::new(reader);
        let mut first = Vec::new();
        reader.read_until(b'\n', &mut first)?;
        let line = String::from_utf8_lossy(&first);
        let line = line.trim_start_matches('\u{feff}').trim_end();
        if let Some(head) = line.strip_prefix(MARK) {
            return Ok(Self { lost: lost(head)?, events: events(reader, 1, &OWN, own_event)? });
        }
        if RMM.iter().all(|column| line.split(',').any(|name| name.trim() == *column)) {
            let mut clock = DayClock::default();
            let event = |fields: &RowFields<'_>| rmm_event(fields, &mut clock);
            return Ok(Self {
                lost: 0,
                events: events(line.as_bytes().chain(&b"\n"[..]).chain(reader), 0, &RMM, event)?,
            });
        }
        Err(TraceError::NoTrace { first: line.chars().take(80).collect() })
    }
}

/// Checks the version, and returns the number of lost events.
fn lost(head: &str) -> Result<u64, TraceError> {
    let mut lost = 0;
    let mut version = "none";
    for (name, value) in head.split(',').filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "version" => version = value.trim(),
            "lost" => lost = number(value.trim()).ok_or_else(|| wrong(1, "lost", value, "a whole number"))?,
            _ => {}
        }
    }
    if version != VERSION {
        return Err(TraceError::Version { version: version.to_owned() });
    }
    Ok(lost)
}

/// Reads all lines; the caller has already read the first `before` lines.
fn events(
    reader: impl Read,
    before: u64,
    columns: &[&'static str],
    mut event: impl FnMut(&RowFields<'_>) -> Result<TraceEvent, TraceError>,
) -> Result<Vec<TraceEvent>, TraceError> {
    let mut reader = ReaderBuilder::new().from_reader(reader);
    let head = reader.headers().map_err(|error| from_csv(error, before))?.clone();
    let place = |column: &&'static str| {
        let missing =
            || TraceError::NoColumn { line: before + 1, column, head: head.iter().collect::<Vec<_>>().join(",") };
        head.iter().position(|name| name.trim() == *column).map(|place| (*column, place)).ok_or_else(missing)
    };
    let places: Vec<_> = columns.iter().map(place).collect::<Result<_, _>>()?;
    let mut events = Vec::new();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| from_csv(error, before))? {
        let line = before + record.position().map_or(0, csv::Position::line);
        events.push(event(&RowFields { line, places: &places, record: &record })?);
    }
    Ok(events)
}

fn from_csv(error: csv::Error, before: u64) -> TraceError {
    let line = before + error.position().map_or(1, csv::Position::line);
    match error.into_kind() {
        ErrorKind::Io(error) => TraceError::Read(error),
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            TraceError::Fields { line, expected: expected_len, found: len }
        }
        ErrorKind::Utf8 { .. } => TraceError::NotText { line },
        other => TraceError::Read(std::io::Error::other(format!("line {line}: {other:?}"))),
    }
}

fn wrong(line: u64, column: &'static str, value: &str, rule: &'static str) -> TraceError {
    TraceError::Field { line, column, value: value.chars().take(80).collect(), rule }
}

/// The fields of one line, by the wanted columns.
struct RowFields<'line> {
    line: u64,
    places: &'line [(&'static str, usize)],
    record: &'line StringRecord,
}

impl RowFields<'_> {
    /// The field of the wanted column with this index.
    fn text(&self, wanted: usize) -> &str {
        self.record.get(self.places[wanted].1).unwrap_or_default()
    }

    fn read<T>(
        &self,
        wanted: usize,
        rule: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TraceError> {
        let text = self.text(wanted);
        read(text.trim()).ok_or_else(|| wrong(self.line, self.places[wanted].0, text, rule))
    }

    fn count(&self, wanted: usize) -> Result<u64, TraceError> {
        self.read(wanted, "a whole number below 2^64", number)
    }

    fn address(&self, wanted: usize) -> Result<u64, TraceError> {
        self.read(wanted, "an address: 0x and hexadecimal, or a whole number", address)
    }
}

fn own_event(fields: &RowFields<'_>) -> Result<TraceEvent, TraceError> {
    const ACTIONS: &str = "allocate, free, free_failure, out_of_memory, wait, grow or release";
    Ok(TraceEvent {
        time_ns: fields.count(0)?,
        thread: fields.count(1)?,
        action: fields.read(2, ACTIONS, |text| Action::ALL.into_iter().find(|action| action.name() == text))?,
        address: fields.address(3)?,
        size: fields.count(4)?,
        stream: fields.address(5)?,
        name: Some(fields.text(6)).filter(|name| !name.is_empty()).map(Into::into),
    })
}

fn rmm_event(fields: &RowFields<'_>, clock: &mut DayClock) -> Result<TraceEvent, TraceError> {
    let action = |text: &str| match text {
        "allocate" => Some(Action::Allocate),
        "free" => Some(Action::Free),
        "allocate failure" => Some(Action::OutOfMemory),
        "free failure" => Some(Action::FreeFailure),
        _ => None,
    };
    let time = fields.read(0, "a time: hours:minutes:seconds.fraction, or seconds.fraction", time_of_day)?;
    Ok(TraceEvent {
        time_ns: clock.since_beginning(time),
        thread: fields.count(1)?,
        action: fields.read(2, "allocate, free, allocate failure or free failure", action)?,
        address: fields.address(3)?,
        size: fields.count(4)?,
        stream: fields.address(5)?,
        name: None,
    })
}

/// Converts times of the day into times since the first one.
#[derive(Debug, Default)]
struct DayClock {
    first: Option<u64>,
    last: u64,
    days: u64,
}

impl DayClock {
    fn since_beginning(&mut self, time: u64) -> u64 {
        let first = *self.first.get_or_insert(time);
        // Lines of several threads may be out of order, so a small step back is no new day.
        if self.last.saturating_sub(time) > DAY / 2 && time < DAY {
            self.days += 1;
        }
        self.last = time;
        (time + self.days * DAY).saturating_sub(first)
    }
}

/// Parses a whole number. Rust's parser would also accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn address(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        // The way in which printf shows a null pointer.
        None if text == "(nil)" => Some(0),
        None => number(text),
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
    }
}

/// Parses `23:04:05.000042`, `23:04:05:000042` or `1634567890.123456` into nanoseconds.
fn time_of_day(text: &str) -> Option<u64> {
    let (whole, fraction) = match text.rsplit_once(['.', ':']) {
        Some((whole, fraction)) if text.contains('.') || whole.matches(':').count() == 2 => (whole, fraction),
        _ => (text, "0"),
    };
    let parts: Vec<u64> = whole.split(':').map(number).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [hours, minutes, seconds] if hours < 24 && minutes < 60 && seconds < 61 => {
            (hours * 60 + minutes) * 60 + seconds
        }
        [seconds] => seconds,
        _ => return None,
    };
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let nanoseconds = number(fraction)? * 10u64.pow(9 - digits);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests;
