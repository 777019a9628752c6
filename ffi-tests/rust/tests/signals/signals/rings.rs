//! Rings between the CPU and kernels.

use super::{Bench, PATIENCE, patient};
use cuda_mem::Error;
use cuda_mem::signal::{Comparison, Consumer, Producer, WaitPolicy, Waiter};
use std::thread;
use std::time::Duration;
use testkit::alone;
use testkit::suite::Outcome;

/// Sends all numbers up to `count` through two rings and a kernel, and checks the returned numbers.
fn through_a_kernel(
    bench: &Bench,
    mut to: Producer<u64>,
    mut from: Consumer<u64>,
    count: u64,
    batch: usize,
) -> Outcome {
    bench.kernels.echo_ring(&to, &from, PATIENCE, &bench.stream)?;
    let sender = thread::spawn(move || -> Result<(), Error> {
        let numbers: Vec<u64> = (0..count).map(scrambled).collect();
        for part in numbers.chunks(batch) {
            assert_eq!(to.send(part, &patient())?, part.len());
        }
        Ok(()) // the drop closes the ring
    });
    let (mut items, mut next) = (vec![0; batch], 0);
    loop {
        let some = from.receive(&mut items, &patient())?;
        if some == 0 {
            break;
        }
        for item in &items[..some] {
            assert_eq!(*item, scrambled(next), "item {next}");
            next += 1;
        }
    }
    sender.join().map_err(|_| "the sender panicked")??;
    assert_eq!(next, count);
    assert!(from.is_closed() && from.pop()?.is_none());
    Ok(bench.stream.synchronize()?)
}

/// A number in which every byte matters.
fn scrambled(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number
}

#[test]
fn a_hundred_thousand_items_go_there_and_back_in_order() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let (to, from) = (bench.signals.ring_to_device(1000)?, bench.signals.ring_from_device(1000)?);
        assert_eq!((to.capacity(), from.capacity()), (1024, 1024));
        through_a_kernel(&bench, to, from, 100_000, 32)
    })
}

#[test]
fn indices_wrap_around_wherever_the_ring_lies() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        for (consumer, producer) in bench.pairs() {
            for (items, batch) in [(1, 1), (8, 3), (64, 64)] {
                let to = bench.signals.ring_to_device_in(items, consumer, producer)?.at_position(u32::MAX - 300);
                let from = bench.signals.ring_from_device_in(items, consumer, producer)?.at_position(u32::MAX - 500);
                assert_eq!((to.placements(), from.placements()), ((consumer, producer), (consumer, producer)));
                through_a_kernel(&bench, to, from, if items == 1 { 600 } else { 3000 }, batch)?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_kernel_adds_up_what_is_pushed_and_counts_for_the_cpu() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let count = 100_000;
        let mut ring = bench.signals.ring_to_device::<u64>(256)?;
        let sum = bench.signals.flag::<u64>(Waiter::Cpu)?;
        bench.kernels.sum_ring(&ring, &sum, PATIENCE, &bench.stream)?;
        let numbers: Vec<u64> = (1..=count).collect();
        assert_eq!(ring.send(&numbers, &patient())?, numbers.len());
        ring.close();
        let expected = count * (count + 1) / 2;
        assert_eq!(sum.wait(Comparison::Equal, expected, &patient())?, expected);

        let mut ring = bench.signals.ring_from_device::<u64>(256)?;
        bench.kernels.count_ring(&ring, count, PATIENCE, &bench.stream)?;
        let (mut next, mut items) = (0, [0; 100]);
        loop {
            let some = ring.receive(&mut items, &patient())?;
            if some == 0 {
                break;
            }
            items[..some].iter().for_each(|item| {
                assert_eq!(*item, next);
                next += 1;
            });
        }
        assert_eq!(next, count);
        Ok(())
    })
}

#[test]
fn full_and_empty_are_values() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let mut to = bench.signals.ring_to_device::<[u32; 3]>(3)?;
        assert_eq!((to.capacity(), to.room()?), (4, 4));
        assert!(to.push([1, 2, 3])?);
        assert_eq!(to.push_slice(&[[4; 3]; 9])?, 3);
        assert_eq!((to.push([5; 3])?, to.push_slice(&[[6; 3]])?, to.room()?), (false, 0, 0));
        assert_eq!((to.push_slice(&[])?, to.is_closed()), (0, false));
        let mut from = bench.signals.ring_from_device::<[u32; 3]>(3)?;
        let mut items = [[7; 3]; 2];
        assert_eq!((from.pop()?, from.pop_slice(&mut items)?, items, from.available()?), (None, 0, [[7; 3]; 2], 0));
        assert_eq!(from.receive(&mut [], &WaitPolicy::default())?, 0);
        Ok(())
    })
}

#[test]
fn a_ring_that_is_closed_by_the_cpu_ends_the_kernel() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        // The kernel waits for room, which never comes.
        let mut from = bench.signals.ring_from_device::<u64>(16)?;
        bench.kernels.count_ring(&from, 1000, Duration::ZERO, &bench.stream)?;
        for _ in 0..4 {
            assert_eq!(from.receive(&mut [0], &patient())?, 1);
        }
        assert!(!bench.stream.is_done()?);
        drop(from);
        bench.stream.synchronize()?;
        // The kernel waits for items. Items that were pushed before the end still arrive.
        let (mut to, sum) = (bench.signals.ring_to_device::<u64>(16)?, bench.signals.flag::<u64>(Waiter::Cpu)?);
        bench.kernels.sum_ring(&to, &sum, Duration::ZERO, &bench.stream)?;
        assert_eq!(to.push_slice(&[5, 6, 7])?, 3);
        drop(to);
        bench.stream.synchronize()?;
        assert_eq!(sum.load(), 18);
        Ok(())
    })
}

#[test]
fn a_kernel_that_ended_closes_its_ends() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let (mut to, sum) = (bench.signals.ring_to_device::<u64>(4)?, bench.signals.flag::<u64>(Waiter::Cpu)?);
        bench.kernels.sum_ring(&to, &sum, Duration::from_millis(1), &bench.stream)?;
        bench.stream.synchronize()?;
        assert!(to.is_closed(), "it had no patience");
        assert_eq!(to.send(&[1, 2, 3], &patient())?, 0, "nobody would pop them");
        Ok(())
    })
}

#[test]
fn the_next_kernel_goes_on_where_the_last_one_ended() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let mut ring = bench.signals.ring_from_device::<u64>(64)?;
        let mut seen = Vec::new();
        for count in [40, 50, 3] {
            bench.kernels.count_ring(&ring, count, PATIENCE, &bench.stream)?;
            let mut items = [0; 7];
            for _ in 0..count.div_ceil(7) {
                while ring.available()? < 7 && !bench.stream.is_done()? {
                    thread::yield_now();
                }
                let some = ring.pop_slice(&mut items)?;
                seen.extend_from_slice(&items[..some]);
            }
            bench.stream.synchronize()?;
        }
        let expected: Vec<u64> = (0..40).chain(0..50).chain(0..3).collect();
        assert_eq!(seen, expected);
        Ok(())
    })
}
