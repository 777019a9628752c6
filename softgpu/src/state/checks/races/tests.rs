use super::*;

const A: QueueId = 1;
const B: QueueId = 2;
const C: QueueId = 3;

fn bytes(bytes: Range<usize>, write: bool) -> [Touched; 1] {
    [Touched { shown: bytes.start as u64, bytes, write, block: None }]
}

impl Races {
    fn write(&mut self, queue: QueueId, range: Range<usize>) -> Option<&'static str> {
        self.touch(queue, &[], &bytes(range, true), "a write").unordered.map(|(before, ..)| before)
    }

    fn read(&mut self, queue: QueueId, range: Range<usize>) -> Option<&'static str> {
        self.touch(queue, &[], &bytes(range, false), "a read").unordered.map(|(before, ..)| before)
    }
}

#[test]
fn work_of_one_stream_has_an_order_and_reads_need_none() {
    let mut races = Races::default();
    assert_eq!((races.write(A, 0..10), races.read(A, 5..20), races.write(A, 3..30)), (None, None, None));
    assert_eq!((races.read(B, 30..40), races.read(C, 30..40)), (None, None));
    assert_eq!(races.read(B, 29..31), Some("a write"));
}

#[test]
fn writes_and_reads_of_two_streams_need_an_event_between_them() {
    for (first, second) in [(true, true), (true, false), (false, true)] {
        for waits in [true, false] {
            let mut races = Races::default();
            let name = if first { "a write" } else { "a read" };
            assert!(races.touch(A, &[], &bytes(0..10, first), name).unordered.is_none());
            let event = races.moment(A, &[]);
            if waits {
                races.follow(B, &event);
            }
            let found = races.touch(B, &[], &bytes(9..12, second), "later").unordered.map(|(before, ..)| before);
            assert_eq!(found, (!waits).then_some(name), "{first} {second} {waits}");
        }
    }
}

#[test]
fn event_orders_only_earlier_work_and_passes_that_order_on() {
    let mut races = Races::default();
    races.write(A, 0..1);
    let early = races.moment(A, &[]);
    races.write(A, 1..2);
    races.follow(B, &early);
    assert_eq!((races.write(B, 0..1), races.write(B, 1..2)), (None, Some("a write")));
    let handed_on = races.moment(B, &[]);
    races.follow(C, &handed_on);
    assert_eq!((races.read(C, 0..1), races.read(C, 1..2)), (None, None), "B wrote both last");
    assert_eq!(races.write(A, 0..1), Some("a write"), "A does not wait for B");
}

#[test]
fn a_write_has_to_wait_for_every_reader() {
    let mut races = Races::default();
    races.read(A, 0..10);
    races.read(B, 5..15);
    let event = races.moment(B, &[]);
    races.follow(C, &event);
    assert_eq!(races.write(C, 10..15), None);
    assert_eq!(races.write(C, 0..6), Some("a read"));
}

#[test]
fn what_the_host_has_seen_comes_before_what_is_begun_later() {
    let mut races = Races::default();
    races.write(A, 0..10);
    let end = races.moment(A, &[]);
    races.write(A, 10..20);
    races.observe(&end);
    assert_eq!((races.write(B, 0..10), races.write(B, 10..20)), (None, Some("a write")));
}

#[test]
fn streams_that_wait_for_others_by_their_kind_are_joined() {
    let mut races = Races::default();
    races.write(A, 0..10);
    assert!(races.touch(B, &[A], &bytes(0..10, true), "on the default stream").unordered.is_none());
    assert!(races.touch(A, &[B], &bytes(0..10, true), "on a blocking stream").unordered.is_none());
    assert_eq!(races.write(B, 0..10), Some("on a blocking stream"));
}

#[test]
fn race_check_skips_work_after_value_waits_until_host_waits() {
    let mut races = Races::default();
    races.write(A, 0..10);
    races.blur(B);
    assert_eq!(races.write(B, 0..10), None);
    let event = races.moment(B, &[]);
    races.follow(C, &event);
    assert_eq!(races.write(C, 0..10), None, "it comes after what is not known");
    let end = races.moment(B, &[]);
    races.settle(B, &end);
    races.write(A, 0..10);
    assert_eq!(races.write(B, 0..10), Some("a write"));
}

#[test]
fn queues_that_end_are_forgotten_when_their_work_was_seen() {
    let mut races = Races::default();
    races.write(A, 0..10);
    races.end(A);
    assert_eq!(races.write(B, 0..5), Some("a write"), "its work goes on");
    let end = races.moment(A, &[]);
    races.observe(&end);
    assert_eq!(races.write(B, 5..10), None);
    assert!(!races.lines.contains_key(&A) && !races.host.contains_key(&A));
}

#[test]
fn bytes_that_are_given_back_are_new_to_who_gets_them() {
    let mut races = Races::default();
    races.write(A, 0..30);
    races.forget(&(10..20));
    assert_eq!(races.write(B, 10..20), None);
    assert_eq!((races.write(B, 9..10), races.write(B, 20..21)), (Some("a write"), Some("a write")));
}

/// Compares random work on a few bytes with a list of all work and every pair's order.
#[test]
fn random_histories_are_judged_as_by_a_list_of_all_pairs() {
    let mut random = 1_u64;
    let mut number = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % below
    };
    let mut seen = [0_usize; 2];
    for _ in 0..300 {
        let mut races = Races::default();
        // `all`: queue, bytes, and whether it writes. `ahead`: for each queue, which work comes before its next.
        let mut all: Vec<(QueueId, Range<usize>, bool)> = Vec::new();
        let (mut ahead, mut host) = (vec![vec![false; 64]; 4], vec![false; 64]);
        let mut events: Vec<(Clock, Vec<bool>)> = Vec::new();
        for _ in 0..40 {
            let queue = 1 + number(3);
            let known = &mut ahead[queue as usize];
            match number(6) {
                0 => events.push((races.moment(queue, &[]), known.clone())),
                1 if !events.is_empty() => {
                    let (clock, passed) = &events[number(events.len() as u64) as usize];
                    races.follow(queue, clock);
                    known.iter_mut().zip(passed).for_each(|(known, passed)| *known |= passed);
                }
                2 if !events.is_empty() && number(4) == 0 => {
                    let (clock, passed) = &events[number(events.len() as u64) as usize];
                    races.observe(clock);
                    host.iter_mut().zip(passed).for_each(|(host, passed)| *host |= passed);
                }
                _ => {
                    let start = number(8) as usize;
                    let (range, write) = (start..start + 1 + number(4) as usize, number(2) == 0);
                    known.iter_mut().zip(&host).for_each(|(known, host)| *known |= host);
                    // Only the last write of each byte matters, and the reads since.
                    let mut conflict = false;
                    for byte in range.clone() {
                        let touched = |n: &usize| all[*n].1.contains(&byte);
                        let last = (0..all.len()).rev().filter(touched).find(|n| all[*n].2);
                        let since = (last.map_or(0, |n| n + 1)..all.len()).filter(touched).filter(|_| write);
                        conflict |= last.into_iter().chain(since).any(|n| !known[n]);
                    }
                    let found = races.touch(queue, &[], &bytes(range.clone(), write), "work").unordered.is_some();
                    assert_eq!(found, conflict, "{all:?}, then {queue} {range:?} {write}");
                    seen[usize::from(found)] += 1;
                    known[all.len()] = true;
                    all.push((queue, range, write));
                }
            }
        }
    }
    assert!(seen[0] > 1000 && seen[1] > 1000, "{seen:?}");
}

/// Begins a borrow. Returns its number and the use that conflicts with it.
fn borrowed(races: &mut Races, bytes: Range<usize>, hold: Hold) -> (u64, Option<&'static str>) {
    let (number, conflict) = races.borrow(bytes, hold);
    (number, conflict.map(|conflict| conflict.before))
}

impl Races {
    /// Queues work. Returns the borrow that conflicts with it, and where.
    fn held(&mut self, queue: QueueId, range: Range<usize>, write: bool) -> Option<(&'static str, usize)> {
        let wrong = self.touch(queue, &[], &bytes(range, write), "work");
        wrong.borrowed.map(|(conflict, _)| (conflict.before, conflict.at))
    }
}

#[test]
fn work_on_cpu_borrowed_memory_is_reported_in_any_stream_order() {
    for (hold, reads, writes) in [
        (Hold::Read, false, true),
        (Hold::Write, true, true),
        (Hold::Source, false, true),
        (Hold::Destination, false, false),
    ] {
        let mut races = Races::default();
        let (number, _) = borrowed(&mut races, 10..20, hold);
        for (write, found) in [(false, reads), (true, writes)] {
            assert_eq!(races.held(A, 0..15, write), found.then_some((hold.name(), 10)), "{hold:?} {write}");
            assert_eq!(races.held(A, 20..30, write), None, "{hold:?} beside it");
        }
        let end = races.moment(A, &[]);
        races.observe(&end);
        assert_eq!(races.give_back(number), None);
        assert_eq!(races.held(A, 0..15, true), None, "after {hold:?}");
    }
}

#[test]
fn a_borrow_finds_earlier_work_until_the_host_has_seen_its_end() {
    for (write, hold, found) in
        [(true, Hold::Read, true), (false, Hold::Read, false), (true, Hold::Write, true), (false, Hold::Write, true)]
    {
        let mut races = Races::default();
        races.touch(B, &[], &bytes(5..6, true), "elsewhere");
        races.touch(A, &[], &bytes(10..20, write), "work");
        let other = races.moment(B, &[]);
        races.settle(B, &other);
        let (number, before) = borrowed(&mut races, 0..11, hold);
        assert_eq!(before, found.then_some("work"), "{hold:?}: a wait for another stream is none for this one");
        races.give_back(number);
        let end = races.moment(A, &[]);
        races.settle(A, &end);
        assert_eq!(borrowed(&mut races, 0..11, hold).1, None);
    }
}

#[test]
fn loan_suspends_its_borrow_and_must_finish_before_its_return() {
    let mut races = Races::default();
    let (whole, _) = borrowed(&mut races, 0..100, Hold::Write);
    let (part, _) = borrowed(&mut races, 10..20, Hold::Source);
    assert_eq!(races.held(A, 10..20, false), None, "the copy");
    assert_eq!(races.held(A, 10..20, true), Some((Hold::Write.name(), 10)), "the CPU reads too");
    assert_eq!(races.held(A, 15..25, false), Some((Hold::Write.name(), 15)), "more than was lent");
    assert_eq!(races.give_back(part).map(|conflict| conflict.at), Some(10), "nobody has waited");
    let (part, _) = borrowed(&mut races, 40..50, Hold::Destination);
    assert_eq!(races.held(A, 40..50, true), None, "the copy");
    let end = races.moment(A, &[]);
    races.settle(A, &end);
    assert_eq!((races.give_back(part), races.give_back(whole)), (None, None));
}

#[test]
fn last_loan_of_shared_bytes_reports_pending_reads() {
    let mut races = Races::default();
    let loans = [0, 1].map(|_| borrowed(&mut races, 0..10, Hold::Source).0);
    races.touch(A, &[], &bytes(0..10, false), "a copy of the second loan");
    assert_eq!(races.give_back(loans[0]), None);
    assert_eq!(races.give_back(loans[1]).map(|conflict| conflict.before), Some("a copy of the second loan"));
}

#[test]
fn work_whose_order_is_not_known_is_looked_at_when_it_runs() {
    let mut races = Races::default();
    races.blur(A);
    let (first, _) = borrowed(&mut races, 0..10, Hold::Write);
    let work = bytes(5..6, false);
    assert!(races.touch(A, &[], &work, "work").borrowed.is_none());
    let (number, conflict) = races.run(&work, "work");
    assert_eq!(conflict.map(|(conflict, _)| conflict.at), Some(5), "the borrow goes on");
    races.give_back(first);
    assert_eq!(borrowed(&mut races, 0..10, Hold::Write).1, Some("work"), "a borrow while it runs");
    assert_eq!(borrowed(&mut races, 0..10, Hold::Read).1, None, "which reads");
    races.ran(number);
    races.forget(&(0..10));
    assert_eq!(races.run(&work, "work").1, None, "the borrows of freed bytes are over");
}

impl Races {
    /// The misuse by a shared access of the CPU, and the earlier work.
    fn shared(&mut self, range: Range<usize>, write: bool) -> Option<(Misuse, &'static str)> {
        self.access(&range, write, true).map(|conflict| (conflict.misuse, conflict.before))
    }

    fn see(&mut self, queue: QueueId) {
        let end = self.moment(queue, &[]);
        self.settle(queue, &end);
    }
}

#[test]
fn shared_accesses_meet_the_work_of_former_owners_only() {
    let mut races = Races::default();
    races.write(A, 0..10);
    assert_eq!((races.shared(0..10, false), races.shared(0..10, true)), (None, None), "the owner's own work");
    races.new_owner(&(0..10));
    races.write(B, 20..30);
    for write in [false, true] {
        assert_eq!(races.shared(5..25, write), Some((Misuse::FormerOwner, "a write")));
        assert_eq!(races.shared(10..40, write), None);
    }
    // Later work of the same stream takes the place of the former owner's, which goes on all the same.
    let end = races.moment(A, &[]);
    races.write(A, 0..10);
    assert_eq!(races.shared(9..10, false), Some((Misuse::FormerOwner, "a write")));
    races.observe(&end);
    assert_eq!((races.shared(0..10, false), races.shared(0..10, true)), (None, None), "only the new owner's is left");
}

#[test]
fn reads_of_a_former_owner_matter_to_writes() {
    let mut races = Races::default();
    races.read(A, 0..10);
    races.new_owner(&(0..10));
    assert_eq!((races.shared(0..10, false), races.shared(0..10, true)), (None, Some((Misuse::FormerOwner, "a read"))));
    // The last of several owners comes after the work of all.
    races.read(B, 5..10);
    races.new_owner(&(0..10));
    races.see(A);
    assert_eq!((races.shared(0..5, true), races.shared(0..10, true).is_some()), (None, true));
    races.see(B);
    assert_eq!(races.shared(0..10, true), None);
}

#[test]
fn exclusive_accesses_tell_former_work_from_the_owners_own() {
    let mut races = Races::default();
    races.write(A, 0..10);
    races.new_owner(&(0..5));
    for (range, misuse) in [(0..10, Misuse::FormerOwner), (5..10, Misuse::Borrowed)] {
        for hold in [Hold::Read, Hold::Write] {
            let (number, conflict) = races.borrow(range.clone(), hold);
            assert_eq!(conflict.map(|conflict| conflict.misuse), Some(misuse));
            races.give_back(number);
        }
    }
    races.forget(&(0..10));
    assert_eq!(races.shared(0..10, true), None, "the driver has the memory");
}

#[test]
fn many_owners_leave_one_record_for_each_stream() {
    let mut races = Races::default();
    for _ in 0..100 {
        races.write(A, 0..10);
        races.read(B, 0..5);
        races.new_owner(&(0..10));
    }
    let parts: Vec<_> = races.former.over(&(0..100)).map(|(part, former)| (part, former.size())).collect();
    assert_eq!(parts, [(0..5, 2), (5..10, 1)]);
    races.see(A);
    races.see(B);
    races.new_owner(&(0..10));
    assert_eq!(races.former.over(&(0..100)).count(), 0);
}

#[test]
fn bytes_that_were_only_recorded_are_found_until_written() {
    let mut races = Races::default();
    let never = |races: &mut Races, range: Range<usize>| races.shared(range, false).map(|(misuse, _)| misuse);
    races.contents.record(&bytes(0..100, true), "a fill");
    assert_eq!(never(&mut races, 0..1), Some(Misuse::NeverRan));
    assert_eq!(races.contents.execute(&bytes(50..60, false)), Some(("a fill", 50, 0)));
    assert_eq!(races.contents.execute(&bytes(0..40, true)), None);
    assert_eq!(races.shared(40..60, true), None);
    assert_eq!((never(&mut races, 0..60), never(&mut races, 59..61)), (None, Some(Misuse::NeverRan)));
    // Older contents stay until the bytes have a new owner.
    races.contents.record(&bytes(0..60, true), "a fill");
    assert_eq!(never(&mut races, 0..60), None);
    races.new_owner(&(0..10));
    assert_eq!(never(&mut races, 0..10), None, "nothing is recorded");
    races.contents.record(&bytes(0..60, true), "a fill");
    assert_eq!((never(&mut races, 0..10), never(&mut races, 10..60)), (Some(Misuse::NeverRan), None));
}
