//! Readers and writers.

use crate::soak::checked_buffer::CheckedBuffer;
use crate::soak::{Done, Hands};
use cuda_mem::Refused;
use cuda_mem::io::{BufferReader, BufferWriter};
use std::io::{Read, Seek, SeekFrom, Write};

/// Writes in small pieces, and reads them.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let CheckedBuffer { buffer, mut model, from, mut history } = hands.take()?;
    history.add("written by a writer".to_owned());
    hands.doing("a writer");
    let staging = [0, 2, 100, 4096][hands.below(4)];
    let mut writer = BufferWriter::with_staging(buffer, staging);
    for _ in 0..hands.below(8) {
        let range = hands.range(model.len());
        let bytes = hands.bytes(range.len().min(1000));
        writer.seek(SeekFrom::Start(range.start as u64))?;
        writer.write_all(&bytes)?;
        model[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
    }
    let buffer = writer.into_inner().map_err(|refused: Box<Refused<_>>| refused.error)?;
    hands.doing("a reader");
    let mut reader = BufferReader::new(buffer);
    let range = hands.range(model.len());
    reader.seek(SeekFrom::Start(range.start as u64))?;
    let mut seen = vec![0; range.len()];
    reader.read_exact(&mut seen)?;
    hands.same("what was written", &seen, &model[range])?;
    hands.keep(CheckedBuffer { buffer: reader.into_inner(), model, from, history });
    Ok(())
}
