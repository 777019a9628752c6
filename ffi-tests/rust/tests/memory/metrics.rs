//! Figures as text for Prometheus, read by a strict parser of the format. Runs on any driver.

use cuda_mem::adaptor::Statistics;
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::metrics::Exposition;
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::signal::Signals;
use cuda_mem::{Allocate, MappedMemory};
use std::collections::{BTreeMap, BTreeSet};
use testkit::Bench;
use testkit::suite::Outcome;

/// A metric: its type, and the value of each sample, by the name and the labels.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    samples: BTreeMap<(String, Labels), f64>,
}

type Labels = BTreeMap<String, String>;

fn is_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.chars().all(letter) && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The labels in braces, and the rest of the line.
fn labels(text: &str) -> Result<(Labels, &str), String> {
    let (mut labels, mut rest) = (Labels::new(), text);
    loop {
        let (name, after) = rest.split_once("=\"").ok_or(format!("no label in {rest:?}"))?;
        let (mut value, mut letters) = (String::new(), after.char_indices());
        let end = loop {
            match letters.next() {
                Some((place, '"')) => break place,
                Some((_, '\\')) => value.push(match letters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, letter @ ('\\' | '"'))) => letter,
                    other => return Err(format!("escaped {other:?}")),
                }),
                Some((_, letter)) => value.push(letter),
                None => return Err(format!("{after:?} does not end")),
            }
        };
        if !is_name(name) || labels.insert(name.into(), value).is_some() {
            return Err(format!("label {name:?}"));
        }
        rest = &after[end + 1..];
        match (rest.strip_prefix(','), rest.strip_prefix('}')) {
            (Some(more), _) => rest = more,
            (_, Some(value)) => return Ok((labels, value)),
            _ => return Err(format!("{rest:?} after a label")),
        }
    }
}

/// Reads the format and refuses whatever Prometheus, or its linter, refuses.
fn parse(text: &str) -> Result<BTreeMap<String, Metric>, String> {
    let mut metrics = BTreeMap::<String, Metric>::new();
    if !text.ends_with('\n') {
        return Err("the last line does not end".into());
    }
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')).ok_or("no HELP")?;
        let kind = lines.next().and_then(|line| line.strip_prefix(&*format!("# TYPE {name} "))).ok_or("no TYPE")?;
        let is_counter = match kind {
            "counter" => true,
            "gauge" | "histogram" => false,
            _ => return Err(format!("type {kind}")),
        };
        if help.is_empty() || !is_name(name) || name.ends_with("_total") != is_counter || metrics.contains_key(name) {
            return Err(format!("metric {name}"));
        }
        let mut metric = Metric { kind: kind.into(), ..Metric::default() };
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let place = line.find(['{', ' ']).ok_or(format!("{line:?} is no sample"))?;
            let (sample, rest) = line.split_at(place);
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => labels(rest)?,
                None => (Labels::new(), rest),
            };
            let suffix = sample.strip_prefix(name).ok_or(format!("{sample} stands under {name}"))?;
            let allowed = if kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
            let value = value.strip_prefix(' ').and_then(|value| value.parse().ok()).ok_or(format!("{line:?}"))?;
            if !allowed.contains(&suffix) || metric.samples.insert((suffix.into(), labels), value).is_some() {
                return Err(format!("a second {line:?}, or one of another type"));
            }
            if is_counter && value < 0.0 {
                return Err(format!("{line:?} counts down"));
            }
        }
        if metric.samples.is_empty() {
            return Err(format!("{name} has no samples"));
        }
        metrics.insert(name.into(), metric);
    }
    Ok(metrics)
}

fn labelled(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// The value of the only sample with these labels.
fn value(metrics: &BTreeMap<String, Metric>, name: &str, labels: &[(&str, &str)]) -> f64 {
    metrics[name].samples[&(String::new(), labelled(labels))]
}

#[test]
fn the_parser_refuses_what_prometheus_refuses() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"c\\\\\\n\\\"\"} 1\na_total 2\n";
    assert_eq!(parse(good).expect("it is valid")["a_total"].samples.len(), 2);
    for (from, to) in [
        ("# HELP a_total A.\n", ""),
        ("counter", "gauge"),
        ("a_total 2", "a_total{b=\"c\\\\\\n\\\"\"} 2"),
        ("a_total 2\n", "a_total 2"),
        ("a_total 2", "b_total 2"),
        ("a_total 2", "a_total two"),
        ("\\n", "\\t"),
        ("b=", "b-c="),
        ("a_total 2\n", &format!("a_total 2\n{good}")),
    ] {
        assert!(parse(&good.replacen(from, to, 1)).is_err(), "{from:?} is {to:?}");
    }
}

#[test]
fn figures_of_all_objects_are_valid_metrics() -> Outcome {
    let bench = Bench::new()?;
    let counted = Statistics::new(&DeviceMemory::new(&bench.context));
    let pool = Pool::new(&counted, &PoolOptions::default())?;
    let other = Pool::new(&DeviceMemory::new(&bench.context), &PoolOptions::default())?;
    let kept = pool.zeroed::<u8>(100_000, &bench.stream)?;
    drop(pool.zeroed::<u8>(5000, &bench.stream)?);
    let ring = RingPool::new(&bench.pool, 1 << 16, &RingOptions::default())?;
    let frames = FrameRing::new(&MappedMemory::new(&bench.context)?, &Signals::new(&bench.context)?, 4, 4096)?;
    drop(frames.next()?);

    let name = "C:\\pools \"weights\"\nüñ, {1}=2";
    let mut metrics = Exposition::new();
    metrics.add(&[("pool", name), ("device", "0")], &pool.statistics())?;
    metrics.add(&[("pool", "other"), ("device", "0")], &other.statistics())?;
    metrics.add(&[], &ring.statistics())?;
    metrics.add(&[("ring", "frames")], &frames.statistics())?;
    metrics.add(&[("source", "regions")], &counted.counts())?;
    metrics.add(&[], &bench.pool.attributes()?)?;
    metrics.add(&[("device", "0")], &bench.context.memory_info()?)?;
    let read = parse(&metrics.to_string())?;

    let labels = [("pool", name), ("device", "0")];
    assert_eq!(value(&read, "cuda_mem_pool_requested_bytes", &labels), 100_000.0);
    assert_eq!(value(&read, "cuda_mem_pool_requested_added_bytes_total", &labels), 105_000.0);
    assert_eq!(value(&read, "cuda_mem_pool_blocks_freed_total", &labels), 1.0);
    assert_eq!(value(&read, "cuda_mem_pool_requested_bytes", &[("pool", "other"), ("device", "0")]), 0.0);
    assert_eq!(value(&read, "cuda_mem_ring_free_bytes", &[]), f64::from(1 << 16));
    assert_eq!(value(&read, "cuda_mem_frames_abandoned_total", &[("ring", "frames")]), 1.0);
    let memory = value(&read, "cuda_mem_device_memory_bytes", &[("device", "0")]);
    assert_eq!(memory, bench.context.memory_info()?.total as f64);
    assert!(read.contains_key("cuda_mem_driver_pool_used_bytes"));
    let prefixes: BTreeSet<_> = read.keys().map(|name| name.split('_').take(3).collect::<Vec<_>>().join("_")).collect();
    assert_eq!(prefixes.len(), 6, "{prefixes:?}");
    drop(kept);
    Ok(())
}

#[test]
fn sizes_of_blocks_are_a_cumulative_histogram() -> Outcome {
    let bench = Bench::new()?;
    let counted = Statistics::new(&bench.pool);
    let sizes = [1, 255, 256, 1023, 1024, 100_000];
    let kept = sizes.map(|size| counted.zeroed::<u8>(size, &bench.stream));
    let mut metrics = Exposition::new();
    metrics.add(&[("source", "a")], &counted.counts())?;
    let read = parse(&metrics.to_string())?;
    let histogram = &read["cuda_mem_resource_block_size_bytes"];
    assert_eq!(histogram.kind, "histogram");
    let sample = |suffix: &str, labels: &[(&str, &str)]| histogram.samples[&(suffix.to_owned(), labelled(labels))];
    let upto = |bound: &str| sample("_bucket", &[("le", bound), ("source", "a")]);
    let allocated: Vec<usize> = sizes.to_vec();
    for bound in [255, 1023, 4095, 65_535, 262_143] {
        let expected = allocated.iter().filter(|size| **size <= bound).count();
        assert_eq!(upto(&bound.to_string()), expected as f64, "{bound}");
    }
    assert_eq!((upto("+Inf"), sample("_count", &[("source", "a")])), (6.0, 6.0));
    assert_eq!(sample("_sum", &[("source", "a")]), allocated.iter().sum::<usize>() as f64);
    for buffer in kept {
        buffer?;
    }
    Ok(())
}
