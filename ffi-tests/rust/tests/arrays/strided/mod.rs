//! Views, and copies between them, over every kind of memory, compared with a loop over all elements.

mod through_c;

use cuda_mem::buffer::Exclusive;
use cuda_mem::mapped::MappedMemory;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ManagedMemory, PinnedMemory, PinnedPool, ResourceHandle,
    SharedResource, kind::Mapped,
};
use cuda_mem::view::{Index, Order, StridedLayout, StridedView, ViewCopyOptions, ViewError};
use cuda_mem::{Buffer, Context, DataType, Error, SharedBuffer, Stream};
use proptest::prelude::*;
use std::error::Error as StdError;
use testkit::{Setup, alone, delay, pattern, same};

type Outcome = Result<(), Box<dyn StdError>>;

/// The memory of one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Heap,
    Device,
    Pinned,
    Managed,
    /// Mapped device memory, if available.
    Mapped,
    /// Another device, if available.
    Other,
}

const PLACES: [Place; 6] = [Place::Heap, Place::Device, Place::Pinned, Place::Managed, Place::Mapped, Place::Other];

/// The memory sources of a test.
struct Memories {
    device: SharedResource,
    pinned: SharedResource,
    managed: SharedResource,
    mapped: Option<SharedResource>,
    other: Option<(SharedResource, Context)>,
    context: Context,
}

impl Memories {
    fn new(setup: &Setup) -> Result<Self, Error> {
        let context = setup.context.clone();
        let other = match setup.driver.device(1) {
            Ok(device) => {
                let context = device.primary_context()?;
                Some((DevicePool::new(&context, &DriverPoolOptions::default())?.share(), context))
            }
            Err(_) => None,
        };
        Ok(Self {
            device: DevicePool::new(&context, &DriverPoolOptions::default())?.share(),
            pinned: PinnedMemory::new(&context).share(),
            managed: ManagedMemory::new(&context)?.share(),
            mapped: MappedMemory::new(&context).ok().map(|resource| resource.share()),
            other,
            context,
        })
    }

    /// Memory with these bytes, and its own stream if that kind of memory has one.
    fn make(&self, place: Place, bytes: &[u8]) -> Result<Side, Error> {
        let (resource, context) = match (place, &self.other, &self.mapped) {
            (Place::Heap, ..) => return Ok(Side::Heap(bytes.to_vec())),
            (Place::Pinned, ..) => (&self.pinned, &self.context),
            (Place::Managed, ..) => (&self.managed, &self.context),
            (Place::Mapped, _, Some(resource)) => (resource, &self.context),
            (Place::Other, Some((resource, context)), _) => (resource, context),
            (Place::Device | Place::Mapped | Place::Other, ..) => (&self.device, &self.context),
        };
        Ok(Side::Buffer(Buffer::from_slice(resource, bytes, &Stream::new(context)?)?.into_shared()))
    }
}

/// A side of a copy.
enum Side {
    Heap(Vec<u8>),
    Buffer(SharedBuffer<u8>),
}

impl Side {
    fn copy_from(
        &mut self,
        source: &Side,
        (to, from): (&StridedLayout, &StridedLayout),
        options: &ViewCopyOptions<'_>,
    ) -> Result<(), Error> {
        let data_type = DataType::opaque(to.item_size())?;
        let source = match source {
            Side::Heap(bytes) => {
                let bytes_layout = StridedLayout::dense(&[bytes.len() as i64], 1, Order::C)?;
                StridedView::of_slice(bytes, bytes_layout)?.with_type_and_layout(data_type, from.clone())?
            }
            Side::Buffer(buffer) => StridedView::shared(buffer.clone(), data_type, from.clone())?,
        };
        match self {
            Side::Heap(bytes) => {
                let bytes_layout = StridedLayout::dense(&[bytes.len() as i64], 1, Order::C)?;
                let view = StridedView::of_mut_slice(bytes, bytes_layout)?;
                view.with_type_and_layout(data_type, to.clone())?.copy_from_with(&source, options)
            }
            Side::Buffer(buffer) => {
                StridedView::shared(buffer.clone(), data_type, to.clone())?.copy_from_with(&source, options)
            }
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, Error> {
        match self {
            Side::Heap(bytes) => Ok(bytes.clone()),
            Side::Buffer(buffer) => buffer.to_vec(),
        }
    }
}

/// The offsets of all elements in C order, in bytes, computed from the definition.
fn places(layout: &StridedLayout) -> Vec<usize> {
    let axes = layout.shape().iter().zip(layout.strides());
    let places = axes.fold(vec![layout.offset()], |starts, (extent, stride)| {
        starts.iter().flat_map(|start| (0..*extent).map(move |index| start + index * stride)).collect()
    });
    places.into_iter().map(|place| place as usize * layout.item_size()).collect()
}

/// The destination's contents after a loop over all elements.
fn expected(mut to_bytes: Vec<u8>, to: &StridedLayout, from_bytes: &[u8], from: &StridedLayout) -> Vec<u8> {
    for (place, origin) in places(to).into_iter().zip(places(from)) {
        to_bytes[place..place + to.item_size()].copy_from_slice(&from_bytes[origin..origin + to.item_size()]);
    }
    to_bytes
}

/// A part of a dense array with this shape: any order, steps and directions, gaps; with repeats if it is a source.
fn part(shape: Vec<i64>, item_size: usize, repeated: bool) -> impl Strategy<Value = StridedLayout> {
    let axes = shape.len();
    let order = Just((0..axes).collect::<Vec<_>>()).prop_shuffle();
    let one = prop_oneof![
        3 => Just((1_i64, false, 0_i64, false)),
        1 => (1..3_i64, any::<bool>(), 0..3_i64, any::<bool>()),
    ];
    (prop::collection::vec(one, axes), order).prop_map(move |(parts, order)| {
        let whole: Vec<i64> = shape.iter().zip(&parts).map(|(n, (step, _, gap, _))| n * step + gap).collect();
        let layout = StridedLayout::dense(&whole, item_size, Order::Axes(&order)).expect("small numbers");
        let cut = |(n, (step, back, gap, once)): (&i64, &(i64, bool, i64, bool))| match (repeated && *once, *back) {
            (true, _) => Index::from(0..1),
            (false, false) => Index::from(*gap..gap + (n - 1) * step + 1).step(*step),
            (false, true) => {
                let end = (*gap > 0).then(|| gap - 1);
                Index::Slice { start: Some(gap + (n - 1) * step), end, step: -step }
            }
        };
        let indices: Vec<Index> = shape.iter().zip(&parts).map(cut).collect();
        layout.sliced(&indices).and_then(|part| part.broadcast_to(&shape)).expect("parts of the shape")
    })
}

fn pairs() -> impl Strategy<Value = (StridedLayout, StridedLayout)> {
    let extent = prop_oneof![2 => 1..6_i64, 1 => 15..40_i64];
    let shape = prop::collection::vec(extent, 0..4)
        .prop_filter("not too large", |shape| shape.iter().product::<i64>() < 20_000);
    let item_size = prop_oneof![Just(1_usize), Just(2), Just(4), Just(8), Just(16), Just(3), Just(12)];
    (shape, item_size)
        .prop_flat_map(|(shape, item_size)| (part(shape.clone(), item_size, false), part(shape, item_size, true)))
}

#[test]
fn copies_are_what_a_loop_copies() -> Outcome {
    alone(|setup| {
        let memories = Memories::new(setup)?;
        let third = Stream::new(&setup.context)?;
        let pinned: SharedResource =
            PinnedPool::current(&setup.context).map_or(memories.pinned.clone(), |pool| pool.share());
        let temporaries = [None, Some(&pinned), Some(&memories.device)];
        let cases = if setup.is_software() { 400 } else { 4000 };
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let place = || prop::sample::select(&PLACES[..]);
        let options = (any::<bool>(), prop_oneof![Just(None), Just(Some(true)), Just(Some(false))], 0..3_usize);
        let strategy = (pairs(), place(), place(), options);
        proptest::test_runner::TestRunner::new(config).run(&strategy, |((to, from), there, here, options)| {
            let (on_third, blocking, temporary) = options;
            let run = || -> Result<(), Box<dyn StdError>> {
                let from_bytes = pattern(from.required_size().map_err(Error::from)? + 5, 1);
                let to_bytes = pattern(to.required_size().map_err(Error::from)? + 5, 0xaa);
                let mut destination = memories.make(there, &to_bytes)?;
                let source = memories.make(here, &from_bytes)?;
                let mut options = ViewCopyOptions::default();
                options.stream = Some(&third).filter(|_| on_third && there != Place::Other && here != Place::Other);
                options.blocking = blocking;
                options.temporary = temporaries[temporary];
                let wanted = expected(to_bytes.clone(), &to, &from_bytes, &from);
                destination.copy_from(&source, (&to, &from), &options)?;
                same("the copy", &destination.bytes()?, &wanted)?;
                let mut destination = memories.make(there, &to_bytes)?;
                through_c::copy(&mut destination, &source, (&to, &from), &options, &third)?;
                same("the copy through C", &destination.bytes()?, &wanted)?;
                same("the source", &source.bytes()?, &from_bytes)?;
                Ok(())
            };
            run().map_err(|error| TestCaseError::fail(error.to_string()))
        })?;
        drop(memories);
        Ok(())
    })
}

#[test]
fn strided_copies_are_ordered_with_earlier_and_later_work() -> Outcome {
    alone(|setup| {
        let memories = Memories::new(setup)?;
        let third = Stream::new(&setup.context)?;
        let layout = StridedLayout::dense(&[64, 48], 1, Order::C)?;
        let turned = StridedLayout::dense(&[48, 64], 1, Order::C)?.permuted(&[1, 0])?;
        let pairs = PLACES.into_iter().flat_map(|place| PLACES.map(|other| (place, other)));
        for (number, (there, here)) in pairs.enumerate() {
            let far = there == Place::Other || here == Place::Other;
            // Each pair once from Rust and once from C.
            let odd = number % 2 == 1;
            for (stream, blocking, by_c) in [(None, None, odd), (Some(&third), Some(false), !odd)] {
                let mut destination = memories.make(there, &[0; 64 * 48])?;
                let mut source = memories.make(here, &[0; 64 * 48])?;
                let data = pattern(64 * 48, 3);
                match &mut source {
                    Side::Heap(bytes) => bytes.copy_from_slice(&data),
                    Side::Buffer(buffer) => {
                        let home = buffer.stream().clone();
                        delay(&home)?;
                        buffer.copy_from_buffer(0, &Buffer::from_slice(&memories.pinned, &data, &home)?, ..)?;
                    }
                }
                if let Side::Buffer(buffer) = &mut destination {
                    delay(&buffer.stream().clone())?;
                    buffer.fill(.., 9)?;
                }
                let mut options = ViewCopyOptions::default();
                (options.stream, options.blocking) = (stream.filter(|_| !far), blocking);
                match by_c {
                    true => through_c::copy(&mut destination, &source, (&layout, &turned), &options, &third)?,
                    false => destination.copy_from(&source, (&layout, &turned), &options)?,
                }
                // Later work on the source's stream must not affect the copy.
                if let Side::Buffer(buffer) = &mut source {
                    buffer.fill(.., 7)?;
                }
                let wanted = expected(vec![0; 64 * 48], &layout, &data, &turned);
                same(&format!("{there:?} from {here:?}"), &destination.bytes()?, &wanted)?;
            }
        }
        Ok(())
    })
}

#[test]
fn what_cannot_be_copied_is_refused_by_name() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let buffer = Buffer::from_slice(&memory, &[1.0f32; 24], &stream)?.into_shared();
        let view = buffer.clone().into_view(&[4, 6])?;
        let refused = |result: Result<(), Error>| match result {
            Err(Error::View(error)) => *error,
            other => panic!("{other:?}"),
        };
        let own = || Buffer::from_slice(&memory, &[0.0f32; 24], &stream)?.into_shared().into_view(&[4, 6]);
        let error = refused(own()?.copy_from(&view.clone().with_data_type(DataType::INT32)?));
        assert_eq!(
            error.to_string(),
            "StridedView::copy_from: the source has elements of int32, the destination of float32; a copy converts nothing"
        );
        let error = refused(own()?.copy_from(&view.clone().reshaped(&[6, 4])?));
        assert!(error.to_string().contains("shape [6, 4], the destination [4, 6]"), "{error}");
        assert!(matches!(refused(own()?.into_read_only().copy_from(&view)), ViewError::ReadOnly { .. }));
        let mut repeated = own()?.sliced(&[(0..1).into()])?.broadcast_to(&[4, 6])?;
        assert!(matches!(refused(repeated.copy_from(&view)), ViewError::Repeated { .. }));
        // Parts of one buffer: disjoint halves and columns can be copied; overlapping parts are refused.
        let columns = |index: Index| view.clone().sliced(&[Index::ALL, index]);
        columns((..3).into())?.copy_from(&columns((3..).into())?)?;
        columns(Index::ALL.step(2))?.copy_from(&columns(Index::from(1..).step(2))?)?;
        let overlap = refused(columns((..4).into())?.copy_from(&columns((2..).into())?));
        assert!(matches!(overlap, ViewError::Overlap { .. }), "{overlap}");
        let back = refused(view.clone().copy_from(&view.clone().sliced(&[Index::reversed()])?));
        assert!(matches!(back, ViewError::Overlap { .. }), "{back}");
        // Copying elements to themselves does nothing.
        view.clone().copy_from(&view)?;
        // A layout that reaches outside the memory is refused.
        let text = |layout: StridedLayout| view.clone().with_layout(layout).unwrap_err().to_string();
        let outside = "outside of memory of 96 bytes";
        let past = text(StridedLayout::new(&[4], &[8], 4)?);
        assert_eq!(past, format!("StridedView::with_layout: elements lie at bytes 0 to 100, {outside}"));
        let before = text(StridedLayout::new(&[4], &[-1], 4)?.with_offset(2)?);
        assert_eq!(before, format!("StridedView::with_layout: elements lie at bytes -4 to 12, {outside}"));
        let wide = text(StridedLayout::new(&[4], &[1], 8)?);
        assert!(wide.contains("elements of float32 have 4 bytes, but the layout's have 8"), "{wide}");
        Ok(())
    })
}

#[test]
fn elements_of_less_than_a_byte_are_views_too() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let fp4 = DataType::FLOAT4_E2M1FN;
        let bytes = pattern(32, 1);
        let buffer = Buffer::from_slice(&memory, &bytes, &stream)?.into_shared();
        let layout = StridedLayout::dense(&[8, 8], 1, Order::C)?;
        let matrix = StridedView::shared(buffer.clone(), fp4, layout.clone())?;
        let larger = StridedView::shared(buffer.clone(), fp4, StridedLayout::dense(&[8, 9], 1, Order::C)?);
        assert!(larger.is_err(), "72 elements of half a byte are 36 bytes");
        assert!(matrix.clone().with_padded_elements().is_err(), "with a byte each, 64 are");
        let left = matrix.clone().sliced(&[Index::ALL, (4..).into()])?;
        assert_eq!(left.device_pointer(), buffer.device_pointer() + 2);
        let mut packed = vec![0u8; 16];
        let target = StridedLayout::dense(&[16], 1, Order::C)?;
        let mut host = StridedView::of_mut_slice(&mut packed, target)?
            .with_type_and_layout(fp4, StridedLayout::dense(&[8, 4], 1, Order::C)?)?;
        host.copy_from(&left)?;
        let wanted: Vec<u8> = bytes.chunks(4).flat_map(|row| row[2..].to_vec()).collect();
        same("the right half", &packed, &wanted)?;
        let within = matrix.clone().sliced(&[Index::ALL, (1..5).into()])?;
        let mut other = Buffer::from_slice(&memory, &[0u8; 16], &stream)?;
        let mut other = StridedView::exclusive(&mut other, fp4, StridedLayout::dense(&[8, 4], 1, Order::C)?)?;
        let error = other.copy_from(&within).unwrap_err().to_string();
        assert!(error.contains("a run of float4_e2m1fn elements begins or ends within a byte"), "{error}");
        Ok(())
    })
}

/// Views a buffer as the columns of 20 rows of 15 elements.
fn turned(buffer: &mut Buffer<u16, Mapped>) -> Result<StridedView<'_, Exclusive>, Error> {
    buffer.view_mut(&[20, 15])?.permuted(&[1, 0])
}

#[test]
fn mapped_views_exchange_elements_between_cpu_and_device() -> Outcome {
    alone(|setup| {
        let Ok(memory) = MappedMemory::new(&setup.context) else {
            println!("skipped: mapped memory needs the vkgdr library");
            return Ok(());
        };
        let stream = Stream::new(&setup.context)?;
        let mut mapped = Buffer::from_slice(&memory, &[0u16; 300], &stream)?;
        let mut device = Buffer::from_slice(&DeviceMemory::new(&setup.context), &[0u16; 300], &stream)?;
        for round in 1..4_u16 {
            {
                let mut view = turned(&mut mapped)?;
                let mut elements = view.write::<u16>()?;
                elements.iter_mut().zip(0..).for_each(|(element, n)| *element = n * round);
                elements.finish()?;
            }
            device.view_mut(&[15, 20])?.copy_from(&turned(&mut mapped)?)?;
            let wanted: Vec<u16> = (0..300).map(|n| n * round).collect();
            assert_eq!(device.to_vec()?, wanted);
            device.fill(7.., round)?;
            turned(&mut mapped)?.copy_from(&device.view(&[15, 20])?)?;
            let mut view = turned(&mut mapped)?;
            let seen: Vec<u16> = view.read::<u16>()?.iter().copied().collect();
            assert_eq!(seen, device.to_vec()?);
        }
        Ok(())
    })
}

#[test]
fn the_cpu_reads_and_writes_elements_where_it_may() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let mut pinned = Buffer::from_slice(&PinnedMemory::new(&setup.context), &[0i32; 12], &stream)?;
        delay(&stream)?;
        pinned.fill(.., 5)?;
        let mut view = pinned.view_mut(&[3, 4])?.sliced(&[Index::reversed(), Index::ALL.step(3)])?;
        {
            let mut elements = view.write::<i32>()?;
            assert!(elements.iter().all(|element| *element == 5), "the fill is waited for");
            elements.iter_mut().zip(1..).for_each(|(element, value)| *element = value);
            assert_eq!((elements.get(&[2, 1]), elements.get(&[3, 0]), elements.as_slice()), (Some(&6), None, None));
            elements.finish()?;
        }
        assert_eq!(
            view.read::<f32>().unwrap_err().to_string(),
            "StridedView::read: the type given is float32, but the view has elements of int32; an access converts nothing"
        );
        assert_eq!(pinned.to_vec()?, [5, 5, 5, 6, 3, 5, 5, 4, 1, 5, 5, 2]);
        let mut device = Buffer::from_slice(&DeviceMemory::new(&setup.context), &[0i32; 12], &stream)?;
        let error = device.view_mut(&[-1])?.read::<i32>().unwrap_err().to_string();
        assert_eq!(error, "StridedView::read: the CPU cannot address the memory; copy it to host memory first");
        let mut odd = Buffer::from_slice(&PinnedMemory::new(&setup.context), &[0u8; 9], &stream)?;
        let layout = StridedLayout::dense(&[1], 4, Order::C)?;
        let all = StridedView::exclusive(&mut odd, DataType::UINT32, layout)?;
        drop(all);
        Ok(())
    })
}

/// Counts the software GPU's copies and launches for each copy.
#[test]
fn copies_make_the_fewest_calls() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: calls are counted by the software GPU only; unset CUDA_MEM_LIBCUDA");
            return Ok(());
        }
        let memories = Memories::new(setup)?;
        let names =
            ["cuMemcpyAsync", "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2", "cuMemcpyPeerAsync", "cuLaunchKernel"];
        let dense = |shape: &[i64]| StridedLayout::dense(shape, 4, Order::C);
        let matrix = dense(&[60, 40])?;
        let turned = dense(&[40, 60])?.permuted(&[1, 0])?;
        let band = dense(&[60, 50])?.sliced(&[Index::ALL, (..40).into()])?;
        let even = dense(&[60, 80])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
        let cube = dense(&[5, 6, 20])?;
        let block = dense(&[8, 9, 30])?.sliced(&[(1..6).into(), (2..8).into(), (3..23).into()])?;
        let deep = dense(&[6, 10, 40])?.permuted(&[1, 0, 2])?;
        let flat = dense(&[10, 6, 40])?;
        for (to, from, there, here, counts) in [
            (&matrix, &matrix, Place::Device, Place::Device, [1, 0, 0, 0, 0]),
            (&turned, &turned, Place::Device, Place::Heap, [1, 0, 0, 0, 0]),
            (&matrix, &band, Place::Heap, Place::Device, [0, 1, 0, 0, 0]),
            (&band, &matrix, Place::Device, Place::Heap, [0, 1, 0, 0, 0]),
            (&matrix, &turned, Place::Device, Place::Device, [0, 0, 0, 0, 1]),
            (&matrix, &turned, Place::Device, Place::Heap, [1, 0, 0, 0, 0]),
            (&matrix, &turned, Place::Heap, Place::Device, [1, 0, 0, 0, 0]),
            (&matrix, &turned, Place::Pinned, Place::Device, [0, 0, 0, 0, 1]),
            (&matrix, &turned, Place::Heap, Place::Heap, [0; 5]),
            (&matrix, &even, Place::Heap, Place::Device, [1, 0, 0, 0, 1]),
            (&even, &even, Place::Device, Place::Heap, [1, 0, 0, 0, 1]),
            (&flat, &deep, Place::Device, Place::Device, [0, 0, 0, 0, 1]),
            (&cube, &block, Place::Heap, Place::Device, [0, 0, 1, 0, 0]),
            (&block, &cube, Place::Device, Place::Heap, [0, 0, 1, 0, 0]),
            // The other device reads the memory itself.
            (&matrix, &matrix, Place::Other, Place::Device, [1, 0, 0, 0, 0]),
            (&matrix, &even, Place::Other, Place::Device, [0, 0, 0, 0, 1]),
        ] {
            if there == Place::Other && memories.other.is_none() {
                continue;
            }
            let mut destination = memories.make(there, &vec![0; to.required_size()?])?;
            let source = memories.make(here, &pattern(from.required_size()?, 1))?;
            // The first copy that needs the kernels loads them.
            for counted in [false, true] {
                softgpu::count_calls(true);
                let before = names.map(softgpu::calls_of);
                destination.copy_from(&source, (to, from), &ViewCopyOptions::default())?;
                let after = names.map(softgpu::calls_of);
                let made: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
                softgpu::count_calls(false);
                if counted {
                    assert_eq!(made, counts, "{there:?} {to:?} from {here:?} {from:?}: {names:?}");
                }
            }
        }
        Ok(())
    })
}
