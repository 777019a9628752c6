//! Tests of calls that run one at a time.

use super::serial_ends::{EndsAlone, SerialEnds};
use crate::Result;
use core::sync::atomic::{AtomicUsize, Ordering};

static ENDING: AtomicUsize = AtomicUsize::new(0);
static REPORTED: AtomicUsize = AtomicUsize::new(0);

struct Object;

impl EndsAlone for Object {
    fn end(&self) -> Result<()> {
        assert_eq!(ENDING.fetch_add(1, Ordering::SeqCst), 0, "another end runs");
        std::thread::yield_now();
        ENDING.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn report(self, ended: Result<()>) {
        assert_eq!(ended, Ok(()));
        REPORTED.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn ends_run_one_at_a_time_and_none_stays_behind() {
    let ends = SerialEnds::default();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..50).for_each(|_| ends.end(Object)));
        }
    });
    assert_eq!(REPORTED.load(Ordering::SeqCst), 200);
    ends.alone(|| ends.end(Object));
    assert_eq!(REPORTED.load(Ordering::SeqCst), 201, "what came during a call");
}
