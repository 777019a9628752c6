//! Which copies of a batch a kernel makes, and which the driver. Pure.
//!
//! A copy engine needs 3 us and more for each piece. The kernel needs some 10 us for all of them, and then fills the link. The
//! limits are those of an H200 over PCIe Gen5, `docs/guide/copies.md` has the figures.

use super::BatchOptions;

/// What copies the pieces of a [`CopyBatch`](super::CopyBatch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchWay {
    /// What was measured as the fastest: a kernel copies many small pieces, the driver all others.
    #[default]
    Fastest,
    /// The driver alone, mostly by the device's copy engines. The processors stay with the program's kernels.
    CopyEngines,
    /// A kernel copies all pieces that it reaches, also a single one, whatever their sizes. It is the way for small work
    /// that must not wait behind large copies of other streams: a copy engine makes one copy after the other, so 64 KiB
    /// beside copies of 256 MiB take 10 ms by the engine, and 25 us by the kernel (99 of 100 within 36 us; H200).
    ///
    /// The driver copies what the kernel does not reach: managed and pageable memory, memory of other devices, and
    /// everything while the kernel [cannot be loaded](super::CopyBatch#kernel).
    Kernel,
}

/// Between which memories a piece is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Within the memory of the stream's device.
    Within,
    /// From page-locked host memory to that device.
    ToDevice,
    /// From that device to page-locked host memory.
    ToHost,
    /// All other memory: only the driver copies it.
    Other,
}

impl Link {
    /// The link between the two sides of a copy. None for memory that the kernel does not reach.
    pub fn of(to: Option<Place>, from: Option<Place>) -> Self {
        match (to, from) {
            (Some(Place::Device), Some(Place::Device)) => Link::Within,
            (Some(Place::Device), Some(Place::Host)) => Link::ToDevice,
            (Some(Place::Host), Some(Place::Device)) => Link::ToHost,
            _ => Link::Other,
        }
    }
}

/// Where memory lies that the kernel reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Device,
    /// Page-locked.
    Host,
}

/// The largest piece within a device. Larger ones fill it by one call each.
const MOST_WITHIN: usize = 256 << 10;
/// The largest piece over the link. With larger ones, the engines are as fast.
const MOST_OVER_LINK: usize = 64 << 10;
/// To the device, fewer pieces pay off if they are not larger than this on average.
const SMALL: usize = 16 << 10;

/// The largest piece that the kernel takes of each link; 0 if it takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken([usize; 3]);

impl Taken {
    pub const NONE: Self = Self([0; 3]);

    /// What the kernel takes of these pieces.
    pub fn of(options: BatchOptions, sizes: &[usize], links: &[Link]) -> Self {
        match options.way {
            _ if options.overlap_with_compute => Self::NONE,
            BatchWay::CopyEngines => Self::NONE,
            BatchWay::Kernel => Self([usize::MAX; 3]),
            BatchWay::Fastest => Self([Link::Within, Link::ToDevice, Link::ToHost].map(|link| {
                let most = if link == Link::Within { MOST_WITHIN } else { MOST_OVER_LINK };
                let pieces = || sizes.iter().zip(links).filter(|(size, of)| **of == link && (1..=most).contains(*size));
                let (count, bytes) = pieces().fold((0, 0), |(count, bytes), (size, _)| (count + 1, bytes + size));
                if count >= fewest(link, bytes, count) { most } else { 0 }
            })),
        }
    }

    /// Whether the kernel takes a piece.
    pub fn takes(self, link: Link, size: usize) -> bool {
        let most = match link {
            Link::Within => self.0[0],
            Link::ToDevice => self.0[1],
            Link::ToHost => self.0[2],
            Link::Other => 0,
        };
        (1..=most).contains(&size)
    }
}

/// From how many pieces on the kernel is faster.
fn fewest(link: Link, bytes: usize, count: usize) -> usize {
    match link {
        Link::Within => 4,
        Link::ToDevice if bytes / count.max(1) <= SMALL => 8,
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` pieces of a size the kernel takes.
    fn taken(way: BatchWay, link: Link, count: usize, size: usize) -> usize {
        let options = BatchOptions { way, ..BatchOptions::default() };
        let taken = Taken::of(options, &vec![size; count], &vec![link; count]);
        (0..count).filter(|_| taken.takes(link, size)).count()
    }

    #[test]
    fn many_small_pieces_go_by_the_kernel() {
        let fastest = |link, count, size| taken(BatchWay::Fastest, link, count, size);
        for (link, fewest, size) in [
            (Link::Within, 4, 1),
            (Link::Within, 4, 256 << 10),
            (Link::ToDevice, 8, 16 << 10),
            (Link::ToDevice, 16, (16 << 10) + 1),
            (Link::ToDevice, 16, 64 << 10),
            (Link::ToHost, 16, 512),
            (Link::ToHost, 16, 64 << 10),
        ] {
            assert_eq!(fastest(link, fewest, size), fewest, "{link:?}, {size}");
            assert_eq!(fastest(link, 5000, size), 5000, "{link:?}, {size}");
            assert_eq!(fastest(link, fewest - 1, size), 0, "{link:?}, {size}");
        }
        assert_eq!(fastest(Link::Within, 5000, (256 << 10) + 1), 0);
        assert_eq!(fastest(Link::ToHost, 5000, (64 << 10) + 1), 0);
        assert_eq!(fastest(Link::Other, 5000, 100), 0);
    }

    #[test]
    fn each_link_and_each_size_counts_for_itself() {
        let sizes = [100, 100, 100, 100, 1 << 20, 0, 100, 100];
        let within = Link::Within;
        let links = [within, within, within, within, within, within, Link::ToHost, Link::Other];
        let taken = Taken::of(BatchOptions::default(), &sizes, &links);
        let by_kernel: Vec<_> = links.iter().zip(sizes).map(|(link, size)| taken.takes(*link, size)).collect();
        assert_eq!(by_kernel, [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn the_program_chooses_the_way() {
        assert_eq!(taken(BatchWay::CopyEngines, Link::Within, 5000, 100), 0);
        assert_eq!(taken(BatchWay::Kernel, Link::ToHost, 1, 1 << 30), 1);
        assert_eq!(taken(BatchWay::Kernel, Link::Other, 5000, 100), 0);
        assert_eq!(taken(BatchWay::Kernel, Link::Within, 1, 0), 0);
        let options = BatchOptions { overlap_with_compute: true, ..BatchOptions::default() };
        assert_eq!(Taken::of(options, &[100; 50], &[Link::Within; 50]), Taken::NONE);
    }

    #[test]
    fn the_kernel_reaches_one_device_and_page_locked_memory() {
        use Place::{Device, Host};
        let links = [(Device, Device), (Device, Host), (Host, Device), (Host, Host)]
            .map(|(to, from)| Link::of(Some(to), Some(from)));
        assert_eq!(links, [Link::Within, Link::ToDevice, Link::ToHost, Link::Other]);
        assert_eq!(Link::of(None, Some(Device)), Link::Other);
        assert_eq!(Link::of(Some(Device), None), Link::Other);
    }
}
