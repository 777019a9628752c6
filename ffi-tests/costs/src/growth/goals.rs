//! What the pool's costs should be.

use crate::Row;
use crate::subject::Subject;

/// The most host memory that a block may take, in bytes.
const BYTES: f64 = 64.0;
/// How much more an operation may cost with more blocks, streams or free memory.
const FACTOR: f64 = 2.0;

/// Prints to standard error which goals the pool meets.
pub(crate) fn print(rows: &[Row]) {
    let ours = |row: &&Row| row.subject != Subject::Driver;
    for row in rows.iter().filter(ours).filter(|row| row.measure.starts_with("allocated")) {
        let text = format!("{}: {} live blocks, {:.1} B of host memory each", row.subject.name(), row.count, row.value);
        goal(row.value <= BYTES, &text, &format!("at most {BYTES} B"));
    }
    for last in rows.iter().filter(ours).filter(|row| row.measure.ends_with(", ns")) {
        let same = |row: &&Row| (row.case, row.subject, row.measure) == (last.case, last.subject, last.measure);
        // The goals end at a million blocks, and name no number of threads. The first fill pays for the pool's growth.
        let compared = match last.case {
            "blocks" => last.count == 1_000_000 && !last.measure.starts_with("first"),
            "threads" => false,
            _ => rows.iter().filter(same).all(|row| row.count <= last.count),
        };
        if let Some(first) = rows.iter().find(same).filter(|first| compared && first.count < last.count) {
            let text = format!(
                "{}: {}: {} {:.1}, {} {:.1}",
                last.subject.name(),
                last.measure,
                first.count,
                first.value,
                last.count,
                last.value
            );
            let ratio = last.value / first.value;
            goal(
                ratio <= FACTOR,
                &format!("{}, {text}, {ratio:.2} times", last.case),
                &format!("at most {FACTOR} times"),
            );
        }
    }
}

fn goal(met: bool, text: &str, goal: &str) {
    eprintln!("{} {text} (goal: {goal})", if met { "met   " } else { "missed" });
}
