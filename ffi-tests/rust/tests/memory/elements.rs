//! Element types of other crates and of programs: small floats, and structs. Runs on any driver.

use cuda_mem::bytemuck::{Pod, Zeroable};
use cuda_mem::memory::PinnedMemory;
use cuda_mem::view::Index;
use cuda_mem::{Allocate, Buffer, DataType, Element, MappedMemory, TypeCode};
use half::{bf16, f16};
use testkit::Bench;
use testkit::suite::Outcome;

/// A small float of the program.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "cuda_mem::bytemuck")]
#[repr(transparent)]
struct Fp8(u8);

impl Element for Fp8 {
    const DATA_TYPE: DataType = DataType::FLOAT8_E4M3FN;
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "cuda_mem::bytemuck")]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    charge: i32,
}

impl Element for Particle {
    const DATA_TYPE: DataType = DataType::structure::<Self>();
}

fn particle(number: i32) -> Particle {
    Particle { position: [number as f32, 0.5, -1.0], charge: -number }
}

/// A device copy that reorders, CPU writes through a view, and an export, whose type and memory come back.
fn goes_everywhere<T>(elements: [T; 6], expected: DataType) -> Outcome
where
    T: Element + Pod + PartialEq + std::fmt::Debug,
{
    let bench = Bench::new()?;
    let matrix = Buffer::from_slice(&bench.pool, &elements, &bench.stream)?;
    let [a, b, c, d, e, f] = elements;
    let mut turned = Buffer::<T, _>::zeroed(&bench.pool, 6, &bench.stream)?;
    turned.view_mut(&[3, 2])?.copy_from(&matrix.view(&[2, 3])?.transposed())?;
    assert_eq!(turned.to_vec()?, [a, d, b, e, c, f]);
    turned.fill(1..3, f)?;
    assert_eq!(turned.view(&[6])?.sliced(&[Index::from(0..3)])?.to_vec::<T>()?, [a, f, f]);

    let mut pinned = PinnedMemory::new(&bench.context).from_slice(&elements, &bench.stream)?;
    let mut view = pinned.view_mut(&[2, 3])?;
    view.write::<T>()?.iter_mut().for_each(|element| *element = f);
    assert!(view.read::<T>()?.iter().all(|element| *element == f));

    let array = turned.into_shared();
    let exported = array.tensor().to_dlpack(&Default::default())?.check()?;
    let found = exported.tensor().data_type();
    assert_eq!((found, found.size()), (expected, Some(size_of::<T>())));
    // SAFETY: this process has just exported the memory, and uses it in order of its stream.
    let back = unsafe { exported.into_shared(&bench.stream, None)? };
    assert_eq!(
        back.into_buffer::<T, cuda_mem::memory::kind::Any>().map_err(|refused| refused.error)?.to_vec()?,
        [a, f, f, e, c, f]
    );
    Ok(())
}

#[test]
fn half_floats_are_elements_of_views_and_exports() -> Outcome {
    goes_everywhere([1.0, -2.5, 0.0, 65504.0, 0.1, 3.0].map(f16::from_f32), DataType::FLOAT16)?;
    goes_everywhere([1.0, -2.5, 0.0, 3.0e38, 0.1, 3.0].map(bf16::from_f32), DataType::BFLOAT16)
}

#[test]
fn types_of_the_program_are_elements_of_views_and_exports() -> Outcome {
    goes_everywhere([0x38, 0x40, 0x44, 0x48, 0x7E, 0xC0].map(Fp8), DataType::FLOAT8_E4M3FN)?;
    let structs = [1, 2, 3, 4, 5, 6].map(particle);
    goes_everywhere(structs, DataType::opaque(16)?)
}

#[test]
fn types_of_the_same_size_are_not_mixed() -> Outcome {
    let bench = Bench::new()?;
    let halves = Buffer::from_slice(&bench.pool, &[f16::ONE; 4], &bench.stream)?;
    let error = halves.view(&[4])?.to_vec::<bf16>().unwrap_err().to_string();
    assert!(error.contains("float16") && error.contains("bfloat16"), "{error}");
    let mut words = Buffer::<u16, _>::zeroed(&bench.pool, 4, &bench.stream)?;
    assert!(words.view_mut(&[4])?.copy_from(&halves.view(&[4])?).is_err());
    let refused = halves.into_shared().tensor().into_buffer::<bf16, cuda_mem::memory::kind::Any>().unwrap_err();
    assert_eq!(refused.value.tensor().data_type().code(), TypeCode::Float);
    Ok(())
}

#[test]
fn structs_of_the_program_are_stored_and_copied() -> Outcome {
    let bench = Bench::new()?;
    let particles: Vec<Particle> = (0..1000).map(particle).collect();
    let mut mapped = MappedMemory::new(&bench.context)?.zeroed::<Particle>(1000, &bench.stream)?;
    mapped.store(0, &particles)?;
    mapped.store(7, &[particle(-7)])?; // a single one
    let mut one = [Particle::zeroed()];
    mapped.load(7, &mut one)?;
    assert_eq!(one, [particle(-7)]);

    let mut device = Buffer::<Particle, _>::zeroed(&bench.pool, 1000, &bench.stream)?;
    device.copy_from_buffer(0, &mapped, ..)?;
    let download = device.download(0, vec![Particle::zeroed(); 1000])?.wait()?;
    let expected = (0..1000).map(|number| particle(if number == 7 { -7 } else { number }));
    assert!(download.into_iter().eq(expected));
    Ok(())
}
