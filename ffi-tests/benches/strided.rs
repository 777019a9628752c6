//! The cost of copies between strided views, each with one launch or call.
//!
//! `cargo bench -p benches --bench strided` runs it over the driver that the environment names. `--json` prints a
//! line of JSON for each case; `--brief` runs only small cases, once. The cases are in `benches/strided_cases.json`.
//! PyTorch and CuPy copy the same views in `benches/peers/strided.py`.

use cuda_mem::memory::{DevicePool, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::view::{Index, Order, StridedLayout, StridedView};
use cuda_mem::{Buffer, DataType, Error, Event, Stream};
use serde_json::{Value, json};
use std::time::Instant;
use testkit::Setup;
use testkit::timing::middle;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let option = |name: &str| std::env::args().any(|argument| argument == name);
    let (brief, as_json) = (option("--brief"), option("--json"));
    let setup = Setup::from_environment()?;
    if !as_json {
        println!("{}", setup.describe());
        println!("{:>42} {:>10} {:>12} {:>10} {:>10}", "", "type", "us, device", "us, call", "GB/s");
    }
    let stream = Stream::new(&setup.context)?;
    let memories = Memories {
        device: DevicePool::current(&setup.context)?.share(),
        pinned: PinnedMemory::new(&setup.context).share(),
    };
    let cases: Vec<Value> = serde_json::from_str(include_str!("strided_cases.json"))?;
    for case in cases.iter().filter(|case| !brief || case["brief"] == true) {
        let [device, call] = memories.measure(case, &stream, brief)?;
        let (name, data_type) = (case["name"].as_str().unwrap_or_default(), data_type(case)?);
        let shape = layout(&case["to"], 1)?;
        // Each byte is read once and written once, as is usual for copy rates.
        let moved = 2.0 * shape.volume() as f64 * data_type.padded_size() as f64;
        let rate = moved / device / 1e3;
        if as_json {
            let of = json!({
                "peer": "cuda-mem", "case": name, "type": data_type.to_string(), "us": device, "us_call": call, "gb_s": rate
            });
            println!("{of}");
        } else {
            println!("{name:>42} {data_type:>10} {device:>12.2} {call:>10.2} {rate:>10.1}");
        }
    }
    Ok(())
}

fn data_type(case: &Value) -> Result<DataType> {
    Ok(case["type"].as_str().unwrap_or_default().parse::<DataType>().map_err(Error::from)?)
}

fn numbers(value: &Value) -> Option<Vec<i64>> {
    value.as_array()?.iter().map(Value::as_i64).collect()
}

fn index(value: &Value) -> Index {
    Index::Slice { start: value[0].as_i64(), end: value[1].as_i64(), step: value[2].as_i64().unwrap_or(1) }
}

/// The layout of a side: its whole shape, then slices, permuted axes, repeats.
fn layout(side: &Value, item_size: usize) -> Result<StridedLayout> {
    let mut layout = StridedLayout::dense(&numbers(&side["shape"]).ok_or("no shape")?, item_size, Order::C)?;
    if let Some(slices) = side["slice"].as_array() {
        layout = layout.sliced(&slices.iter().map(index).collect::<Vec<_>>())?;
    }
    if let Some(axes) = numbers(&side["permute"]) {
        layout = layout.permuted(&axes)?;
    }
    match numbers(&side["broadcast"]) {
        Some(shape) => Ok(layout.broadcast_to(&shape)?),
        None => Ok(layout),
    }
}

struct Memories {
    device: SharedResource,
    pinned: SharedResource,
}

enum Memory {
    Heap(Vec<u8>),
    Buffer(Buffer<u8>),
}

impl Memory {
    fn view(
        &mut self,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<StridedView<'_, cuda_mem::buffer::Exclusive>> {
        match self {
            Memory::Buffer(buffer) => Ok(StridedView::exclusive(buffer, data_type, layout)?),
            Memory::Heap(bytes) => {
                let line = StridedLayout::dense(&[bytes.len() as i64], 1, Order::C)?;
                Ok(StridedView::of_mut_slice(bytes, line)?.with_type_and_layout(data_type, layout)?)
            }
        }
    }
}

impl Memories {
    fn make(&self, side: &Value, size: usize, stream: &Stream) -> Result<Memory> {
        Ok(match side["place"].as_str() {
            Some("heap") => Memory::Heap(vec![1; size]),
            Some("pinned") => Memory::Buffer(Buffer::filled(&self.pinned, size, 1, stream)?),
            _ => Memory::Buffer(Buffer::filled(&self.device, size, 1, stream)?),
        })
    }

    /// The time of a copy in microseconds: on the stream, and on the calling thread.
    fn measure(&self, case: &Value, stream: &Stream, brief: bool) -> Result<[f64; 2]> {
        let data_type = data_type(case)?;
        let (to, from) =
            (layout(&case["to"], data_type.padded_size())?, layout(&case["from"], data_type.padded_size())?);
        let (mut to_memory, mut from_memory) = (
            self.make(&case["to"], to.required_size()?, stream)?,
            self.make(&case["from"], from.required_size()?, stream)?,
        );
        let (mut to, from) = (to_memory.view(data_type, to)?, from_memory.view(data_type, from)?.into_shared());
        let (rounds, batch) = if brief { (1, 1) } else { (31, 10) };
        let (mut on_device, mut of_call) = (vec![], vec![]);
        let (start, end) = (Event::with_timing(stream.context())?, Event::with_timing(stream.context())?);
        for round in 0..rounds + 1 {
            stream.synchronize()?;
            start.record(stream)?;
            let begun = Instant::now();
            for _ in 0..batch {
                to.copy_from(&from)?;
            }
            let call = begun.elapsed();
            end.record(stream)?;
            end.synchronize()?;
            // The first round is a warm-up, which loads the kernels.
            if round > 0 {
                on_device.push(start.elapsed(&end)?.as_secs_f64() * 1e6 / f64::from(batch));
                of_call.push(call.as_secs_f64() * 1e6 / f64::from(batch));
            }
        }
        Ok([on_device, of_call].map(|mut times| middle(&mut times)))
    }
}
