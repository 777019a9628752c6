//! Which bytes of a pool are saved, and where they lie in host memory.

use core::ops::Range;

/// Free bytes between two blocks that are copied with them: a copy of this size takes 1 us, about what another call takes.
const GAP: u64 = 64 << 10;

/// Memory of the host, and the bytes of the pool that lie there, one behind the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub size: usize,
    pub parts: Vec<Range<u64>>,
}

impl Piece {
    /// The address after the last byte.
    pub fn end(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end)
    }
}

/// Divides the used bytes of runs of memory into pieces of at most `largest` bytes. The used ranges of each run are in order
/// of their addresses.
pub(super) fn plan(runs: impl IntoIterator<Item = Vec<Range<u64>>>, largest: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut add = |mut part: Range<u64>| {
        while !part.is_empty() {
            let size = pieces.last().map_or(largest, |piece| piece.size as u64);
            if size == largest {
                pieces.push(Piece { size: 0, parts: Vec::new() });
            }
            let Some(piece) = pieces.last_mut() else { return };
            let end = part.end.min(part.start + largest - piece.size as u64);
            piece.size += (end - part.start) as usize;
            piece.parts.push(part.start..end);
            part.start = end;
        }
    };
    for run in runs {
        let mut joined: Option<Range<u64>> = None;
        for used in run {
            match &mut joined {
                Some(part) if used.start - part.end <= GAP => part.end = used.end,
                _ => joined.replace(used).into_iter().for_each(&mut add),
            }
        }
        joined.into_iter().for_each(&mut add);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    type Bytes = (u64, u64);

    fn planned(runs: &[&[Bytes]], largest: u64) -> Vec<Piece> {
        plan(runs.iter().map(|run| run.iter().map(|(start, end)| *start..*end).collect()), largest)
    }

    fn piece(parts: &[Bytes]) -> Piece {
        let size = parts.iter().map(|(start, end)| end - start).sum::<u64>() as usize;
        Piece { size, parts: parts.iter().map(|(start, end)| *start..*end).collect() }
    }

    #[test]
    fn near_blocks_are_copied_together_but_never_across_runs() {
        let far = 10 + GAP + 1;
        assert_eq!(
            planned(&[&[(0, 5), (5, 6), (8, 10), (far, far + 4)]], 1 << 30),
            [piece(&[(0, 10), (far, far + 4)])]
        );
        assert_eq!(planned(&[&[(0, 5)], &[(5, 6)]], 1 << 30), [piece(&[(0, 5), (5, 6)])]);
        assert_eq!(planned(&[&[], &[]], 1 << 30), []);
        assert_eq!(planned(&[], 1 << 30), []);
    }

    #[test]
    fn pieces_are_full_but_the_last_one() {
        let full = [piece(&[(0, 10)]), piece(&[(10, 20)]), piece(&[(20, 25), (40, 44)])];
        assert_eq!(planned(&[&[(0, 25)], &[(40, 44)]], 10), full);
        assert_eq!(planned(&[&[(0, 10)], &[(20, 21)]], 10), [piece(&[(0, 10)]), piece(&[(20, 21)])]);
    }
}
