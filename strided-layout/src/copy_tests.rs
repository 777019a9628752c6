//! Compares patterns and plans with a loop over all elements. Vectors take the place of memory.

use crate::{
    How, Index, Order, Pattern, Place, Reach, Reached, Side, Step, StridedLayout, Strides, in_bytes, plan,
    size_of_temporary,
};
use proptest::prelude::*;

/// The offsets of all elements in C order, in bytes, by the definition.
fn places(layout: &StridedLayout) -> Vec<usize> {
    let places = layout.axes().fold(vec![layout.offset()], |starts, (extent, stride)| {
        starts.iter().flat_map(|start| (0..extent).map(move |index| start + index * stride)).collect()
    });
    places.into_iter().map(|place| place as usize * layout.item_size()).collect()
}

fn side(layout: &StridedLayout, reached: Reached) -> Side {
    let strides = Strides { offset: layout.byte_offset(), strides: layout.byte_strides().into() };
    Side { strides, reached, on_host: reached != Reached::Device(0) }
}

fn plan_of(to: &StridedLayout, from: &StridedLayout, ends: (Reached, Reached), kernels: bool) -> Vec<Step> {
    plan(to.shape(), to.item_size(), &side(to, ends.0), &side(from, ends.1), kernels)
}

fn hows(steps: &[Step]) -> Vec<How> {
    steps.iter().map(|step| step.how).collect()
}

/// Parts of a dense array without overlapping elements: any order, steps, directions and gaps. With `repeated`, some
/// axes repeat their elements, as only a source may.
fn part(shape: Vec<i64>, repeated: bool) -> impl Strategy<Value = StridedLayout> {
    let axes = shape.len();
    let one = (1..3_i64, any::<bool>(), 0..3_i64, any::<bool>());
    let order = Just((0..axes).collect::<Vec<_>>()).prop_shuffle();
    (prop::collection::vec(one, axes), order, prop_oneof![Just(1_usize), Just(4), Just(3)]).prop_map(
        move |(parts, order, item_size)| {
            let whole: Vec<i64> = shape.iter().zip(&parts).map(|(n, (step, _, gap, _))| n * step + gap).collect();
            let layout = StridedLayout::dense(&whole, item_size, Order::Axes(&order)).unwrap();
            let cut = |(n, (step, back, gap, once)): (&i64, &(i64, bool, i64, bool))| {
                let end = if *n == 0 { *gap } else { gap + (n - 1) * step + 1 };
                match (repeated && *once, *back) {
                    (true, _) => Index::from(0..1.min(*n)),
                    (_, false) => Index::from(*gap..end).step(*step),
                    (_, true) if *n == 0 => Index::from(0..0),
                    (_, true) => {
                        let last = gap + (n - 1) * step;
                        Index::Slice { start: Some(last), end: (*gap > 0).then(|| gap - 1), step: -step }
                    }
                }
            };
            let indices: Vec<Index> = shape.iter().zip(&parts).map(cut).collect();
            layout.sliced(&indices).unwrap().broadcast_to(&shape).unwrap()
        },
    )
}

fn pairs() -> impl Strategy<Value = (StridedLayout, StridedLayout)> {
    prop::collection::vec(prop_oneof![4 => 1..5_i64, 1 => 0..2_i64], 0..5)
        .prop_flat_map(|shape| (part(shape.clone(), false), part(shape, true)))
        .prop_map(|(to, from)| {
            // Gives the source the destination's item size.
            let from = StridedLayout::new(from.shape(), from.strides(), to.item_size())
                .and_then(|layout| layout.with_offset(from.offset()))
                .unwrap();
            (to, from)
        })
}

fn reached() -> impl Strategy<Value = Reached> {
    prop_oneof![Just(Reached::Host), Just(Reached::Everyone), Just(Reached::Device(0)), Just(Reached::Device(1))]
}

/// Runs the steps on vectors.
fn simulate(steps: &[Step], to: &mut [u8], from: &[u8]) {
    let all = [Place::HostTemporary, Place::SourceTemporary, Place::DestinationTemporary];
    let mut between = all.map(|place| (place, vec![0xee_u8; size_of_temporary(steps, place).unwrap_or(0)]));
    for step in steps {
        let source = match step.from {
            Place::Source => from.to_vec(),
            place => between.iter().find(|(other, _)| *other == place).unwrap().1.clone(),
        };
        let target: &mut [u8] = match step.to {
            Place::Destination => to,
            place => &mut between.iter_mut().find(|(other, _)| *other == place).unwrap().1,
        };
        let ((_, written), (_, read)) = (step.pattern.written(), step.pattern.read());
        assert!(written <= target.len() && read <= source.len(), "{step:?}");
        let width = step.pattern.width as usize;
        for (to, from) in step.pattern.starts() {
            target[to as usize..to as usize + width].copy_from_slice(&source[from as usize..from as usize + width]);
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn plans_copy_what_a_loop_copies((to, from) in pairs(), ends in (reached(), reached()), kernels: bool) {
        let source: Vec<u8> = (0..from.required_size().unwrap()).map(|n| (n % 251) as u8).collect();
        let mut expected = vec![0xaa; to.required_size().unwrap()];
        let mut found = expected.clone();
        for (place, origin) in places(&to).into_iter().zip(places(&from)) {
            expected[place..place + to.item_size()].copy_from_slice(&source[origin..origin + to.item_size()]);
        }
        let steps = plan_of(&to, &from, ends, kernels);
        simulate(&steps, &mut found, &source);
        prop_assert_eq!(found, expected, "{:?}", hows(&steps));
        prop_assert!(steps.len() <= 3);
        prop_assert!(kernels || steps.iter().all(|step| step.how != How::Kernel));
        // The processor of each step can address both sides of it.
        let alone = |place: Place| match place {
            Place::Source => ends.1,
            Place::Destination => ends.0,
            Place::HostTemporary => Reached::Host,
            Place::SourceTemporary => ends.1,
            Place::DestinationTemporary => ends.0,
        };
        for step in &steps {
            let device = |reached| matches!(reached, Reached::Device(_));
            let (to, from) = (alone(step.to), alone(step.from));
            match step.how {
                How::Processor => prop_assert!(!device(to) && !device(from)),
                How::Kernel => prop_assert!(to != Reached::Host && from != Reached::Host),
                How::Peer => prop_assert!(device(to) && device(from) && to != from),
                How::Run | How::Rows | How::Planes | How::Runs => prop_assert!(!(device(to) && device(from)) || to == from),
            }
        }
    }

    #[test]
    fn two_sides_overlap_only_where_the_check_says_so((to, from) in pairs(), apart in 0..40_u64) {
        let reach = |layout: &StridedLayout, base| {
            let side = side(layout, Reached::Host).strides;
            Reach::of(base, layout.shape(), layout.item_size(), &side)
        };
        let (Some(one), Some(other)) = (reach(&to, 1000), reach(&from, 1000 + apart)) else { return Ok(()) };
        let bytes = |layout: &StridedLayout, base: usize| -> std::collections::BTreeSet<usize> {
            places(layout).into_iter().flat_map(|place| base + place..base + place + layout.item_size()).collect()
        };
        let shared = !bytes(&to, 1000).is_disjoint(&bytes(&from, 1000 + apart as usize));
        prop_assert_eq!(shared, one.overlap(&other).is_some());
        prop_assert_eq!(one.overlap(&other).is_some(), other.overlap(&one).is_some());
    }
}

fn dense(shape: &[i64]) -> StridedLayout {
    StridedLayout::dense(shape, 4, Order::C).unwrap()
}

#[test]
fn interleaved_halves_and_columns_do_not_overlap() {
    let reach = |layout: &StridedLayout| {
        Reach::of(4096, layout.shape(), layout.item_size(), &side(layout, Reached::Host).strides).unwrap()
    };
    let apart = |a: &StridedLayout, b: &StridedLayout| reach(a).overlap(&reach(b)).is_none();
    let matrix = dense(&[10, 10]);
    let columns = |index: Index| matrix.sliced(&[Index::ALL, index]).unwrap();
    assert!(apart(&columns((..5).into()), &columns((5..).into())), "halves");
    assert!(apart(&columns(Index::ALL.step(2)), &columns(Index::from(1..).step(2))), "even and odd columns");
    assert!(!apart(&columns((..6).into()), &columns((5..).into())));
    assert!(!apart(&matrix, &matrix.permuted(&[1, 0]).unwrap()));
    assert_eq!(reach(&columns((..6).into())).overlap(&reach(&columns((5..).into()))), Some((4096 + 20, 4096 + 384)));
}

#[test]
fn patterns_are_merged_sorted_and_turned_round() {
    let simplest = |to: &StridedLayout, from: &StridedLayout| {
        let (to_side, from_side) = (side(to, Reached::Host).strides, side(from, Reached::Host).strides);
        let found = Pattern::simplest(to.shape(), to.item_size(), &to_side, &from_side).unwrap();
        let axes: Vec<_> = found.axes.iter().map(|axis| (axis.extent, axis.to, axis.from)).collect();
        (found.to, found.from, found.width, axes)
    };
    let cube = dense(&[4, 5, 6]);
    assert_eq!(simplest(&cube, &cube), (0, 0, 480, vec![]), "one run");
    let turned = cube.permuted(&[2, 0, 1]).unwrap();
    assert_eq!(simplest(&turned, &turned), (0, 0, 480, vec![]), "one run in any order of the axes");
    let back = cube.sliced(&[Index::reversed(), Index::reversed(), Index::reversed()]).unwrap();
    assert_eq!(simplest(&back, &back), (0, 0, 480, vec![]), "backwards on both sides");
    assert_eq!(simplest(&cube, &back), (0, 476, 4, vec![(120, 4, -4)]), "backwards on one side");
    let middle = dense(&[4, 8, 6]).sliced(&[Index::ALL, (1..6).into()]).unwrap();
    assert_eq!(simplest(&cube, &middle), (0, 24, 120, vec![(4, 120, 192)]), "rows");
    let repeated = dense(&[4, 1, 6]).broadcast_to(&[4, 5, 6]).unwrap();
    assert_eq!(simplest(&cube, &repeated), (0, 0, 24, vec![(4, 120, 24), (5, 24, 0)]), "repeated");
}

#[test]
fn copies_take_the_fewest_steps() {
    use How::{Kernel, Peer, Planes, Processor, Rows, Run, Runs};
    use Reached::{Everyone, Host};
    let (device, other) = (Reached::Device(0), Reached::Device(1));
    let matrix = dense(&[300, 200]);
    let wide = dense(&[300, 4000]);
    let columns = |layout: &StridedLayout, index: Index| layout.sliced(&[Index::ALL, index]).unwrap();
    let transposed = dense(&[200, 300]).permuted(&[1, 0]).unwrap();
    let band = columns(&dense(&[300, 250]), (..200).into());
    let narrow = columns(&dense(&[300, 250]), (..3).into());
    let thin = dense(&[300, 3]);
    let even = columns(&dense(&[300, 400]), Index::ALL.step(2));
    let backwards = columns(&matrix, Index::reversed());
    let all_back = backwards.sliced(&[Index::reversed()]).unwrap();
    let row = dense(&[1, 200]).broadcast_to(&[300, 200]).unwrap();
    let (small, row_target) = (dense(&[30, 20]), dense(&[300, 200]));
    let small_transposed = dense(&[20, 30]).permuted(&[1, 0]).unwrap();
    let big = dense(&[3, 2, 1 << 18]);
    let big_gaps = dense(&[3, 5, 1 << 19]).sliced(&[Index::ALL, Index::ALL.step(4), (..1 << 18).into()]).unwrap();
    let block = dense(&[20, 30, 40]).sliced(&[(2..12).into(), (5..25).into(), (3..33).into()]).unwrap();
    let cube = dense(&[10, 20, 30]);
    let leaning = StridedLayout::new(&[10, 20, 30], &[1201, 40, 1], 4).unwrap();
    for (name, to, from, ends, with_kernels, without) in [
        ("a block of a cube", &cube, &block, (Host, device), &[Planes][..], &[Planes][..]),
        ("to a block of a cube", &block, &cube, (device, Host), &[Planes], &[Planes]),
        ("a block of a cube", &cube, &block, (device, device), &[Kernel], &[Planes]),
        ("planes that begin within rows", &cube, &leaning, (Host, device), &[Kernel, Run], &[Runs, Run]),
        ("a run", &matrix, &matrix, (device, device), &[Run], &[Run]),
        ("a run", &matrix, &matrix, (device, Host), &[Run], &[Run]),
        ("a run", &matrix, &matrix, (Host, Host), &[Processor], &[Processor]),
        ("a run", &matrix, &matrix, (device, other), &[Peer], &[Peer]),
        ("a run in another order", &transposed, &transposed, (Host, device), &[Run], &[Run]),
        ("rows", &matrix, &band, (device, device), &[Kernel], &[Rows]),
        ("wide rows", &wide, &columns(&dense(&[300, 5000]), (..4000).into()), (device, device), &[Kernel], &[Rows]),
        ("rows", &matrix, &band, (Host, device), &[Rows], &[Rows]),
        ("rows", &band, &matrix, (device, Host), &[Rows], &[Rows]),
        ("narrow rows up", &narrow, &thin, (device, Host), &[Run, Kernel], &[Run, Rows]),
        ("narrow rows from the host", &thin, &narrow, (device, Host), &[Processor, Run], &[Processor, Run]),
        ("narrow rows down", &thin, &narrow, (Host, device), &[Kernel, Run], &[Rows, Run]),
        ("a transpose", &matrix, &transposed, (device, device), &[Kernel], &[Runs]),
        ("a transpose", &matrix, &transposed, (device, Host), &[Run, Kernel], &[Processor, Run]),
        ("a transpose", &matrix, &transposed, (Host, device), &[Kernel, Run], &[Run, Processor]),
        ("a small transpose", &small, &small_transposed, (device, Host), &[Processor, Run], &[Processor, Run]),
        ("a small transpose", &small, &small_transposed, (Host, device), &[Run, Processor], &[Run, Processor]),
        ("a transpose", &matrix, &transposed, (Everyone, device), &[Kernel], &[Runs]),
        ("a transpose", &matrix, &transposed, (device, other), &[Peer, Kernel], &[Peer, Runs]),
        ("every other", &matrix, &even, (device, device), &[Kernel], &[Rows]),
        ("every other", &matrix, &even, (Host, device), &[Kernel, Run], &[Rows, Run]),
        ("every other", &even, &even, (device, other), &[Kernel, Peer, Kernel], &[Rows, Peer, Rows]),
        ("every other both ways", &even, &even, (Host, device), &[Kernel, Run, Processor], &[Rows, Run, Processor]),
        ("every other both ways", &even, &even, (device, Host), &[Processor, Run, Kernel], &[Processor, Run, Rows]),
        ("backwards", &all_back, &matrix, (device, Host), &[Run, Kernel], &[Processor, Run]),
        ("backwards", &matrix, &all_back, (Host, device), &[Kernel, Run], &[Run, Processor]),
        ("a row repeated", &matrix, &row, (device, Host), &[Run, Kernel], &[Run, Runs]),
        ("a row repeated", &row_target, &row, (Host, device), &[Run, Processor], &[Run, Processor]),
        ("few long runs", &big, &big_gaps, (Host, device), &[Runs], &[Runs]),
    ] {
        assert_eq!(hows(&plan_of(to, from, ends, true)), with_kernels, "{name} {ends:?}");
        assert_eq!(hows(&plan_of(to, from, ends, false)), without, "{name} {ends:?}, without kernels");
    }
    assert!(plan_of(&dense(&[0, 3]), &dense(&[0, 3]), (device, Host), true).is_empty());
}

#[test]
fn what_the_source_repeats_is_sent_once() {
    let row = dense(&[1, 200]).broadcast_to(&[300, 200]).unwrap();
    for ends in [(Reached::Device(0), Reached::Host), (Reached::Host, Reached::Device(0))] {
        let steps = plan_of(&dense(&[300, 200]), &row, ends, true);
        assert_eq!(steps[0].pattern.bytes(), 800);
    }
}

#[test]
fn elements_of_less_than_a_byte_are_copied_as_bytes() {
    let bits = |size: usize, to: (&StridedLayout, usize), from: (&StridedLayout, usize)| {
        in_bytes(size, [to, from]).map(|layouts| layouts.map(|layout| (layout.shape().to_vec(), layout.item_size())))
    };
    let nibbles = |shape: &[i64]| StridedLayout::dense(shape, 1, Order::C).unwrap();
    let (matrix, tall) = (nibbles(&[3, 8]), nibbles(&[3, 20]));
    let left = tall.sliced(&[Index::ALL, (..8).into()]).unwrap();
    let odd = tall.sliced(&[Index::ALL, (1..9).into()]).unwrap();
    assert_eq!(bits(4, (&matrix, 12), (&left, 30)), Some([(vec![3, 4], 1), (vec![3, 4], 1)]));
    assert_eq!(bits(4, (&matrix, 12), (&odd, 30)), None, "it begins within a byte");
    assert_eq!(bits(6, (&matrix, 18), (&left, 45)), Some([(vec![3, 2], 3), (vec![3, 2], 3)]));
    assert_eq!(bits(1, (&matrix, 3), (&matrix, 3)), Some([(vec![3, 1], 1), (vec![3, 1], 1)]));
    let line = nibbles(&[5]);
    assert_eq!(bits(4, (&line, 3), (&line, 3)), Some([(vec![3], 1), (vec![3], 1)]), "the last byte is not shared");
    assert_eq!(bits(4, (&line, 4), (&line, 3)), None, "the last byte may be shared");
}
