//! The replayable part of a trace.

use super::{Action, Trace};
use std::collections::HashMap;

/// The replayable part of a trace. It refers to blocks, streams and threads by numbers from 0, in the order in which
/// the trace first names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The operations, in the order of the trace.
    pub operations: Vec<Operation>,
    /// The number of blocks over time.
    pub blocks: usize,
    /// The number of streams.
    pub streams: usize,
    /// The number of threads.
    pub threads: usize,
    /// Frees of blocks whose allocation is not in the trace. The plan omits them.
    pub unknown_frees: u64,
    /// Allocations at the address of a block whose free is not in the trace. The plan frees it there, on its stream.
    pub missing_frees: u64,
    /// Allocations of no bytes, and allocations that failed. The plan omits them.
    pub left_out: u64,
}

/// One operation of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The thread's number.
    pub thread: usize,
    /// The stream's number.
    pub stream: usize,
    /// What the operation does.
    pub step: Step,
}

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Allocates a block.
    Allocate {
        /// The block's number.
        block: usize,
        /// The size in bytes.
        size: usize,
    },
    /// Frees a block.
    Free {
        /// The block's number.
        block: usize,
    },
}

/// A block that is live at one point of a trace.
#[derive(Clone, Copy)]
struct Live {
    block: usize,
    stream: usize,
}

impl Plan {
    /// Makes a plan of any trace. Counts the events that it omits and the frees that it adds.
    pub fn new(trace: &Trace) -> Self {
        let mut plan = Self::default();
        let (mut streams, mut threads) = (HashMap::new(), HashMap::new());
        let mut live: HashMap<u64, Live> = HashMap::new();
        // The last free of each address until its next allocation, because the free may turn out to be refused.
        let mut freed: HashMap<u64, (usize, Live)> = HashMap::new();
        let mut operations: Vec<Option<Operation>> = Vec::new();
        for event in &trace.events {
            match event.action {
                Action::Allocate | Action::Free => {}
                Action::FreeFailure => {
                    if let Some((place, block)) = freed.remove(&event.address) {
                        operations[place] = None;
                        live.insert(event.address, block);
                    }
                    continue;
                }
                Action::OutOfMemory => {
                    plan.left_out += 1;
                    continue;
                }
                Action::Wait | Action::Grow | Action::Release => continue,
            }
            let thread = number_of(&mut threads, event.thread);
            let stream = number_of(&mut streams, event.stream);
            if event.action == Action::Free {
                match live.remove(&event.address) {
                    Some(known) => {
                        freed.insert(event.address, (operations.len(), known));
                        operations.push(Some(Operation { thread, stream, step: Step::Free { block: known.block } }));
                    }
                    None => plan.unknown_frees += 1,
                }
                continue;
            }
            let size = usize::try_from(event.size).ok().filter(|size| *size > 0);
            let Some(size) = size else {
                plan.left_out += 1;
                continue;
            };
            let block = plan.blocks;
            plan.blocks += 1;
            freed.remove(&event.address);
            if let Some(before) = live.insert(event.address, Live { block, stream }) {
                plan.missing_frees += 1;
                let step = Step::Free { block: before.block };
                operations.push(Some(Operation { thread, stream: before.stream, step }));
            }
            operations.push(Some(Operation { thread, stream, step: Step::Allocate { block, size } }));
        }
        plan.operations = operations.into_iter().flatten().collect();
        (plan.streams, plan.threads) = (streams.len(), threads.len());
        plan
    }

    /// The largest number of bytes that are allocated at one time.
    pub fn peak_requested(&self) -> u64 {
        let mut sizes = vec![0; self.blocks];
        let (mut current, mut peak) = (0u64, 0);
        for operation in &self.operations {
            match operation.step {
                Step::Allocate { block, size } => {
                    sizes[block] = size as u64;
                    current += size as u64;
                    peak = peak.max(current);
                }
                Step::Free { block } => current -= sizes[block],
            }
        }
        peak
    }
}

/// The number of the thread or stream that a trace calls `name`.
fn number_of(known: &mut HashMap<u64, usize>, name: u64) -> usize {
    let next = known.len();
    *known.entry(name).or_insert(next)
}

#[cfg(test)]
mod tests {
    use super::super::TraceEvent;
    use super::*;

    fn plan(events: &[(u64, Action, u64, u64, u64)]) -> Plan {
        let event = |&(thread, action, address, size, stream): &(u64, Action, u64, u64, u64)| TraceEvent {
            time_ns: 0,
            thread,
            action,
            address,
            size,
            stream,
            name: None,
        };
        Plan::new(&Trace { lost: 0, events: events.iter().map(event).collect() })
    }

    fn allocate(thread: usize, stream: usize, block: usize, size: usize) -> Operation {
        Operation { thread, stream, step: Step::Allocate { block, size } }
    }

    fn free(thread: usize, stream: usize, block: usize) -> Operation {
        Operation { thread, stream, step: Step::Free { block } }
    }

    #[test]
    fn blocks_streams_and_threads_are_numbered_as_they_come() {
        let plan = plan(&[
            (70, Action::Grow, 0, 1 << 20, 0),
            (70, Action::Allocate, 0x10, 100, 7),
            (71, Action::Allocate, 0x20, 50, 8),
            (71, Action::Free, 0x10, 100, 8),
            (70, Action::Wait, 0x10, 30, 7),
            (70, Action::Allocate, 0x10, 30, 7),
            (70, Action::Release, 0, 1 << 20, 0),
        ]);
        assert_eq!(
            plan.operations,
            [allocate(0, 0, 0, 100), allocate(1, 1, 1, 50), free(1, 1, 0), allocate(0, 0, 2, 30)]
        );
        assert_eq!((plan.blocks, plan.streams, plan.threads, plan.peak_requested()), (3, 2, 2, 150));
        assert_eq!((plan.unknown_frees, plan.missing_frees, plan.left_out), (0, 0, 0));
    }

    #[test]
    fn plan_counts_missing_trace_events_and_plans_the_rest() {
        let plan = plan(&[
            (1, Action::Free, 0x10, 100, 7),
            (1, Action::Allocate, 0x20, 0, 7),
            (1, Action::OutOfMemory, 0, 9, 7),
            (1, Action::Allocate, 0x30, 8, 7),
            (1, Action::Allocate, 0x30, 16, 9),
            (1, Action::Free, 0x30, 16, 7),
        ]);
        assert_eq!(plan.operations, [allocate(0, 0, 0, 8), free(0, 0, 0), allocate(0, 1, 1, 16), free(0, 0, 1)]);
        assert_eq!((plan.unknown_frees, plan.missing_frees, plan.left_out), (1, 1, 2));
        assert_eq!(plan.peak_requested(), 16);
    }

    #[test]
    fn a_free_that_was_refused_did_not_happen() {
        let plan = plan(&[
            (1, Action::Allocate, 0x10, 8, 7),
            (1, Action::Free, 0x10, 8, 7),
            (2, Action::Allocate, 0x20, 4, 7),
            (1, Action::FreeFailure, 0x10, 8, 7),
            (1, Action::Free, 0x10, 8, 7),
        ]);
        assert_eq!(plan.operations, [allocate(0, 0, 0, 8), allocate(1, 0, 1, 4), free(0, 0, 0)]);
        assert_eq!(plan.peak_requested(), 12);
    }

    #[test]
    fn a_plan_of_any_trace_frees_only_what_it_has_allocated() {
        use proptest::prelude::*;
        let cases = if cfg!(miri) { 2 } else { 1000 };
        let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
        let event = (0u64..3, 0..Action::ALL.len(), 0u64..4, 0u64..3, 0u64..3);
        proptest!(config, |(events in prop::collection::vec(event, 0..40))| {
            let events: Vec<_> =
                events.into_iter().map(|(thread, action, address, size, stream)| (thread, Action::ALL[action], address, size, stream)).collect();
            let plan = plan(&events);
            let mut live = std::collections::HashSet::new();
            for operation in &plan.operations {
                prop_assert!(operation.thread < plan.threads && operation.stream < plan.streams);
                match operation.step {
                    Step::Allocate { block, size } => prop_assert!(size > 0 && block < plan.blocks && live.insert(block)),
                    Step::Free { block } => prop_assert!(live.remove(&block)),
                }
            }
            let _ = plan.peak_requested();
        });
    }
}
