//! Reconstructs which regions and blocks a pool had at which time, from its trace and its final snapshot.

use cuda_mem::pool::{BlockState, Snapshot};
use cuda_mem::trace::{Action, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The history of a pool. Times are in nanoseconds since the trace began.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) regions: Vec<RegionLife>,
    pub(super) marks: Vec<Mark>,
    /// Number of allocations that lie in no known region.
    pub(super) elsewhere: u64,
}

/// A region from its allocation to its release.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RegionLife {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) blocks: Vec<BlockLife>,
}

/// A block from its allocation to its free.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BlockLife {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Whether the block existed when the trace began.
    pub(super) older: bool,
    /// Whether the block still exists.
    pub(super) live: bool,
    pub(super) stream: Option<u64>,
    pub(super) name: Option<Arc<str>>,
}

/// An event at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) time: u64,
    pub(super) action: Action,
    pub(super) size: u64,
    pub(super) stream: u64,
}

/// Where a live block is recorded: the index of its region, and its index in the region.
type Place = (usize, usize);

/// Reconstructs the history.
pub(super) fn of(snapshot: &Snapshot, trace: &Trace) -> History {
    let (start, end) = match (trace.events.first(), trace.events.last()) {
        (Some(first), Some(last)) => (first.time_ns, last.time_ns.max(first.time_ns.saturating_add(1))),
        _ => (0, 1),
    };
    let start = start.min(end - 1);
    let mut history = History { start, end, regions: Vec::new(), marks: Vec::new(), elsewhere: 0 };
    // The regions that exist at this time, by address.
    let mut open: BTreeMap<u64, usize> = BTreeMap::new();
    for (address, size) in at_first(snapshot, trace) {
        history.open(&mut open, address, size, start);
    }
    let mut live: BTreeMap<u64, Place> = BTreeMap::new();
    for event in &trace.events {
        let now = event.time_ns;
        match event.action {
            Action::Grow => history.open(&mut open, event.address, event.size, now),
            Action::Release => {
                if let Some(region) = open.remove(&event.address) {
                    history.regions[region].until = now;
                }
            }
            Action::Allocate => {
                let name = event.name.clone();
                match history.add(&open, event.address, event.size, now) {
                    Some((place, block)) => {
                        (block.stream, block.name) = (Some(event.stream), name);
                        live.insert(event.address, place);
                    }
                    None => history.elsewhere += 1,
                }
            }
            Action::Free => {
                let place = live.remove(&event.address).or_else(|| {
                    let (place, block) = history.add(&open, event.address, event.size, start)?;
                    block.older = true;
                    Some(place)
                });
                if let Some((region, block)) = place {
                    let block = &mut history.regions[region].blocks[block];
                    (block.until, block.live) = (now, false);
                }
            }
            Action::FreeFailure => {}
            Action::OutOfMemory | Action::Wait => {
                history.marks.push(Mark { time: now, action: event.action, size: event.size, stream: event.stream });
            }
            _ => {}
        }
    }
    history.see_the_end(snapshot, &open, &live);
    history
}

/// The regions that existed when the trace began: address and size.
fn at_first(snapshot: &Snapshot, trace: &Trace) -> BTreeMap<u64, u64> {
    let mut first = BTreeMap::new();
    let regions = trace.events.iter().filter(|event| matches!(event.action, Action::Grow | Action::Release));
    for event in regions {
        first.entry(event.address).or_insert((event.action, event.size));
    }
    let released = first.iter().filter(|(_, (action, _))| *action == Action::Release);
    let mut there: BTreeMap<u64, u64> = released.map(|(address, (_, size))| (*address, *size)).collect();
    for region in snapshot.regions.iter().filter(|region| !first.contains_key(&region.address)) {
        there.insert(region.address, region.size);
    }
    there
}

impl History {
    fn open(&mut self, open: &mut BTreeMap<u64, usize>, address: u64, size: u64, from: u64) {
        open.insert(address, self.regions.len());
        self.regions.push(RegionLife { address, size, from, until: self.end, blocks: Vec::new() });
    }

    /// Adds a block that lives to the end, unless a later event frees it.
    fn add(
        &mut self,
        open: &BTreeMap<u64, usize>,
        address: u64,
        size: u64,
        from: u64,
    ) -> Option<(Place, &mut BlockLife)> {
        let (base, region) = open.range(..=address).next_back()?;
        let until = self.end;
        let place = *region;
        let region = self.regions.get_mut(place).filter(|region| address - base < region.size)?;
        let offset = address - base;
        let size = size.min(region.size - offset);
        let from = from.max(region.from);
        region.blocks.push(BlockLife { offset, size, from, until, older: false, live: true, stream: None, name: None });
        let block = region.blocks.len() - 1;
        region.blocks.last_mut().map(|life| ((place, block), life))
    }

    /// Adds what the trace does not contain: blocks that existed all the time, and names that were given later.
    fn see_the_end(&mut self, snapshot: &Snapshot, open: &BTreeMap<u64, usize>, live: &BTreeMap<u64, Place>) {
        for region in &snapshot.regions {
            for block in region.blocks.iter().filter(|block| block.state == BlockState::Allocated) {
                let address = region.address.saturating_add(block.offset);
                let name = block.name.as_deref().map(Arc::from);
                if let Some((region, place)) = live.get(&address) {
                    let known = &mut self.regions[*region].blocks[*place].name;
                    *known = known.take().or(name);
                } else if let Some((_, life)) = self.add(open, address, block.size, self.start) {
                    (life.older, life.name, life.stream) = (true, name, block.stream);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A snapshot with a trace: events are action, time, address, size.
    fn history(regions: serde_json::Value, events: &[(&str, u64, u64, u64)]) -> History {
        let event = |(action, time, address, size): &(&str, u64, u64, u64)| json!({"time_ns": time, "thread": 1, "action": action, "address": address, "size": size, "stream": 5});
        let trace: Trace =
            serde_json::from_value(json!({"lost": 0, "events": events.iter().map(event).collect::<Vec<_>>()})).unwrap();
        let snapshot = super::super::picture::tests::snapshot(regions, None);
        of(&snapshot, &trace)
    }

    fn lives(region: &RegionLife) -> Vec<(u64, u64, u64, u64, bool, bool)> {
        region.blocks.iter().map(|one| (one.offset, one.size, one.from, one.until, one.older, one.live)).collect()
    }

    #[test]
    fn blocks_live_from_their_allocation_to_their_free() {
        let region = json!([{"address": 1000, "size": 512, "blocks": [
            {"offset": 0, "size": 256, "state": "allocated", "stream": null, "name": "late"},
            {"offset": 256, "size": 256, "state": "free", "stream": null, "name": null}]}]);
        let history = history(
            region,
            &[
                ("grow", 10, 1000, 512),
                ("allocate", 20, 1256, 100),
                ("free", 30, 1256, 100),
                ("allocate", 40, 1000, 50),
                ("wait", 45, 1000, 50),
                ("out_of_memory", 50, 0, 9),
            ],
        );
        assert_eq!((history.start, history.end, history.elsewhere), (10, 50, 0));
        assert_eq!(history.regions.len(), 1);
        assert_eq!(lives(&history.regions[0]), [(256, 100, 20, 30, false, false), (0, 50, 40, 50, false, true)]);
        assert_eq!(history.regions[0].blocks[1].name.as_deref(), Some("late"));
        let marks: Vec<_> = history.marks.iter().map(|mark| (mark.time, mark.action)).collect();
        assert_eq!(marks, [(45, Action::Wait), (50, Action::OutOfMemory)]);
    }

    #[test]
    fn what_is_older_than_the_trace_is_there_from_its_beginning() {
        let region = json!([{"address": 1000, "size": 512, "blocks": [
            {"offset": 256, "size": 256, "state": "allocated", "stream": null, "name": null}]}]);
        let events =
            [("free", 10, 1000, 256), ("allocate", 15, 9000, 9), ("release", 20, 4000, 64), ("grow", 30, 4000, 128)];
        let history = history(region, &events);
        let spans: Vec<_> = history.regions.iter().map(|one| (one.address, one.size, one.from, one.until)).collect();
        assert_eq!(spans, [(1000, 512, 10, 30), (4000, 64, 10, 20), (4000, 128, 30, 30)]);
        assert_eq!(lives(&history.regions[0]), [(0, 256, 10, 10, true, false), (256, 256, 10, 30, true, true)]);
        assert_eq!(history.elsewhere, 1);
    }

    #[test]
    fn an_empty_trace_is_a_moment() {
        let history = history(json!([]), &[]);
        assert_eq!((history.start, history.end, history.regions.len()), (0, 1, 0));
    }
}
