//! Traces that are read back, and traces that are refused.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Trace, TraceError> {
    Trace::read(text.as_bytes())
}

const HEAD: &str = "#cuda-mem-trace,version=1,lost=3\ntime_ns,thread,action,address,size,stream,name\n";

#[test]
#[cfg_attr(miri, ignore = "slow there: the strategy's regular expressions")]
fn what_is_written_is_read_back() {
    let text = prop_oneof![Just(String::new()), "[a-z/]{1,9}", any::<String>()];
    let event = (any::<[u64; 5]>(), 0..Action::ALL.len(), text);
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() };
    proptest!(config, |(lost: u64, events in prop::collection::vec(event, 0..20))| {
        let event = |([time_ns, thread, address, size, stream], action, name): ([u64; 5], usize, String)| TraceEvent {
            time_ns, thread, action: Action::ALL[action], address, size, stream,
            name: Some(name).filter(|name| !name.is_empty()).map(Into::into),
        };
        let trace = Trace { lost, events: events.into_iter().map(event).collect() };
        let mut text = Vec::new();
        trace.write(&mut text).unwrap();
        prop_assert_eq!(Trace::read(&text[..]).unwrap(), trace);
    });
}

#[test]
fn columns_are_found_by_name_and_unknown_ones_passed_over() {
    let text =
        "#cuda-mem-trace,version=1\nsize,colour,name,stream,address,action,thread,time_ns\n9,red,a b,0x7,16,free,2,1\n";
    let event = TraceEvent {
        time_ns: 1,
        thread: 2,
        action: Action::Free,
        address: 16,
        size: 9,
        stream: 7,
        name: Some("a b".into()),
    };
    assert_eq!(read(text).unwrap(), Trace { lost: 0, events: vec![event] });
}

#[test]
#[cfg_attr(miri, ignore = "slow there, and the reader has no unsafe code")]
fn errors_name_line_column_and_value() {
    let line = |line: &str| read(&format!("{HEAD}0,1,grow,0x0,5,0x0,\n{line}\n")).unwrap_err().to_string();
    for (text, words) in [
        ("x,1,allocate,0x10,5,0x0,", "line 4, column time_ns: the value is \"x\", but it must be a whole number"),
        ("1,-1,allocate,0x10,5,0x0,", "column thread: the value is \"-1\""),
        ("1,1,seize,0x10,5,0x0,", "line 4, column action: the value is \"seize\", but it must be allocate, free,"),
        ("1,1,free,10h,5,0x0,", "column address: the value is \"10h\", but it must be an address: 0x"),
        ("1,1,free,0x10,18446744073709551616,0x0,", "column size: the value is \"18446744073709551616\""),
        ("1,1,free,0x10,5,,", "column stream: the value is \"\""),
        ("1,1,fre", "line 4: there are 3 fields, but the head line names 7: is the trace cut off"),
        ("1,1,free,0x10,5,0x0,a,b", "line 4: there are 8 fields"),
    ] {
        assert!(line(text).contains(words), "{text}: {}", line(text));
    }
    let whole = |text: &str| read(text).unwrap_err().to_string();
    assert!(whole("").contains("line 1 is \"\", but a trace begins with"), "{}", whole(""));
    assert!(whole("{\"regions\":[]}").contains("Thread,Time,Action,Pointer,Size,Stream"));
    assert!(whole("#cuda-mem-trace,version=2,lost=0\n").contains("of version 2, but this release reads version 1"));
    assert!(whole("#cuda-mem-trace,version=1,lost=x\n").contains("line 1, column lost: the value is \"x\""));
    assert!(whole("#cuda-mem-trace,version=1\ntime_ns,thread\n").contains("line 2: the head line \"time_ns,thread\""));
    let latin = [HEAD.as_bytes(), b"1,1,free,0x10,5,0x0,\xff\n"].concat();
    assert_eq!(Trace::read(&latin[..]).unwrap_err().to_string(), "line 3 is not UTF-8");
}

#[test]
#[cfg_attr(miri, ignore = "slow there, and the reader has no unsafe code")]
fn logs_of_rmm_are_read_in_all_their_dresses() {
    let trace = read(
        "Thread,Time,Action,Pointer,Size,Stream\n\
         140,23:59:59.999999,allocate,0x7f00dead0000,1024,0x2\n\
         141,00:00:00:000001,allocate failure,(nil),99,0\r\n\
         141,00:00:00.000001,free failure,0x10,99,0x0\n\
         140,00:00:00.5,free,0x7f00dead0000,1024,0x2\n",
    )
    .unwrap();
    let seen: Vec<_> =
        trace.events.iter().map(|event| (event.time_ns, event.action, event.size, event.stream)).collect();
    let (free, failure) = (Action::Free, Action::FreeFailure);
    assert_eq!(
        seen,
        [
            (0, Action::Allocate, 1024, 2),
            (2000, Action::OutOfMemory, 99, 0),
            (2000, failure, 99, 0),
            (500_001_000, free, 1024, 2)
        ]
    );
    assert_eq!((trace.events[1].address, trace.events[3].address, trace.events[0].thread), (0, 0x7f00_dead_0000, 140));
    // Seconds since 1970.
    let text =
        "Thread,Time,Action,Pointer,Size,Stream\n1,1634567890.123456,allocate,0x1,2,0x0\n1,1634567891,free,0x1,2,0x0\n";
    assert_eq!(read(text).unwrap().events[1].time_ns, 876_544_000);
    for (line, words) in [
        ("1,25:00:00,free,0x1,2,0x0", "line 2, column Time: the value is \"25:00:00\""),
        ("1,10:00,free,0x1,2,0x0", "column Time"),
        ("1,10:00:00.0000000001,free,0x1,2,0x0", "column Time"),
        (
            "1,10:00:00,deallocate,0x1,2,0x0",
            "column Action: the value is \"deallocate\", but it must be allocate, free,",
        ),
        ("1,10:00:00,free,0x+1,2,0x0", "column Pointer: the value is \"0x+1\""),
    ] {
        let error = read(&format!("Thread,Time,Action,Pointer,Size,Stream\n{line}\n")).unwrap_err().to_string();
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "slow there: the strategy's regular expressions")]
fn no_text_makes_the_reader_panic() {
    let lines =
        "(#cuda-mem-trace,version=1,lost=0|Thread,Time,Action,Pointer,Size,Stream|[0-9:.,x\"\\-a-f]{0,30}|,free,)";
    let text = prop::collection::vec((lines, "[\n\r,\"]{0,2}"), 0..8);
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() };
    proptest!(config, |(text in text)| {
        let text: String = text.into_iter().map(|(line, end)| line + &end).collect();
        // Either read, or refused with a reason.
        if let Err(error) = read(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    });
}
