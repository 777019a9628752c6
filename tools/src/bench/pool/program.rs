//! The built-in trace: some steps of training a network, as a framework would allocate.

use cuda_mem::trace::{Action, Trace, TraceEvent};
use std::collections::BTreeMap;

/// The stream and the thread that compute, and those that load the next batch.
const COMPUTE: u64 = 1;
const LOAD: u64 = 2;

/// The program's events so far. Addresses are block numbers, which is enough for a replay.
#[derive(Default)]
struct Program {
    events: Vec<TraceEvent>,
    sizes: BTreeMap<u64, u64>,
    next: u64,
}

impl Program {
    fn note(&mut self, who: u64, action: Action, address: u64, size: u64) {
        let time_ns = 1000 * self.events.len() as u64;
        self.events.push(TraceEvent { time_ns, thread: who, action, address, size, stream: who, name: None });
    }

    fn allocate(&mut self, who: u64, size: u64) -> u64 {
        self.next += 1;
        self.sizes.insert(self.next, size);
        self.note(who, Action::Allocate, self.next, size);
        self.next
    }

    fn free(&mut self, who: u64, block: u64) {
        if let Some(size) = self.sizes.remove(&block) {
            self.note(who, Action::Free, block, size);
        }
    }
}

/// Weights stay allocated. Each step has a batch of another length, activations that are kept in the forward pass and
/// freed in the backward pass, workspaces that are freed at once, and gradients. Meanwhile another thread loads the
/// next batch on another stream; the computing thread frees it.
pub(super) fn trace(brief: bool) -> Trace {
    let (layers, steps, width) = if brief { (4, 5, 64) } else { (24, 40, 1024u64) };
    let mut program = Program::default();
    for _ in 0..layers {
        program.allocate(COMPUTE, 8 * width * width);
        program.allocate(COMPUTE, 4 * width);
    }
    let mut batch = program.allocate(LOAD, 4 * width * 100);
    for step in 0..steps {
        // Sequences differ in length.
        let length = 64 + step * 37 % 192;
        let mut kept = Vec::new();
        for layer in 0..layers {
            let workspace = program.allocate(COMPUTE, 2 * width * length + 512 * layer);
            for part in [2, 8, 2, 1] {
                kept.push(program.allocate(COMPUTE, part * width * length));
            }
            program.free(COMPUTE, workspace);
        }
        let next = program.allocate(LOAD, 4 * width * length);
        program.free(COMPUTE, batch);
        batch = next;
        let mut gradients = Vec::new();
        while let Some(activation) = kept.pop() {
            let workspace = program.allocate(COMPUTE, width * length + 256 * (kept.len() as u64 % 7));
            program.free(COMPUTE, activation);
            program.free(COMPUTE, workspace);
            if kept.len() % 4 == 0 {
                gradients.push(program.allocate(COMPUTE, 4 * width * width));
            }
        }
        gradients.into_iter().for_each(|gradient| program.free(COMPUTE, gradient));
    }
    Trace { lost: 0, events: program.events }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::trace::Plan;

    #[test]
    fn the_program_is_whole_and_the_same_each_time() {
        for brief in [true, false] {
            let plan = Plan::new(&trace(brief));
            assert_eq!((plan.unknown_frees, plan.missing_frees, plan.left_out), (0, 0, 0));
            assert_eq!((plan.streams, plan.threads), (2, 2));
            assert_eq!(trace(brief), trace(brief));
        }
        let full = Plan::new(&trace(false));
        assert!(full.operations.len() > 10_000 && full.peak_requested() < 2 << 30, "{}", full.peak_requested());
    }
}
