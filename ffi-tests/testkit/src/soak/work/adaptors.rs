//! Adaptors, in stacks whose parts end in any order.

use crate::soak::{Done, Hands};
use cuda_mem::Buffer;
use cuda_mem::adaptor::{
    AfterFailure, Aligned, FailWhen, FailureInjection, Fallback, GuardOptions, Guarded, Limit, Recording, Retry,
    Statistics, Tracking, named,
};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource};
use std::time::{Duration, Instant};

/// Builds a stack of adaptors, uses it and checks its counts.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (stream, context) = (hands.stream()?, &hands.world.context);
    hands.doing("a stack of adaptors");
    let device = hands.chance(2);
    let plain: SharedResource =
        if device { DeviceMemory::new(context).share() } else { PinnedMemory::new(context).share() };
    let statistics = Statistics::new(&plain);
    let tracking = Tracking::new(&statistics);
    let mut top: SharedResource = tracking.share();
    for _ in 0..hands.below(5) {
        top = match hands.below(7) {
            0 => Limit::new(&top, 1 << 14).share(),
            1 => {
                let failing = FailureInjection::new(&top, [FailWhen::EveryNth(2 + hands.below(3) as u64)]);
                Retry::new(&failing, 3, |_, _| AfterFailure::Again).share()
            }
            2 => {
                let failing = FailureInjection::new(&top, [FailWhen::LargerThan(hands.below(2000))]);
                Fallback::new(&failing, &top)?.share()
            }
            3 => Aligned::new(&top, 512 << hands.below(4))?.share(),
            4 => Recording::new(&top, 16).share(),
            5 => Guarded::new(&top, &GuardOptions::default())?.share(),
            _ => Statistics::new(&top).share(),
        };
    }
    let mut live = Vec::new();
    let mut wrong = None;
    for number in 0..1 + hands.below(12) {
        let size = hands.size(2000);
        hands.doing("a block of a stack");
        match named("soak", || Buffer::filled(&top, size, number as u8, &stream)) {
            Ok(buffer) => live.push((buffer, number as u8)),
            Err(error) => wrong = Some(error),
        }
        if hands.chance(2) && !live.is_empty() {
            let (buffer, byte) = live.swap_remove(hands.below(live.len()));
            hands.same("a stack's block", &buffer.to_vec()?, &vec![byte; buffer.len()])?;
            buffer.close()?;
        }
    }
    drop(top);
    hands.doing("the end of a stack");
    live.clear();
    // If another thread captures the stream, the buffers are freed when that capture ends.
    let patience = Instant::now() + Duration::from_secs(10);
    let counted = || statistics.counts().bytes.current != 0 || !tracking.live().is_empty();
    while counted() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (counts, tracked) = (statistics.counts(), tracking.live());
    hands.ensure(counts.bytes.current == 0 && tracked.is_empty(), || {
        format!("a stack without blocks counts {counts:?} and tracks {tracked:?}")
    })?;
    wrong.map_or(Ok(()), |error| Err(error.into()))
}
