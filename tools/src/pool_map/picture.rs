//! The layout of the picture: a pool at one moment, or over time.

use super::history::{self, BlockLife, History, RegionLife};
use crate::bytes;
use cuda_mem::pool::{BlockSnapshot, BlockState, RegionSnapshot, Snapshot};
use cuda_mem::trace::{Action, Trace};

/// The width of the picture, and of the area between its margins.
const WIDTH: u32 = 1240;
const LEFT: f64 = 20.0;
const ACROSS: f64 = 1200.0;
/// The y position of the first region.
const TOP: f64 = 96.0;
/// The height of a region at one moment.
const BAR: f64 = 28.0;
/// The height of all regions together, over time, and the minimum height of one region.
const DOWN: f64 = 640.0;
const LEAST: f64 = 16.0;
/// The height of the caption above each region.
const CAPTION: f64 = 20.0;
/// Blocks that are narrower than this are drawn together with their neighbours.
const NARROW: f64 = 0.5;

/// A picture: rectangles, lines and text.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) title: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) shapes: Vec<Shape>,
    /// Start and end points.
    pub(super) lines: Vec<[f64; 4]>,
    pub(super) labels: Vec<Label>,
}

/// A rectangle with its description.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) fill: Fill,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) tip: String,
}

/// Text at a position.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) text: String,
}

/// What a rectangle represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Allocated,
    Freed,
    InCache,
    Pending,
    Free,
    Mixed,
    Wait,
    OutOfMemory,
}

impl Fill {
    pub(super) const ALL: [Self; 8] = [
        Self::Allocated,
        Self::Freed,
        Self::InCache,
        Self::Pending,
        Self::Free,
        Self::Mixed,
        Self::Wait,
        Self::OutOfMemory,
    ];

    /// The class in the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Freed => "freed",
            Self::InCache => "in-cache",
            Self::Pending => "pending",
            Self::Free => "free",
            Self::Mixed => "mixed",
            Self::Wait => "wait",
            Self::OutOfMemory => "out-of-memory",
        }
    }

    /// Colours that red-green colour-blind readers can tell apart.
    pub(super) fn colour(self) -> &'static str {
        match self {
            Self::Allocated => "#0072b2",
            Self::Freed => "#8fc1e3",
            Self::InCache => "#009e73",
            Self::Pending => "#e69f00",
            Self::Free => "#eeeeee",
            Self::Mixed => "#aaaaaa",
            Self::Wait => "#cc79a7",
            Self::OutOfMemory => "#d55e00",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Freed => "freed since",
            Self::InCache => "kept by a thread cache for its stream",
            Self::Pending => "free once its stream's work is done",
            Self::Free => "free",
            Self::Mixed => "several small ones",
            Self::Wait => "a stream was told to wait",
            Self::OutOfMemory => "out of memory",
        }
    }
}

impl From<BlockState> for Fill {
    fn from(state: BlockState) -> Self {
        match state {
            BlockState::Allocated => Self::Allocated,
            BlockState::InCache => Self::InCache,
            BlockState::Pending => Self::Pending,
            _ => Self::Free,
        }
    }
}

/// Draws a pool, over time if its snapshot contains a trace.
pub(super) fn of(snapshot: &Snapshot) -> Picture {
    let figures = &snapshot.statistics;
    let mut picture = Picture {
        title: format!("Pool of device {}", snapshot.device),
        width: WIDTH,
        height: 0,
        shapes: Vec::new(),
        lines: Vec::new(),
        labels: Vec::new(),
    };
    picture.label(LEFT, 24.0, format!("Pool of device {}", snapshot.device));
    let facts = format!(
        "requested {}, allocated {}, reserved {} in {} regions; peaks: in blocks {}, reserved {}; largest free {}, \
         fragmentation {:.1}%",
        bytes::size(figures.requested.current),
        bytes::size(figures.allocated.current),
        bytes::size(figures.reserved.current),
        figures.regions.current,
        bytes::size(figures.active.peak),
        bytes::size(figures.reserved.peak),
        bytes::size(figures.largest_free),
        figures.fragmentation * 100.0
    );
    picture.label(LEFT, 42.0, facts);
    let bottom = match snapshot.trace.as_ref().filter(|trace| !trace.events.is_empty()) {
        None => picture.moment(&snapshot.regions),
        Some(trace) => picture.over_time(&history::of(snapshot, trace), trace),
    };
    picture.height = (bottom + 20.0).ceil() as u32;
    picture
}

impl Picture {
    fn label(&mut self, x: f64, y: f64, text: String) {
        self.labels.push(Label { x, y, text });
    }

    fn legend(&mut self, fills: &[Fill]) {
        let mut x = LEFT;
        for fill in fills {
            let tip = fill.words().to_owned();
            self.shapes.push(Shape { fill: *fill, x, y: 54.0, width: 12.0, height: 12.0, tip: tip.clone() });
            // About seven units for each letter.
            let width = 7.0 * tip.len() as f64;
            self.label(x + 17.0, 64.0, tip);
            x += width + 34.0;
        }
    }

    /// Draws each region as a bar. Its length is proportional to its share of the largest region.
    fn moment(&mut self, regions: &[RegionSnapshot]) -> f64 {
        self.legend(&[Fill::Allocated, Fill::InCache, Fill::Pending, Fill::Free, Fill::Mixed]);
        let largest = regions.iter().map(|region| region.size).max().unwrap_or(1).max(1);
        let mut y = TOP;
        if regions.is_empty() {
            self.label(LEFT, y, "the pool has no regions".to_owned());
        }
        for region in regions {
            self.label(LEFT, y, format!("{:#x}, {}", region.address, bytes::size(region.size)));
            let unit = ACROSS / largest as f64;
            for piece in gathered(&region.blocks, NARROW / unit) {
                self.shapes.push(Shape {
                    fill: piece.fill,
                    x: LEFT + piece.offset as f64 * unit,
                    y: y + 6.0,
                    width: piece.size as f64 * unit,
                    height: BAR,
                    tip: piece.tip,
                });
            }
            y += BAR + CAPTION + 6.0;
        }
        y
    }

    /// Time runs to the right. Each region is a band whose addresses run downwards, and each block extends from its
    /// allocation to its free.
    fn over_time(&mut self, history: &History, trace: &Trace) -> f64 {
        self.legend(&[Fill::Allocated, Fill::Freed, Fill::Free, Fill::Wait, Fill::OutOfMemory]);
        let length = (history.end - history.start) as f64;
        let at = |time: u64| LEFT + (time.clamp(history.start, history.end) - history.start) as f64 / length * ACROSS;
        let total = history.regions.iter().map(|region| region.size as f64).sum::<f64>().max(1.0);
        let mut y = TOP;
        let mut notes = vec![format!("{} events", trace.events.len())];
        if trace.lost > 0 {
            notes.push(format!("{} older ones are lost", trace.lost));
        }
        if history.elsewhere > 0 {
            notes.push(format!("{} allocations outside of the known regions are not shown", history.elsewhere));
        }
        self.label(LEFT, 84.0, notes.join(", "));
        for region in &history.regions {
            y += CAPTION;
            let height = (region.size as f64 / total * DOWN).max(LEAST);
            self.label(at(region.from), y - 4.0, format!("{:#x}, {}", region.address, bytes::size(region.size)));
            self.band(region, history.start, y, height, at);
            y += height;
        }
        self.marks(history, y, at);
        y += 12.0;
        self.lines.push([LEFT, y, LEFT + ACROSS, y]);
        for tick in 0..=10u32 {
            let x = LEFT + ACROSS * f64::from(tick) / 10.0;
            self.lines.push([x, y, x, y + 5.0]);
            let time = history.start as f64 + length * f64::from(tick) / 10.0;
            self.label(x - if tick == 10 { 60.0 } else { 0.0 }, y + 18.0, bytes::duration(time / 1e9));
        }
        y + 20.0
    }

    fn band(&mut self, region: &RegionLife, start: u64, y: f64, height: f64, at: impl Fn(u64) -> f64) {
        let time = |time: u64| bytes::duration(time.saturating_sub(start) as f64 / 1e9);
        let shape = |fill, from: u64, until: u64, top: f64, height: f64, tip| {
            // Even a short interval must be visible.
            let (x, width) = (at(from), (at(until) - at(from)).max(0.3));
            Shape { fill, x, y: top, width, height, tip }
        };
        let tip = format!(
            "region {:#x}: {} bytes\nfrom {} to {}",
            region.address,
            region.size,
            time(region.from),
            time(region.until)
        );
        self.shapes.push(shape(Fill::Free, region.from, region.until, y, height, tip));
        let unit = height / region.size.max(1) as f64;
        for block in &region.blocks {
            let fill = if block.live { Fill::Allocated } else { Fill::Freed };
            let top = y + block.offset as f64 * unit;
            let tip = life(region, block, time);
            self.shapes.push(shape(fill, block.from, block.until, top, (block.size as f64 * unit).max(0.3), tip));
        }
    }

    fn marks(&mut self, history: &History, bottom: f64, at: impl Fn(u64) -> f64) {
        for mark in &history.marks {
            let fill = if mark.action == Action::Wait { Fill::Wait } else { Fill::OutOfMemory };
            let tip = format!("{}: {} bytes, stream {:#x}", fill.words(), mark.size, mark.stream);
            let x = at(mark.time) - 0.75;
            self.shapes.push(Shape { fill, x, y: TOP, width: 1.5, height: bottom - TOP, tip });
        }
    }
}

/// The description of a block over time.
fn life(region: &RegionLife, block: &BlockLife, time: impl Fn(u64) -> String) -> String {
    let mut tip = String::new();
    if let Some(name) = &block.name {
        tip = format!("{name}\n");
    }
    tip += &format!("{} bytes at {:#x}", block.size, region.address.saturating_add(block.offset));
    if let Some(stream) = block.stream {
        tip += &format!(", stream {stream:#x}");
    }
    let from = if block.older { "since before the trace".to_owned() } else { format!("from {}", time(block.from)) };
    let until = if block.live { "still there".to_owned() } else { format!("freed at {}", time(block.until)) };
    format!("{tip}\n{from}, {until}")
}

/// A piece of a bar: one block, or several blocks that are too narrow to be visible.
struct Piece {
    fill: Fill,
    offset: u64,
    size: u64,
    tip: String,
}

/// Joins neighbouring blocks that are smaller than `narrow` bytes into one piece.
fn gathered(blocks: &[BlockSnapshot], narrow: f64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = blocks;
    while let Some(first) = rest.first() {
        let mut size = 0u64;
        let few = |block: &&BlockSnapshot| {
            // A group ends as soon as it is wide enough to be visible.
            let takes = (block.size as f64) < narrow && (size as f64) < narrow;
            size = size.saturating_add(block.size);
            takes
        };
        let count = rest.iter().take_while(few).count();
        let (group, after) = rest.split_at(count.max(1));
        rest = after;
        // A file may contain any sizes.
        let size = group.iter().fold(0u64, |size, block| size.saturating_add(block.size));
        let same = group.iter().all(|block| block.state == first.state);
        let fill = if same { first.state.into() } else { Fill::Mixed };
        let tip = match group {
            [block] => block_tip(block),
            _ => {
                let allocated = group.iter().filter(|block| block.state == BlockState::Allocated).count();
                format!("{} blocks and free ranges, {size} bytes; {allocated} of them allocated", group.len())
            }
        };
        pieces.push(Piece { fill, offset: first.offset, size, tip });
    }
    pieces
}

fn block_tip(block: &BlockSnapshot) -> String {
    let mut tip = String::new();
    if let Some(name) = &block.name {
        tip = format!("{name}\n");
    }
    tip += &format!("{}, {} bytes at offset {}", Fill::from(block.state).words(), block.size, block.offset);
    if let Some(stream) = block.stream {
        tip += &format!("\nstream {stream:#x}");
    }
    tip
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A snapshot with these regions, and optionally a trace.
    pub(in super::super) fn snapshot(regions: Value, trace: Option<Value>) -> Snapshot {
        let figure = json!({"current": 2, "peak": 3, "total": 4, "freed": 2});
        let mut value = json!({
            "format": 1, "device": 0, "granularity": 256, "regions": regions,
            "statistics": {
                "requested": figure, "allocated": figure, "blocks": figure, "active": figure, "inactive_split": figure,
                "reserved": figure, "regions": figure, "in_caches": 0, "pending": [], "largest_free": 0,
                "fragmentation": 0.5, "events_recorded": 0, "waits": 0, "retries": 0, "out_of_memory": 0
            }
        });
        if let Some(trace) = trace {
            value["trace"] = trace;
        }
        Snapshot::from_json(&value.to_string()).unwrap()
    }

    fn shapes(picture: &Picture) -> Vec<(Fill, i64, i64)> {
        let body = picture.shapes.iter().filter(|shape| shape.y >= TOP);
        body.map(|shape| (shape.fill, shape.x.round() as i64, shape.width.round() as i64)).collect()
    }

    fn block(offset: u64, size: u64, state: &str) -> Value {
        json!({"offset": offset, "size": size, "state": state, "stream": 16, "name": "n"})
    }

    #[test]
    fn a_moment_has_a_bar_for_each_region_and_blocks_to_scale() {
        let regions = json!([
            {"address": 4096, "size": 1000, "blocks":
                [block(0, 250, "allocated"), block(250, 250, "in_cache"), block(500, 500, "pending")]},
            {"address": 8192, "size": 500, "blocks": [block(0, 500, "free")]},
        ]);
        let picture = of(&snapshot(regions, None));
        let (allocated, cached, pending) =
            ((Fill::Allocated, 20, 300), (Fill::InCache, 320, 300), (Fill::Pending, 620, 600));
        assert_eq!(shapes(&picture), [allocated, cached, pending, (Fill::Free, 20, 600)]);
        let tips: Vec<_> = picture.shapes.iter().map(|shape| shape.tip.as_str()).collect();
        assert!(tips.contains(&"n\nallocated, 250 bytes at offset 0\nstream 0x10"), "{tips:?}");
        assert!(picture.labels.iter().any(|label| label.text == "0x1000, 1000 B"));
        assert!(picture.shapes.iter().all(|shape| shape.y + shape.height < f64::from(picture.height)));
    }

    #[test]
    fn pool_map_merges_narrow_blocks_without_losing_any() {
        let blocks: Vec<_> = (0..100_000u64)
            .map(|number| block(number * 256, 256, if number % 2 == 0 { "allocated" } else { "free" }))
            .collect();
        let picture = of(&snapshot(json!([{"address": 0, "size": 25_600_000, "blocks": blocks}]), None));
        let body: Vec<_> = picture.shapes.iter().filter(|shape| shape.y >= TOP).collect();
        assert!(body.len() > 1000 && body.len() < 3000, "{}", body.len());
        assert!((body.iter().map(|shape| shape.width).sum::<f64>() - ACROSS).abs() < 1e-3);
        assert!(body.iter().all(|shape| shape.fill == Fill::Mixed && shape.tip.contains("of them allocated")));
    }

    #[test]
    fn timeline_draws_block_lifetimes_and_event_marks() {
        let event = |time: u64, action: &str, address: u64, size: u64| json!({"time_ns": time, "thread": 1, "action": action, "address": address, "size": size, "stream": 7, "name": "layer"});
        let events = [
            event(0, "grow", 4096, 1000),
            event(250, "allocate", 4096, 500),
            event(500, "wait", 4596, 100),
            event(750, "free", 4096, 500),
            event(800, "allocate", 4596, 500),
            event(1000, "out_of_memory", 0, 5),
        ];
        let picture = of(&snapshot(json!([]), Some(json!({"lost": 9, "events": events}))));
        let expected = [
            (Fill::Free, 20, 1200),
            (Fill::Freed, 320, 600),
            (Fill::Allocated, 980, 240),
            (Fill::Wait, 619, 2),
            (Fill::OutOfMemory, 1219, 2),
        ];
        assert_eq!(shapes(&picture), expected);
        assert!(picture.labels.iter().any(|label| label.text == "6 events, 9 older ones are lost"));
        let tip = "layer\n500 bytes at 0x1000, stream 0x7\nfrom 0.250 us, freed at 0.750 us";
        assert!(picture.shapes.iter().any(|shape| shape.tip == tip));
        let bands: Vec<_> = picture.shapes.iter().filter(|shape| shape.y >= TOP).collect();
        assert_eq!((bands[1].y, bands[2].y), (bands[0].y, bands[0].y + bands[0].height / 2.0));
    }

    #[test]
    fn an_empty_pool_is_a_picture_too() {
        let picture = of(&snapshot(json!([]), None));
        assert!(picture.labels.iter().any(|label| label.text == "the pool has no regions"));
        assert!(picture.height > 90);
    }
}
