//! Programs with types that memory may not hold must not compile. `docs/architecture/buffers.md` states the rule.
//!
//! Each program is compiled twice: with an unpadded type, and with a padded type, which must fail.

macro_rules! plain_types_only {
    ($($name:ident: $program:literal;)*) => { $(
        #[doc = concat!("```no_run\n# type Given = u64;\n", common!(), $program, "\n```")]
        ///
        #[doc = concat!("```compile_fail,E0277\n# type Given = Padded;\n", common!(), $program, "\n```")]
        struct $name;
    )* };
}

macro_rules! common {
    () => {
        "use cuda_mem::interchange::SharedTensor;
        use cuda_mem::memory::{DeviceMemory, DevicePool, VirtualMemory, kind::Device};
        use cuda_mem::view::{StridedLayout, StridedView};
        use cuda_mem::*;
        type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
        #[derive(Clone, Copy, bytemuck::AnyBitPattern)]
        #[repr(C)]
        struct Padded(u8, u32);
        impl Element for Padded {
            const DATA_TYPE: DataType = DataType::UINT64;
        }
        fn main() {}\n"
    };
}

plain_types_only! {
    CastTo: "fn cast(bytes: SharedBuffer<u8>) -> Outcome<SharedBuffer<Given>> { Ok(bytes.cast()?) }";
    CastFrom: "fn cast(given: SharedBuffer<Given>) -> Outcome<SharedBuffer<u8>> { Ok(given.cast()?) }";
    CastOfExclusive: "fn cast(bytes: Buffer<u8>) -> Outcome<Buffer<Given>> { Ok(bytes.cast()?) }";
    BorrowedView: "fn view(given: &Buffer<Given>, layout: StridedLayout) -> Outcome<StridedView<'_>> {
        Ok(StridedView::borrowed(given, DataType::UINT8, layout)?)
    }";
    SharedView: "fn view(given: SharedBuffer<Given>, layout: StridedLayout) -> Outcome<StridedView<'static>> {
        Ok(StridedView::shared(given, DataType::UINT8, layout)?)
    }";
    ExclusiveView: "fn view(given: &mut Buffer<Given>, layout: StridedLayout) -> Outcome<()> {
        StridedView::exclusive(given, DataType::UINT8, layout)?;
        Ok(())
    }";
    ViewOfSlice: "fn view(given: &[Given], layout: StridedLayout) -> Outcome<StridedView<'_>> {
        Ok(StridedView::of_slice(given, layout)?)
    }";
    ViewOfMutSlice: "fn view(given: &mut [Given], layout: StridedLayout) -> Outcome<()> {
        StridedView::of_mut_slice(given, layout)?;
        Ok(())
    }";
    WriteOfView: "fn write(view: &mut StridedView<'_, buffer::Exclusive>) -> Outcome<()> {
        view.write::<Given>()?;
        Ok(())
    }";
    ToTensor: "fn tensor(given: SharedBuffer<Given>) -> SharedTensor { given.tensor() }";
    FromTensor: "fn buffer(tensor: SharedTensor) -> Outcome<SharedBuffer<Given, Device>> { Ok(tensor.into_buffer()?) }";
    Export: "fn export(given: &SharedBuffer<Given>) -> Outcome<()> {
        given.export()?;
        Ok(())
    }";
    ImportOfDeviceMemory: "fn import(from: &DeviceMemory, what: &ipc::Descriptor, stream: &Stream) -> Outcome<()> {
        from.import_buffer::<Given>(what, stream)?;
        Ok(())
    }";
    ImportOfPoolMemory: "fn import(from: &DevicePool, what: &ipc::Descriptor, stream: &Stream) -> Outcome<()> {
        from.import_buffer::<Given>(what, stream)?;
        Ok(())
    }";
    ExportOfVirtualMemory: "fn export(from: &VirtualMemory, given: &SharedBuffer<Given, Device>) -> Outcome<()> {
        from.export(given)?;
        Ok(())
    }";
    ImportOfVirtualMemory: "fn import(from: &VirtualMemory, what: ipc::VirtualExport, stream: &Stream) -> Outcome<()> {
        from.import::<Given>(what, stream)?;
        Ok(())
    }";
    Upload: "fn upload(given: &mut Buffer<Given>, host: Vec<Given>) -> Outcome<()> {
        given.upload(0, host)?;
        Ok(())
    }";
    CopyFromSlice: "fn copy(given: &mut Buffer<Given>, host: &[Given]) -> Outcome<()> {
        Ok(given.copy_from_slice(0, host)?)
    }";
    Store: "fn copy(memory: &mut Buffer<Given>, host: &[Given]) -> Outcome<()> {
        Ok(memory.store(0, host)?)
    }";
    StoreInScope: "fn copy(memory: &mut Buffer<Given>, host: &[Given]) -> Outcome<()> {
        Ok(memory.store_scope(|scope| scope.store(0, host))?)
    }";
    SharedStore: "fn copy(memory: &SharedBuffer<Given>, host: &[Given]) -> Outcome<()> {
        Ok(memory.store(0, host)?)
    }";
    EngineWrite: "fn write(engine: &copy::CopyEngine, memory: &mut Buffer<Given>, host: &[Given]) -> Outcome<()> {
        Ok(engine.write(memory, 0, host)?)
    }";
    FromSlice: "fn make(memory: &DeviceMemory, host: &[Given], stream: &Stream) -> Outcome<()> {
        Buffer::from_slice(memory, host, stream)?;
        Ok(())
    }";
    Fill: "fn fill(given: &mut Buffer<Given>, value: Given) -> Outcome<()> { Ok(given.fill(.., value)?) }";
    Compare: "fn compare(given: &Buffer<Given>) -> Outcome<bool> { Ok(given.equals(given)?) }";
    RegisteredVec: "fn register(context: &Context, given: Vec<Given>) -> Outcome<()> {
        memory::RegisteredMemory::new(context, given, Default::default()).map_err(|refused| refused.error)?;
        Ok(())
    }";
    RingItem: "fn ring(signals: &signal::Signals) -> Outcome<()> {
        signals.ring_to_device::<Given>(4)?;
        Ok(())
    }";
}

/// Only exclusive memory has `init_from_slice`: a clone could overwrite the values with uninitialized bytes.
///
/// ```no_run
/// fn init(memory: cuda_mem::Buffer<core::mem::MaybeUninit<u8>>) -> Result<cuda_mem::Buffer<u8>, cuda_mem::Error> {
///     memory.init_from_slice(&[1, 2, 3])
/// }
/// ```
///
/// ```compile_fail,E0599
/// use cuda_mem::SharedBuffer;
/// fn init(memory: SharedBuffer<core::mem::MaybeUninit<u8>>) -> Result<SharedBuffer<u8>, cuda_mem::Error> {
///     memory.init_from_slice(&[1, 2, 3])
/// }
/// ```
struct SharedInit;

/// The size of an element is that of its type, because views count in elements of that type.
///
/// ```no_run
/// use cuda_mem::{Buffer, DataType, Element, bytemuck};
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(transparent)]
/// struct Half(u16);
/// impl Element for Half {
///     const DATA_TYPE: DataType = DataType::BFLOAT16;
/// }
/// fn view(given: &Buffer<Half>) -> Result<Vec<Half>, cuda_mem::Error> {
///     given.view(&[2])?.to_vec()
/// }
/// ```
///
/// ```compile_fail,E0080
/// use cuda_mem::{Buffer, DataType, Element, bytemuck};
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(transparent)]
/// struct Half(u16);
/// impl Element for Half {
///     const DATA_TYPE: DataType = DataType::FLOAT32;
/// }
/// fn view(given: &Buffer<Half>) -> Result<Vec<Half>, cuda_mem::Error> {
///     given.view(&[2])?.to_vec()
/// }
/// # fn main() {
/// #     let _ = view as fn(&Buffer<Half>) -> Result<Vec<Half>, cuda_mem::Error>;
/// # }
/// ```
struct ElementSize;
