//! Buffers as readers and writers. Runs on any driver.

use cuda_mem::buffer::{TransferDestination, TransferSource};
use cuda_mem::io::{BufferReader, BufferWriter};
use cuda_mem::memory::kind;
use cuda_mem::{Buffer, Error, Result, SharedBuffer};
use std::error::Error as StdError;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use testkit::timing::Numbers;
use testkit::{Bench, pattern};

type Outcome = Result<(), Box<dyn StdError>>;
type Device = Buffer<u8, kind::Device>;

trait Buffers {
    fn zeroed(&self, length: usize) -> Result<Device>;
    fn holding(&self, bytes: &[u8]) -> Result<Device>;
}

impl Buffers for Bench {
    fn zeroed(&self, length: usize) -> Result<Device> {
        Buffer::zeroed(&self.pool, length, &self.stream)
    }

    fn holding(&self, bytes: &[u8]) -> Result<Device> {
        Buffer::from_slice(&self.pool, bytes, &self.stream)
    }
}

fn invalid<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::InvalidInput)
}

#[test]
fn a_reader_reads_seeks_and_ends_at_the_end() -> Outcome {
    let bench = Bench::new()?;
    let bytes = pattern(1000, 5);
    let buffer = bench.holding(&bytes)?;
    let mut reader = BufferReader::new(&buffer);
    assert_eq!((reader.position(), reader.remaining()), (0, 1000));
    let mut hundred = [0; 100];
    assert_eq!(reader.seek(SeekFrom::Start(950))?, 950);
    assert_eq!(reader.read(&mut hundred)?, 50);
    assert_eq!((reader.stream_position()?, &hundred[..50]), (1000, &bytes[950..]));
    assert_eq!(reader.read(&mut hundred)?, 0);
    assert_eq!(reader.seek(SeekFrom::Start(0))?, 0);
    assert_eq!(reader.read(&mut hundred[..75])?, 75);
    assert_eq!((reader.position(), &hundred[..75]), (75, &bytes[..75]));
    reader.read_exact(&mut hundred[..25])?;
    assert_eq!(hundred[..25], bytes[75..100]);
    // `read_at` keeps the position.
    assert_eq!(reader.read_at(990, &mut hundred)?, 10);
    assert_eq!((reader.position(), &hundred[..10]), (100, &bytes[990..]));
    assert_eq!(reader.read_at(1000, &mut hundred)?, 0);
    let error = reader.read_at(1001, &mut hundred).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { offset: 1001, length: 100, size: 1000, .. }), "{error}");
    // Seeks from all three bases. A refused seek keeps the position.
    assert_eq!(reader.seek(SeekFrom::Current(-50))?, 50);
    assert_eq!(reader.seek(SeekFrom::End(-1))?, 999);
    assert_eq!(reader.seek(SeekFrom::End(0))?, 1000);
    for target in [SeekFrom::Start(1001), SeekFrom::Current(1), SeekFrom::Current(-1001), SeekFrom::End(1)] {
        assert!(invalid(reader.seek(target)), "{target:?}");
        assert_eq!(reader.position(), 1000);
    }
    assert_eq!(reader.read_exact(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    reader.rewind()?;
    let mut rest = b"before".to_vec();
    assert_eq!(reader.read_to_end(&mut rest)?, 1000);
    assert_eq!((&rest[..6], &rest[6..], reader.remaining()), (&b"before"[..], &bytes[..], 0));
    Ok(())
}

#[test]
fn a_reader_owns_or_borrows_and_std_makes_it_buffered() -> Outcome {
    let bench = Bench::new()?;
    let text = b"first line\nsecond\n\nlast";
    let lines: Vec<_> = BufReader::new(BufferReader::new(bench.holding(text)?)).lines().collect::<io::Result<_>>()?;
    assert_eq!(lines, ["first line", "second", "", "last"]);
    let shared = Arc::new(bench.holding(text)?);
    let mut buffered = BufReader::with_capacity(8, BufferReader::new(shared.clone()));
    let mut line = vec![];
    buffered.seek(SeekFrom::Start(11))?;
    buffered.read_until(b'\n', &mut line)?;
    assert_eq!((&line[..], buffered.stream_position()?), (&b"second\n"[..], 18));
    let reader = buffered.into_inner();
    assert!(Arc::ptr_eq(reader.get_ref(), &shared));
    assert_eq!(Arc::strong_count(&reader.into_inner()), 2);
    let mut sink = vec![];
    assert_eq!(io::copy(&mut BufferReader::new(&mut bench.holding(text)?), &mut sink)?, text.len() as u64);
    assert_eq!(sink, text);
    Ok(())
}

#[test]
fn shared_reads_copy_nothing_and_keep_the_memory() -> Outcome {
    let bench = Bench::new()?;
    let bytes = pattern(1000, 6);
    let whole: SharedBuffer<u8, kind::Device> = bench.holding(&bytes)?.into_shared();
    let address = whole.device_pointer();
    let mut reader = BufferReader::new(whole);
    reader.seek(SeekFrom::Start(10))?;
    let part = reader.read_shared(20)?;
    let rest = reader.read_shared(usize::MAX)?;
    let none = reader.read_shared(5)?;
    assert_eq!((part.device_pointer(), rest.device_pointer()), (address + 10, address + 30));
    assert_eq!((part.len(), rest.len(), none.len(), reader.position()), (20, 970, 0, 1000));
    drop(reader);
    assert_eq!((part.to_vec()?, rest.to_vec()?), (bytes[10..30].to_vec(), bytes[30..].to_vec()));
    Ok(())
}

#[test]
fn empty_buffers_are_read_written_and_sought() -> Outcome {
    let bench = Bench::new()?;
    let mut empty = bench.zeroed(0)?;
    let mut reader = BufferReader::new(&empty);
    assert_eq!(reader.read(&mut [0; 10])?, 0);
    assert_eq!(reader.read_at(0, &mut [0; 10])?, 0);
    assert_eq!(reader.read_to_end(&mut vec![])?, 0);
    assert_eq!((reader.seek(SeekFrom::Start(0))?, reader.seek(SeekFrom::End(0))?), (0, 0));
    assert!(invalid(reader.seek(SeekFrom::Start(1))));
    for bytes in [0, 100] {
        let mut writer = BufferWriter::with_staging(&mut empty, bytes);
        assert_eq!((writer.write(b"")?, writer.write(b"x")?), (0, 0));
        assert_eq!(writer.write_all(b"x").unwrap_err().kind(), ErrorKind::WriteZero);
        assert_eq!((writer.seek(SeekFrom::End(0))?, writer.write_at(0, b"x")?), (0, 0));
        assert!(invalid(writer.seek(SeekFrom::Start(1))));
        writer.flush()?;
        writer.close().map_err(Error::from)?;
    }
    let mut shared = BufferReader::new(empty.into_shared());
    assert!(shared.read_shared(3)?.is_empty());
    Ok(())
}

#[test]
fn buffer_writer_writes_and_rewrites_chunks_at_any_staging_size() -> Outcome {
    let bench = Bench::new()?;
    let (first, again) = (pattern(65_536, 1), pattern(65_536, 2));
    for bytes in [0, 1, 2, 3, 4096, 8192, 1 << 20] {
        let mut writer = BufferWriter::with_staging(bench.zeroed(65_536)?, bytes);
        for chunk in first.chunks(1000) {
            let before = writer.position();
            writer.write_all(chunk)?;
            assert_eq!(writer.stream_position()? as usize, before + chunk.len());
        }
        assert_eq!((writer.position(), writer.remaining()), (65_536, 0));
        writer.flush()?;
        assert_eq!(writer.get_ref().to_vec()?, first, "staging of {bytes}");
        writer.seek(SeekFrom::Start(0))?;
        assert_eq!(writer.position(), 0);
        for chunk in again.chunks(1000) {
            writer.write_all(chunk)?;
        }
        assert_eq!(writer.into_inner()?.to_vec()?, again, "staging of {bytes}");
    }
    assert_eq!(bench.context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn write_at_preserves_the_position_and_the_staged_byte_order() -> Outcome {
    let bench = Bench::new()?;
    for bytes in [0, 64, 300, 8192] {
        // Stages bytes 0 to 100, overwrites 25 of them, and continues at 100.
        let data = pattern(200, 9);
        let mut writer = BufferWriter::with_staging(bench.zeroed(200)?, bytes);
        writer.write_all(&data[..100])?;
        assert_eq!(writer.write_at(50, &[0xaa; 25])?, 25);
        assert_eq!(writer.position(), 100);
        writer.write_all(&data[100..125])?;
        assert_eq!(writer.write_at(110, &[0xbb; 5])?, 5);
        writer.write_all(&data[125..])?;
        // Later writes overwrite a write over bytes that were not staged yet, and not the other way round.
        writer.seek(SeekFrom::Start(0))?;
        writer.write_at(0, &[0xcc; 10])?;
        writer.write_all(&[0xdd; 5])?;
        let mut expected = data;
        expected[50..75].fill(0xaa);
        expected[110..115].fill(0xbb);
        expected[..10].fill(0xcc);
        expected[..5].fill(0xdd);
        assert_eq!(writer.into_inner()?.to_vec()?, expected, "staging of {bytes}");
    }
    Ok(())
}

#[test]
fn a_seek_sends_what_is_staged_to_where_it_was_written() -> Outcome {
    let bench = Bench::new()?;
    for bytes in [0, 8, 64] {
        let mut writer = BufferWriter::with_staging(bench.zeroed(12)?, bytes);
        writer.write_all(b"abc")?;
        assert_eq!(writer.seek(SeekFrom::Start(6))?, 6);
        assert_eq!(writer.staged(), 0);
        writer.write_all(b"def")?;
        assert_eq!(writer.seek(SeekFrom::Current(-1))?, 8);
        writer.write_all(b"X")?;
        assert_eq!(writer.seek(SeekFrom::End(-2))?, 10);
        writer.write_all(b"yz")?;
        assert_eq!(writer.seek(SeekFrom::End(0))?, 12);
        for target in [SeekFrom::Start(13), SeekFrom::End(1), SeekFrom::Current(-13)] {
            assert!(invalid(writer.seek(target)));
            assert_eq!(writer.position(), 12);
        }
        assert_eq!(writer.into_inner()?.to_vec()?, b"abc\0\0\0deX\0yz");
    }
    Ok(())
}

#[test]
fn writes_end_at_the_end_of_the_buffer() -> Outcome {
    let bench = Bench::new()?;
    for bytes in [0, 4, 64] {
        let whole = bench.holding(&[7; 20])?;
        let (target, mut behind) = whole.split_at(10)?;
        let mut writer = BufferWriter::with_staging(target, bytes);
        writer.write_all(&[1; 8])?;
        let error = writer.write_all(&[2; 5]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
        assert_eq!((writer.position(), writer.remaining(), writer.write(&[3])?), (10, 0, 0));
        assert_eq!(writer.write_at(9, &[4; 9])?, 1);
        assert_eq!(writer.write_at(10, &[5; 9])?, 0);
        let error = writer.write_at(11, &[6]).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { offset: 11, length: 1, size: 10, .. }), "{error}");
        assert_eq!(writer.into_inner()?.to_vec()?, [1, 1, 1, 1, 1, 1, 1, 1, 2, 4]);
        assert_eq!(behind.to_vec()?, [7; 10], "staging of {bytes}: nothing is written behind the end");
        behind.fill(.., 0)?;
    }
    Ok(())
}

#[test]
fn the_edges_of_staging() -> Outcome {
    let bench = Bench::new()?;
    let data = pattern(1000, 3);
    let mut writer = BufferWriter::new(bench.zeroed(1000)?);
    writer.write_all(&data[..50])?;
    assert_eq!(writer.staged(), 0, "nothing is staged without staging");
    writer.set_staging(200)?; // two halves of 100
    assert_eq!(writer.write(b"")?, 0);
    assert_eq!((writer.position(), writer.staged()), (50, 0));
    writer.write_all(&data[50..90])?;
    assert_eq!(writer.staged(), 40);
    writer.write_all(&data[90..150])?;
    assert_eq!(writer.staged(), 0, "a full half is sent");
    writer.write_all(&data[150..250])?;
    assert_eq!(writer.staged(), 0, "as much as a half");
    writer.write_all(&data[250..260])?;
    writer.write_all(&data[260..490])?;
    assert_eq!(writer.staged(), 0, "more than a half: 10 and 90 by the half, then 140 at once");
    writer.set_staging(400)?;
    assert_eq!(writer.staged(), 0, "another staging flushes");
    writer.write_all(&data[490..600])?;
    assert_eq!(writer.staged(), 110);
    writer.flush()?;
    writer.flush()?;
    assert_eq!((writer.staged(), writer.position()), (0, 600));
    writer.write_all(&data[600..610])?;
    writer.set_staging(0)?;
    writer.write_all(&data[610..])?;
    assert_eq!(writer.staged(), 0);
    assert_eq!(writer.into_inner()?.to_vec()?, data);
    Ok(())
}

#[test]
fn a_drop_and_a_close_flush() -> Outcome {
    let bench = Bench::new()?;
    let mut buffer = bench.zeroed(6)?;
    let mut writer = BufferWriter::with_staging(&mut buffer, 100);
    writer.write_all(b"abc")?;
    drop(writer);
    assert_eq!(buffer.to_vec()?, b"abc\0\0\0");
    let mut writer = BufferWriter::with_staging(&mut buffer, 100);
    writer.seek(SeekFrom::Start(3))?;
    writer.write_all(b"def")?;
    writer.close().map_err(Error::from)?;
    assert_eq!(buffer.to_vec()?, b"abcdef");
    assert_eq!(bench.context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn staging_in_the_callers_memory_and_from_another_thread() -> Outcome {
    /// A user's own memory type.
    #[derive(Debug)]
    struct Own(Box<[u8]>);
    // SAFETY: the bytes lie on the heap, so a move does not change their address.
    unsafe impl TransferSource<u8> for Own {
        fn source(&self) -> &[u8] {
            &self.0
        }
    }
    // SAFETY: as above.
    unsafe impl TransferDestination<u8> for Own {
        fn destination(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    let bench = Bench::new()?;
    let data = pattern(5000, 8);
    // Halves of different sizes. An empty half collects nothing.
    for (left, right) in [(100, 37), (1, 1), (0, 0), (0, 10)] {
        let half = |size: usize| Own(vec![0; size].into());
        let writer = BufferWriter::with_staging_memory(bench.zeroed(5000)?, [half(left), half(right)]);
        let data = data.clone();
        let writer = std::thread::spawn(move || {
            let mut writer = writer;
            data.chunks(23).try_for_each(|chunk| writer.write_all(chunk)).map(|()| writer)
        });
        let writer = writer.join().expect("no panic")?;
        assert_eq!(writer.into_inner()?.to_vec()?, pattern(5000, 8), "halves of {left} and {right}");
    }
    Ok(())
}

#[test]
fn any_mix_of_writes_leaves_what_a_vector_would_hold() -> Outcome {
    let bench = Bench::new()?;
    let mut numbers = Numbers(7);
    let mut next = |below| numbers.below(below);
    for round in 0..60 {
        let size = next(500);
        let staging = [0, 2, 16, 90, 2000][round % 5];
        let (mut model, mut position) = (vec![0u8; size], 0);
        let mut writer = BufferWriter::with_staging(bench.zeroed(size)?, staging);
        for step in 0..40 {
            let bytes = vec![step as u8 + 1; next(120)];
            match next(6) {
                0 => {
                    position = next(size + 1);
                    writer.seek(SeekFrom::Start(position as u64))?;
                }
                1 => {
                    let offset = next(size + 1);
                    let count = bytes.len().min(size - offset);
                    assert_eq!(writer.write_at(offset, &bytes)?, count);
                    model[offset..][..count].copy_from_slice(&bytes[..count]);
                }
                2 => writer.flush()?,
                _ => {
                    let count = writer.write(&bytes)?;
                    assert_eq!(count == 0, bytes.is_empty() || position == size);
                    model[position..][..count].copy_from_slice(&bytes[..count]);
                    position += count;
                }
            }
            assert_eq!(writer.position(), position);
        }
        assert_eq!(writer.into_inner()?.to_vec()?, model, "round {round}, staging of {staging}");
    }
    assert_eq!(bench.context.take_drop_errors(), Default::default());
    Ok(())
}
