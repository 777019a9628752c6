//! Checks every small history with an oracle that knows which work runs before which: no stream gets a byte that work
//! of a former owner may still use. Also with a graph, whose work may run again until the graph ends, and with pages that
//! move to other addresses and are unmapped at the old ones.

use super::*;
use crate::timeline::Mark;
use crate::world::{self, Point, World, rebase};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

const STREAMS: usize = 3;
/// The work of a graph, for memory that is allocated and freed in its capture.
const GRAPH: usize = STREAMS;
/// Frees by stream 0 of memory that belongs to the graph.
const BESIDE: usize = STREAMS + 1;
const PAGES: usize = 3;
const DEPTH: usize = 8;
const DEPTH_WITH_MOVES: usize = 7;
const DEPTH_WITH_GRAPH: usize = 6;

/// Counts of the work of all streams and of the graph.
type Progress = world::Progress<{ STREAMS + 1 }>;

/// Streams and one graph.
#[derive(Clone, Debug)]
struct Driver {
    world: World<{ STREAMS + 1 }>,
    /// None without a graph.
    graph_has_ended: Option<bool>,
    /// Plants an error: the end of the capture is taken for the end of the graph.
    forgets_graph: bool,
}

impl StreamDriver for Driver {
    type Stream = usize;
    type Event = Point<{ STREAMS + 1 }>;
    type Error = ();

    fn record(&mut self, line: &usize) -> Result<Mark<Self::Event>, ()> {
        match (*line, self.graph_has_ended) {
            (GRAPH | BESIDE, Some(false)) if !self.forgets_graph => Ok(Mark::NotNow),
            (GRAPH, _) => Ok(Mark::Over),
            (BESIDE, _) => self.world.record(&0),
            (stream, _) => self.world.record(&stream),
        }
    }

    fn has_passed(&mut self, event: &Self::Event) -> Result<bool, ()> {
        self.world.has_passed(event)
    }

    fn wait(&mut self, line: &usize, event: &Self::Event) -> Result<bool, ()> {
        // A launch comes after nothing that was queued at the capture.
        if *line == GRAPH { Ok(false) } else { self.world.wait(line, event) }
    }

    fn retire(&mut self, _event: Self::Event) {}

    fn release(&mut self, _line: usize) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Page {
    /// The last work on the page, and the stream that freed it.
    Free { last: Progress, by: Option<usize> },
    /// Belongs to the block that begins at page `start`, with this home stream.
    Used { start: usize, home: usize, last: Progress },
    /// The page has moved away, and is still mapped here.
    Stale { last: Progress },
    /// Nothing is mapped here.
    Hole,
}

#[derive(Clone, Debug)]
struct ModelState {
    tags: Tags<usize, Point<{ STREAMS + 1 }>>,
    driver: Driver,
    pages: [Page; PAGES],
    /// The number of streams in use. Streams are interchangeable, so they are used in the order of their numbers.
    streams: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A stream gets these pages, and waits for their former work if it must.
    Allocate { stream: usize, start: usize, pages: usize },
    /// A stream gets these pages if their former work has passed.
    Look { stream: usize, start: usize, pages: usize },
    /// A stream frees the block that begins here. If it is not the home, it waits for the home and uses the block.
    Free { start: usize, stream: usize },
    /// Finishes all work of a stream.
    Complete { stream: usize },
    /// Queries the events of all streams.
    Settle,
    /// A stream's next work may use a free page at another address, where nothing is mapped.
    Move { stream: usize, from: usize, to: usize },
    /// A page is unmapped where it has moved away, if the tags say that no work uses it there.
    Unmap { page: usize },
    /// The graph and its executables are gone.
    EndGraph,
}

impl ModelState {
    fn new(planted: bool, with_graph: bool) -> Self {
        let tags = Tags { planted, ..Tags::new() };
        let pages = [Page::Free { last: Progress::default(), by: None }; PAGES];
        let driver = Driver { world: World::new(), graph_has_ended: with_graph.then_some(false), forgets_graph: false };
        Self { tags, driver, pages, streams: 0 }
    }

    /// With one address at which nothing is mapped.
    fn with_hole() -> Self {
        let mut start = Self::new(false, false);
        start.pages[PAGES - 1] = Page::Hole;
        start
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Settle];
        let graph = (self.driver.graph_has_ended == Some(false)).then_some(GRAPH);
        steps.extend(graph.map(|_| Step::EndGraph));
        let stale = (0..PAGES).filter(|page| matches!(self.pages[*page], Page::Stale { .. }));
        steps.extend(stale.map(|page| Step::Unmap { page }));
        for stream in (0..(self.streams + 1).min(STREAMS)).chain(graph) {
            for start in 0..PAGES {
                for pages in 1..=PAGES - start {
                    if self.pages[start..start + pages].iter().all(|page| matches!(page, Page::Free { .. })) {
                        steps.push(Step::Allocate { stream, start, pages });
                        if !self.is_ready(stream, start, pages) {
                            steps.push(Step::Look { stream, start, pages });
                        }
                    }
                }
                // Memory of the graph is freed in its capture, or by the first stream. Other memory is no graph's to free.
                match self.pages[start] {
                    Page::Used { start: first, home: GRAPH, .. } if first == start && matches!(stream, GRAPH | 0) => {
                        steps.push(Step::Free { start, stream });
                    }
                    Page::Used { start: first, home, .. } if first == start && home != GRAPH && stream != GRAPH => {
                        steps.push(Step::Free { start, stream });
                    }
                    _ => {}
                }
            }
            if stream < self.streams {
                steps.push(Step::Complete { stream });
            }
            let hole = (0..PAGES).find(|page| self.pages[*page] == Page::Hole);
            let free = (0..PAGES).filter(|page| matches!(self.pages[*page], Page::Free { .. }));
            steps.extend(hole.into_iter().flat_map(|to| free.clone().map(move |from| Step::Move { stream, from, to })));
        }
        steps
    }

    /// Carries out a step. The error names memory that was handed out too early, or refused without need.
    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Allocate { stream, start, pages } => {
                let (bytes, id) = self.wanted(stream, start, pages)?;
                if !self.tags.is_ready(&bytes, id) && self.tags.wait(&bytes, id, &mut self.driver) != Ok(true) {
                    let of_graph = |page: &Page| matches!(page, Page::Free { by: Some(GRAPH | BESIDE), .. });
                    let held = self.driver.graph_has_ended == Some(false) && self.pages.iter().any(of_graph);
                    return if stream == GRAPH || held {
                        Ok(())
                    } else {
                        Err("a wait that is possible was refused".into())
                    };
                }
                self.hand_out(stream, start, pages)?;
            }
            Step::Look { stream, start, pages } => {
                let (bytes, id) = self.wanted(stream, start, pages)?;
                self.tags.query(&bytes, id, &mut self.driver).map_err(|()| "the world gives no errors")?;
                if self.tags.is_ready(&bytes, id) {
                    self.hand_out(stream, start, pages)?;
                }
            }
            Step::Free { start, stream } => {
                let Page::Used { home, mut last, .. } = self.pages[start] else { return Ok(()) };
                let of_block = |page: &Page| matches!(page, Page::Used { start: first, .. } if *first == start);
                let pages = self.pages[start..].iter().take_while(|page| of_block(page)).count();
                self.use_streams_up_to(stream);
                if stream != home {
                    // A stream cannot wait for the launches that are still to come.
                    if home != GRAPH {
                        self.driver.world.join(stream, home);
                    }
                    self.driver.world.work(stream, &mut last);
                }
                let line = if home == GRAPH && stream != GRAPH { BESIDE } else { stream };
                self.pages[start..start + pages].fill(Page::Free { last, by: Some(line) });
                let id = self.tags.id(&line);
                self.tags.freed(start as u64..(start + pages) as u64, id);
            }
            Step::Complete { stream } => self.driver.world.complete(stream),
            Step::Settle => self.tags.settle(&mut self.driver).map_err(|()| "the world gives no errors")?,
            Step::Move { stream, from, to } => self.move_page(stream, from, to)?,
            Step::Unmap { page } => {
                let Page::Stale { last } = self.pages[page] else { return Ok(()) };
                let bytes = page as u64..page as u64 + 1;
                if self.tags.is_settled(&bytes) {
                    if !self.driver.world.is_done(&last) {
                        return Err(format!("page {page} was unmapped under work"));
                    }
                    self.tags.clear(bytes);
                    self.pages[page] = Page::Hole;
                }
            }
            Step::EndGraph => {
                self.driver.world.complete(GRAPH);
                self.driver.graph_has_ended = Some(true);
            }
        }
        self.rebase();
        Ok(())
    }

    /// As a heap that moves a chunk: the stream waits for the page's work, and the tag at the new address is the stream's.
    fn move_page(&mut self, stream: usize, from: usize, to: usize) -> Result<(), String> {
        let Page::Free { last, .. } = self.pages[from] else { return Ok(()) };
        self.use_streams_up_to(stream);
        let (old, id) = (from as u64..from as u64 + 1, self.tags.id(&stream));
        if self.tags.wait(&old, id, &mut self.driver) != Ok(true) {
            return Err("a wait that is possible was refused".into());
        }
        if !self.driver.world.is_before(&last, stream) {
            return Err(format!("page {from} was moved for stream {stream} before its work"));
        }
        let mut moved = last;
        let new = to as u64..to as u64 + 1;
        if !self.tags.is_settled(&old) {
            self.tags.freed(new, id);
            // Whoever comes later waits for all that the stream waits for.
            self.driver.world.work(stream, &mut moved);
        }
        self.pages[from] = Page::Stale { last };
        self.pages[to] = Page::Free { last: moved, by: Some(stream) };
        Ok(())
    }

    fn use_streams_up_to(&mut self, stream: usize) {
        if stream != GRAPH {
            self.streams = self.streams.max(stream + 1);
        }
    }

    fn wanted(&mut self, stream: usize, start: usize, pages: usize) -> Result<(Range<u64>, StreamId), String> {
        self.use_streams_up_to(stream);
        let (bytes, id) = (start as u64..(start + pages) as u64, self.tags.id(&stream));
        let own = |page: &Page| matches!(page, Page::Free { by, .. } if by.is_none_or(|by| by == stream));
        let ready = self.tags.is_ready(&bytes, id);
        if self.pages[start..start + pages].iter().all(own) && !ready {
            return Err(format!("stream {stream} is refused memory that it freed itself"));
        }
        let place = self.tags.place(&bytes, pages as u64, id);
        if place != ready.then_some(bytes.start) {
            return Err(format!("`place` returns {place:?} for all of {bytes:?}, but `is_ready` returns {ready}"));
        }
        Ok((bytes, id))
    }

    /// Whether the stream may use these pages at once. Then `Allocate` and `Look` are the same step.
    fn is_ready(&self, stream: usize, start: usize, pages: usize) -> bool {
        let known = self.tags.timelines.known(&stream);
        known.is_some_and(|id| self.tags.is_ready(&(start as u64..(start + pages) as u64), id))
    }

    fn hand_out(&mut self, stream: usize, start: usize, pages: usize) -> Result<(), String> {
        for page in &self.pages[start..start + pages] {
            match page {
                Page::Free { last, .. } if self.driver.world.is_before(last, stream) => {}
                page => return Err(format!("stream {stream} was given a page in use: {page:?}")),
            }
        }
        let mut last = Progress::default();
        self.driver.world.work(stream, &mut last);
        self.pages[start..start + pages].fill(Page::Used { start, home: stream, last });
        Ok(())
    }

    fn rebase(&mut self) {
        let done = self.driver.world.rebase();
        for timeline in self.tags.timelines.lines.iter_mut().flatten() {
            timeline.events.iter_mut().for_each(|(_, event)| rebase(&mut event.0, &done));
        }
        for page in &mut self.pages {
            if let Page::Free { last, .. } | Page::Used { last, .. } | Page::Stale { last } = page {
                rebase(last, &done);
            }
        }
    }

    /// A hash of all that the future depends on. In place of epochs and ids, it covers the event that each page's tag
    /// waits for, and the streams to which the page is open. Mirrored pages have the same hash.
    fn fingerprint(&self) -> u64 {
        let mut pages: Vec<_> = (0..PAGES as u64).map(|page| (self.page(page), self.tag(page))).collect();
        let same = |pair: &[Page]| match pair {
            [Page::Used { start, .. }, Page::Used { start: other, .. }] => start == other,
            _ => false,
        };
        let mut joined: Vec<bool> = self.pages.windows(2).map(same).collect();
        let one = fingerprint((&self.driver.world, self.driver.graph_has_ended, self.streams, &pages, &joined));
        pages.reverse();
        joined.reverse();
        one.min(fingerprint((&self.driver.world, self.driver.graph_has_ended, self.streams, &pages, &joined)))
    }

    /// A page, without its block's start.
    fn page(&self, page: u64) -> (u8, Option<usize>, Progress) {
        match self.pages[page as usize] {
            Page::Free { last, by } => (0, by, last),
            Page::Used { home, last, .. } => (1, Some(home), last),
            Page::Stale { last } => (2, None, last),
            Page::Hole => (3, None, Progress::default()),
        }
    }

    /// The tag of a page: its stream, its event, and which streams need not wait.
    fn tag(&self, page: u64) -> Option<(usize, Option<Point<{ STREAMS + 1 }>>, [bool; STREAMS + 1])> {
        // Tags of used bytes mean nothing.
        let free = matches!(self.pages[page as usize], Page::Free { .. } | Page::Stale { .. });
        let (_, tag) = self.tags.tags_in(&(page..page + 1)).next().filter(|_| free)?;
        let timelines = &self.tags.timelines;
        if timelines.is_past(tag.ticket) {
            return None;
        }
        let timeline = timelines.lines[tag.ticket.stream.index()].as_ref()?;
        let event = timeline.events.iter().find(|(closed, _)| *closed >= tag.ticket.epoch).map(|(_, event)| *event);
        let open_to = |stream| timelines.known(&stream).is_some_and(|id| timelines.is_open_to(tag.ticket, id));
        Some((timeline.stream, event, [0, 1, 2, GRAPH].map(open_to)))
    }
}

fn fingerprint(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Checks every history of `steps` steps. Returns the number of states, and the first history that breaks a rule.
fn check(start: ModelState, steps: usize) -> (usize, Option<(Vec<Step>, String)>) {
    let mut level = vec![(start, Vec::new())];
    // The search is breadth-first, so a state is first seen with the most steps left.
    let (mut states, mut seen) = (0, HashSet::new());
    for depth in 0..steps {
        let mut next = Vec::new();
        for (state, history) in &level {
            for step in state.steps() {
                let mut state = state.clone();
                let taken = state.take(step);
                if let Err(what) = taken {
                    return (states, Some(([history.clone(), vec![step]].concat(), what)));
                }
                states += 1;
                // Histories end after the last step.
                if depth + 1 < steps && seen.insert(state.fingerprint()) {
                    next.push((state, [history.clone(), vec![step]].concat()));
                }
            }
        }
        level = next;
    }
    (states, None)
}

#[test]
fn no_small_history_hands_out_memory_in_use() {
    let (states, broken) = check(ModelState::new(false, false), DEPTH);
    println!("{states} states in histories of {DEPTH} steps");
    assert_eq!(broken, None);
    assert!(states > 100_000, "{states}");
}

#[test]
fn no_small_history_moves_or_unmaps_memory_under_work() {
    let (states, broken) = check(ModelState::with_hole(), DEPTH_WITH_MOVES);
    println!("{states} states in histories of {DEPTH_WITH_MOVES} steps");
    assert_eq!(broken, None);
    assert!(states > 100_000, "{states}");
}

#[test]
fn no_small_history_with_a_graph_hands_out_its_memory() {
    let (states, broken) = check(ModelState::new(false, true), DEPTH_WITH_GRAPH);
    println!("{states} states in histories of {DEPTH_WITH_GRAPH} steps");
    assert_eq!(broken, None);
    assert!(states > 100_000, "{states}");
}

#[test]
fn the_check_finds_a_lost_dependency_across_streams() {
    let (_, broken) = check(ModelState::new(true, false), DEPTH);
    let (history, what) = broken.expect("the planted bug is found");
    println!("{history:?}: {what}");
    assert!(what.contains("was given a page in use"), "{what}");
    // A third stream must take the memory that the second stream seemed to own.
    let allocations = history.iter().filter(|step| matches!(step, Step::Allocate { .. } | Step::Look { .. })).count();
    assert!(allocations >= 3 && history.len() <= 5, "{history:?}");
}

#[test]
fn the_check_finds_a_graph_that_is_forgotten() {
    let mut start = ModelState::new(false, true);
    start.driver.forgets_graph = true;
    let (_, broken) = check(start, 6);
    let (history, what) = broken.expect("the planted error is found");
    assert!(what.contains("was given a page in use"), "{history:?}: {what}");
}

#[test]
fn one_event_stands_for_all_frees_before_it() {
    let mut world = World::<2>::new();
    let mut tags = Tags::new();
    let mut last = [0; 2];
    world.work(0, &mut last);
    let (one, two) = (tags.id(&0), tags.id(&1));
    tags.freed(0..10, one);
    tags.freed(20..30, one);
    assert_eq!(tags.wait(&(0..10), two, &mut world), Ok(true));
    assert!(tags.is_ready(&(20..30), two), "the wait was for both");
    assert_eq!(tags.timelines.lines[one.index()].as_ref().map(|line| line.events.len()), Some(1));
    tags.freed(40..50, one);
    assert!(!tags.is_ready(&(40..50), two), "freed after the event");
    assert_eq!(tags.place(&(0..50), 12, two), Some(0));
    assert_eq!(tags.place(&(25..60), 8, two), Some(25));
    assert_eq!(tags.place(&(35..60), 8, two), Some(50));
}

#[test]
fn streams_are_let_go_when_nothing_waits_for_them() {
    let mut world = World::<2>::new();
    let mut tags = Tags::new();
    let mut last = [0; 2];
    world.work(0, &mut last);
    let id = tags.id(&0);
    tags.freed(0..10, id);
    assert_eq!(tags.settle(&mut world), Ok(()));
    assert_eq!((tags.stream_count(), tags.is_settled(&(0..10))), (1, false));
    world.complete(0);
    assert_eq!(tags.settle(&mut world), Ok(()));
    assert_eq!((tags.stream_count(), tags.is_settled(&(0..10))), (0, true));
    assert_eq!(tags.id(&1), id, "the number is used again");
}
