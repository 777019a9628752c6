//! Tests the commands around pools as users see them: pictures, replays, figures, and the messages on bad input.

use crate::common::{Ended, Temporary, ended, on_software};
use cuda_mem::adaptor::named;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::pool::{Pool, PoolOptions, Snapshot};
use cuda_mem::{Buffer, Driver, Stream};
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;

fn run(arguments: &[&str]) -> Ended {
    ended(on_software(arguments).output().unwrap())
}

/// A pool that was used. One of its blocks has a name that contains markup.
fn snapshot(trace_capacity: usize) -> Snapshot {
    let context = Driver::software().unwrap().device(0).unwrap().primary_context().unwrap();
    let (stream, other) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let mut settings = PoolOptions::default();
    (settings.trace_capacity, settings.tracking) = (trace_capacity, cuda_mem::pool::Tracked::Names);
    let pool = Pool::new(&DeviceMemory::new(&context), &settings).unwrap();
    let allocate = |size, stream| Buffer::<u8, _>::uninit(&pool, size, stream).unwrap();
    let kept = named("<script>alert(\"x\")</script> & more", || allocate(100_000, &stream));
    drop(allocate(5 << 20, &other));
    // Thread caches keep these blocks.
    drop((allocate(4096, &stream), allocate(1 << 20, &other)));
    let snapshot = pool.snapshot();
    drop(kept);
    snapshot
}

/// Parses SVG as an XML reader would: every element must be closed, and text must contain no unescaped markup. Returns
/// how often each element occurs.
fn elements(svg: &str) -> std::collections::BTreeMap<String, usize> {
    let (mut open, mut seen) = (Vec::new(), std::collections::BTreeMap::new());
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "{}", &rest[..start]);
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start + 1..end];
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None => {
                let name = tag.split([' ', '/', '\n']).next().unwrap().to_owned();
                *seen.entry(name.clone()).or_insert(0) += 1;
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, [""; 0]);
    seen
}

#[test]
fn a_pool_is_drawn_at_a_moment_and_over_time() {
    for (name, trace_capacity) in [("moment", 0), ("time", 1000)] {
        let snapshot = snapshot(trace_capacity);
        let (json, svg) =
            (Temporary::new(&format!("{name}.json"), snapshot.to_json()), Temporary::new(&format!("{name}.svg"), ""));
        let ended = run(&["pool-map", json.path(), "-o", svg.path()]);
        assert_eq!((ended.code, &*ended.out), (Some(0), ""), "{}", ended.error);
        let svg = std::fs::read_to_string(svg.path()).unwrap();
        let seen = elements(&svg);
        assert_eq!(seen["svg"], 1);
        assert!(!seen.contains_key("script"), "{svg}");
        assert!(svg.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; more\n"), "{svg}");
        for words in ["Pool of device 0", "requested 97.7 KiB", "allocated</text>"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        let drawn = |class: &str| svg.matches(&format!("class=\"block {class}\"")).count();
        if trace_capacity == 0 {
            // One in the legend.
            assert_eq!((drawn("allocated"), drawn("in-cache")), (2, 3), "{svg}");
            assert!(drawn("free") > 1 && svg.contains(", 102400 bytes at offset "), "{svg}");
        } else {
            assert_eq!((drawn("allocated"), drawn("freed"), drawn("free")), (2, 4, 3), "{svg}");
            assert!(svg.contains("freed at") && svg.contains("still there") && svg.contains(" us</text>"), "{svg}");
        }
        // The picture is the same from standard input to standard output.
        let mut child = on_software(&["pool-map", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(snapshot.to_json().as_bytes()).unwrap();
        assert_eq!(self::ended(child.wait_with_output().unwrap()).out, svg);
    }
}

#[test]
fn what_is_no_snapshot_is_refused_and_nothing_is_written() {
    let json = snapshot(10).to_json();
    let output = std::env::temp_dir().join(format!("cuda-mem-pools-{}-never.svg", std::process::id()));
    for (name, content, words) in [
        ("cut", &json[..json.len() / 2], "cut off: EOF while parsing"),
        (
            "version",
            &json.replace("\"format\":2", "\"format\":99"),
            "is of format 99, but this release reads formats 1 and 2",
        ),
        ("array", "[]", "this is no snapshot of a pool"),
        ("csv", "Thread,Time,Action,Pointer,Size,Stream\n", "this is no snapshot of a pool"),
        ("state", &json.replace("\"allocated\",\"stream\"", "\"melted\",\"stream\""), "unknown variant `melted`"),
    ] {
        let file = Temporary::new(&format!("bad-{name}"), content);
        let ended = run(&["pool-map", file.path(), "-o", output.to_str().unwrap()]);
        assert_eq!(ended.code, Some(1), "{name}");
        assert!(ended.error.contains(words) && ended.error.contains(file.path()), "{name}: {}", ended.error);
        assert!(!output.exists(), "{name}");
    }
    let ended = run(&["pool-map", "/no/such/snapshot"]);
    assert!(ended.code == Some(1) && ended.error.contains("cannot read /no/such/snapshot"), "{}", ended.error);
    let good = Temporary::new("good", json);
    let ended = run(&["pool-map", good.path(), "-o", "/no/such/folder/pool.svg"]);
    assert!(ended.code == Some(1) && ended.error.contains("cannot write /no/such/folder"), "{}", ended.error);
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let json = Temporary::new("full.json", snapshot(10).to_json());
    let trace = Temporary::new("full.csv", LOG);
    for arguments in [&["pool-map", json.path()][..], &["replay", trace.path()], &["replay", trace.path(), "--json"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let ended = ended(on_software(arguments).stdout(full).output().unwrap());
        assert_eq!(ended.code, Some(1), "{arguments:?}");
        assert!(ended.error.contains("cannot write to standard output: "), "{}", ended.error);
    }
    // A reader that has gone away is not an error.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = ended(on_software(&["pool-map", json.path()]).stdout(writer).output().unwrap());
    assert_eq!((ended.code, &*ended.error), (Some(0), ""));
}

#[test]
fn pool_map_draws_or_refuses_extreme_snapshots_without_a_crash() {
    let json = snapshot(100).to_json();
    for (from, to) in [
        ("\"offset\":0", "\"offset\":18446744073709551615"),
        ("\"size\":", "\"size\":1844674407370955161"),
        ("\"time_ns\":", "\"time_ns\":1844674407370"),
        ("\"address\":", "\"address\":0"),
        ("\"current\":", "\"current\":-"),
    ] {
        let file = Temporary::new("wild", json.replace(from, to));
        let ended = run(&["pool-map", file.path()]);
        assert!(
            ended.code == Some(0) || ended.error.contains("no snapshot"),
            "{from}: {:?} {}",
            ended.code,
            ended.error
        );
        if ended.code == Some(0) {
            assert!(!ended.out.contains("NaN") && !ended.out.contains("inf"), "{from}: {}", ended.out);
            elements(&ended.out);
        }
    }
}

const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    11,10:00:00.000001,allocate,0x1000,4096,0x1\n\
    12,10:00:00.000002,allocate,0x2000,1048576,0x2\n\
    11,10:00:00.000003,free,0x2000,1048576,0x2\n\
    11,10:00:00.000004,free,0x9000,16,0x1\n\
    11,10:00:00.000005,allocate failure,0x0,99999999,0x1\n";

#[test]
fn a_log_of_rmm_is_replayed_on_every_pool() {
    let log = Temporary::new("log.csv", LOG);
    let ended = run(&["replay", log.path(), "--pool", "ours-buffers,ours,driver,plain", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&report["ok"], &report["software"]), (&true.into(), &true.into()));
    let facts = ["events", "operations", "blocks", "unknown_frees", "missing_frees", "left_out", "lost"];
    assert_eq!(facts.map(|name| report["trace"][name].as_u64().unwrap()), [5, 3, 2, 1, 0, 1, 0]);
    let replays = report["replays"].as_array().unwrap();
    let pools: Vec<_> = replays.iter().map(|one| one["pool"].as_str().unwrap()).collect();
    assert_eq!(pools, ["ours, buffers", "ours, resource", "driver's pool", "cuMemAlloc"]);
    for one in replays {
        assert_eq!((&one["allocate"]["count"], &one["free"]["count"]), (&2.into(), &1.into()));
        assert_eq!(
            (&one["streams"], &one["threads"], &one["peak_requested"]),
            (&2.into(), &2.into(), &1_052_672.into())
        );
        let reserved = one["peak_reserved"].as_u64();
        assert_eq!(reserved.is_none(), one["pool"] == "cuMemAlloc");
        assert!(reserved.is_none_or(|reserved| reserved >= 1_052_672), "{one}");
        assert_eq!(one["fragmentation"].is_null(), reserved.is_none());
    }
    let ended = run(&["replay", log.path()]);
    for words in [
        "5 events, 3 operations on 2 blocks",
        "note: 1 frees of blocks",
        "ours, resource\n  allocate",
        "p99.9",
        "fragmentation",
        "No GPU was used",
    ] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
}

#[test]
fn the_trace_of_a_pool_is_replayed_with_its_streams() {
    let mut text = Vec::new();
    snapshot(100).trace.unwrap().write(&mut text).unwrap();
    let trace = Temporary::new("trace.csv", text);
    let ended = run(&["replay", trace.path(), "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&report["trace"]["blocks"], &report["replays"][0]["streams"]), (&4.into(), &2.into()));
}

#[test]
fn what_is_no_trace_is_refused_with_line_column_and_value() {
    for (name, content, words) in [
        ("value", LOG.replace("free,0x2000", "free,here"), "line 4, column Pointer: the value is \"here\""),
        ("cut", LOG[..LOG.len() - 20].to_owned(), "line 6: there are 3 fields, but the head line names 6"),
        ("nothing", String::new(), "but a trace begins with"),
        ("json", snapshot(0).to_json(), "but a trace begins with"),
        ("version", "#cuda-mem-trace,version=3,lost=0\n".to_owned(), "the trace is of version 3"),
        ("empty", "Thread,Time,Action,Pointer,Size,Stream\n".to_owned(), "the trace contains no allocation"),
    ] {
        let file = Temporary::new(&format!("trace-{name}"), content);
        for command in
            [&["replay", file.path(), "--json"][..], &["bench", "pool", "--brief", "--json", "--trace", file.path()]]
        {
            if name == "empty" && command[0] == "bench" {
                continue;
            }
            let ended = run(command);
            assert_eq!(ended.code, Some(1), "{name}: {}", ended.out);
            assert!(ended.error.contains(words) && ended.error.contains(file.path()), "{name}: {}", ended.error);
            let report: Value = serde_json::from_str(&ended.out).unwrap();
            assert!(report["ok"] == false && report["error"].as_str().unwrap().contains(words), "{report}");
        }
    }
}

#[test]
fn the_bench_has_a_row_for_every_workload_and_subject() {
    let ended = run(&["bench", "pool", "--brief", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&report["ok"], &report["software"], &report["driver"]),
        (&true.into(), &true.into(), &"softgpu".into())
    );
    let rows = report["rows"].as_array().unwrap();
    let count = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    let counts = ["pair", "random", "holes", "threads, one stream", "threads, own streams", "replay"].map(count);
    assert_eq!(counts, [12, 4, 6, 8, 8, 4]);
    for row in rows {
        assert!(row["mean_ns"].as_f64().unwrap() > 0.0, "{row}");
        let threads = row["workload"].as_str().unwrap().starts_with("threads");
        assert_eq!((row["per_second"].is_number(), row["p999_ns"].is_number()), (threads, !threads), "{row}");
    }
    let saved = Temporary::new("saved.csv", "");
    let ended = run(&["bench", "pool", "--brief", "--pool", "ours", "--save-trace", saved.path()]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let ended = run(&["replay", saved.path()]);
    assert!(ended.code == Some(0) && ended.out.contains("2 streams, 2 threads"), "{} {}", ended.out, ended.error);
    let ended = run(&["bench", "pool", "--brief", "--save-trace", "/no/such/folder/trace.csv"]);
    assert!(ended.code == Some(1) && ended.error.contains("cannot write /no/such/folder/trace.csv"), "{}", ended.error);
    let log = Temporary::new("bench-log.csv", LOG);
    let ended = run(&["bench", "pool", "--brief", "--pool", "ours,driver", "--trace", log.path()]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    for words in
        ["ours, resource", "driver's pool", "pair, 4 KiB", "256 holes", "2 threads, own streams", "the software GPU's"]
    {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    assert!(!ended.out.contains("cuMemAlloc  ") && ended.out.contains("1.0 MiB"), "{}", ended.out);
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for (arguments, words) in [
        (&["pool-map"][..], "SNAPSHOT"),
        (&["replay"], "TRACE"),
        (&["replay", "x", "--pool", "best"], "ours-buffers"),
        (&["bench"], "Usage"),
        (&["bench", "pool", "--pool", "ours,"], "possible values"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.out);
        assert!(ended.error.contains(words), "{arguments:?}: {}", ended.error);
    }
    for arguments in [&["pool-map", "--help"][..], &["replay", "--help"], &["bench", "pool", "--help"]] {
        let ended = run(arguments);
        assert!(
            ended.code == Some(0) && ended.out.contains("Examples:") && ended.out.contains("Exit status"),
            "{}",
            ended.out
        );
    }
}
