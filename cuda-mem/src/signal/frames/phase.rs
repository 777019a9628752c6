//! Decides who may access an open frame, and when its waiters are released. Policy without CUDA and without `unsafe`.

/// The CPU's state of a slot.
///
/// The ring may be dropped while its frame is open, on another thread or forgotten. The frame's waiters are then
/// released, but never while the CPU writes the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlotPhase {
    /// No frame is open, and the waiters of the last one are released.
    #[default]
    Shut,
    /// A frame is open, and the CPU may begin to write it.
    Open,
    /// The CPU writes the frame.
    Writing,
    /// The CPU writes the frame, and the ring was dropped meanwhile.
    Condemned,
}

/// Whether the caller must release the frame's waiters now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRelease {
    Now,
    No,
}

impl SlotPhase {
    /// A frame begins.
    pub fn open(&mut self) {
        debug_assert_eq!(*self, SlotPhase::Shut);
        *self = SlotPhase::Open;
    }

    /// Whether the CPU still has the frame.
    pub fn is_open(self) -> bool {
        self != SlotPhase::Shut
    }

    /// The CPU is about to write. Returns false, which forbids the write, if the ring was dropped.
    pub fn begin_write(&mut self) -> bool {
        let open = self.is_open();
        if open {
            *self = SlotPhase::Writing;
        }
        open
    }

    /// The CPU has written.
    pub fn end_write(&mut self) -> SlotRelease {
        let condemned = *self == SlotPhase::Condemned;
        *self = if condemned { SlotPhase::Shut } else { SlotPhase::Open };
        if condemned { SlotRelease::Now } else { SlotRelease::No }
    }

    /// The frame ends: it is published, or dropped.
    pub fn end(&mut self) -> SlotRelease {
        match core::mem::take(self) {
            SlotPhase::Shut => SlotRelease::No,
            SlotPhase::Open | SlotPhase::Writing | SlotPhase::Condemned => SlotRelease::Now,
        }
    }

    /// The ring is dropped.
    pub fn close(&mut self) -> SlotRelease {
        match *self {
            SlotPhase::Shut | SlotPhase::Condemned => SlotRelease::No,
            SlotPhase::Writing => {
                *self = SlotPhase::Condemned;
                SlotRelease::No
            }
            SlotPhase::Open => {
                *self = SlotPhase::Shut;
                SlotRelease::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of a frame owner's steps and the drop of the ring.
    #[test]
    fn waiters_are_released_once_and_never_while_the_cpu_writes() {
        // The owner's steps, in order. `close` comes before one of these, after all, or never.
        let write = ["begin", "end write"];
        for writes in 0..3 {
            let owner: Vec<&str> = write.iter().cycle().take(2 * writes).copied().chain(["end"]).collect();
            for close_at in 0..=owner.len() + 1 {
                let (mut phase, mut released, mut writing, mut refused) = (SlotPhase::default(), 0, false, false);
                phase.open();
                for (index, step) in owner.iter().chain(&["nothing"]).enumerate() {
                    if index == close_at && phase.close() == SlotRelease::Now {
                        assert!(!writing, "{writes} {close_at}");
                        released += 1;
                    }
                    let release = match *step {
                        "begin" => {
                            writing = phase.begin_write();
                            refused |= !writing;
                            assert_eq!(writing, released == 0, "the CPU writes what no device reads yet");
                            SlotRelease::No
                        }
                        "end write" if writing => {
                            writing = false;
                            phase.end_write()
                        }
                        "end" => phase.end(),
                        _ => SlotRelease::No,
                    };
                    released += usize::from(release == SlotRelease::Now);
                }
                assert_eq!(released, 1, "{writes} {close_at}");
                assert!(!phase.is_open());
                assert!(!refused || close_at < owner.len());
            }
        }
    }

    #[test]
    fn a_forgotten_frame_is_released_by_the_ring() {
        let mut phase = SlotPhase::default();
        phase.open();
        assert!(phase.begin_write());
        assert_eq!(phase.end_write(), SlotRelease::No);
        assert_eq!((phase.close(), phase.close()), (SlotRelease::Now, SlotRelease::No));
    }

    #[test]
    fn a_ring_releases_nothing_where_no_frame_is_open() {
        let mut phase = SlotPhase::default();
        assert_eq!(phase.close(), SlotRelease::No);
        assert_eq!(phase.end(), SlotRelease::No);
    }
}
