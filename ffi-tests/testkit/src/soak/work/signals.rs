//! Flags, counters and rings between threads, streams and kernels.

use crate::soak::{Done, Hands, Trouble};
use cuda_mem::Error;
use cuda_mem::signal::{Comparison, WaitPolicy, Waiter};
use std::time::Duration;

/// How long each side waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs one exchange.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (stream, world) = (hands.stream()?, hands.world);
    let policy = WaitPolicy::within(PATIENCE);
    match hands.below(3) {
        0 => {
            hands.doing("a counter and a flag in stream order");
            let (mut ready, done) = (world.signals.counter::<u64>()?, world.signals.device_counter::<u64>()?);
            let rounds = 1 + hands.below(8) as u64;
            let ordered = (1..=rounds).try_for_each(|piece| {
                ready.wait_on(&stream, piece)?;
                done.store_on(&stream, piece)
            });
            // The stream's waiting work must continue, whatever was refused.
            ready.add(rounds);
            ordered?;
            hands.doing("the wait for a counter");
            let seen = done.wait(rounds, &policy)?;
            hands.ensure(seen == rounds, || format!("a counter is {seen} in place of {rounds}"))
        }
        1 => {
            hands.doing("a flag that a kernel answers");
            let (question, answer) =
                (world.signals.flag::<u32>(Waiter::Device)?, world.signals.flag::<u32>(Waiter::Cpu)?);
            question.store(3);
            world.kernels.echo_flag(&question, &answer, 3, PATIENCE, &stream)?;
            hands.doing("the wait for an answer");
            let seen = answer.wait(Comparison::Equal, 3, &policy)?;
            hands.ensure(seen == 3, || format!("an answer is {seen} in place of 3"))
        }
        _ => rings(hands),
    }
}

/// Another thread sends items, and a kernel returns them in order.
fn rings(hands: &mut Hands<'_>) -> Done {
    let (stream, world) = (hands.stream()?, hands.world);
    let (count, room) = (1 + hands.below(500), 1 << hands.below(8));
    let items: Vec<u64> = (0..count).map(|_| hands.number()).collect();
    hands.doing("rings through a kernel");
    let mut to = world.signals.ring_to_device::<u64>(room)?;
    let mut from = world.signals.ring_from_device::<u64>(room)?;
    world.kernels.echo_ring(&to, &from, PATIENCE, &stream)?;
    let policy = WaitPolicy::within(PATIENCE);
    std::thread::scope(|scope| -> Done {
        let items = &items;
        let sender = scope.spawn(move || -> Result<(), Error> {
            items.chunks(7).try_for_each(|part| to.send(part, &policy).map(drop))
            // Dropping the producer closes the ring, which ends the kernel.
        });
        let (mut seen, mut some) = (Vec::new(), [0; 13]);
        let received = loop {
            match from.receive(&mut some, &policy) {
                Ok(0) => break Ok(()),
                Ok(count) => seen.extend_from_slice(&some[..count]),
                Err(error) => break Err(error),
            }
        };
        // Closing releases a sender that waits for room.
        from.close();
        let sent = sender.join().map_err(|_| Trouble::from("the sender panicked"))?;
        received?;
        sent?;
        let bytes = |items: &[u64]| items.iter().flat_map(|item| item.to_ne_bytes()).collect::<Vec<u8>>();
        hands.same("a ring's items", &bytes(&seen), &bytes(items))
    })
}
