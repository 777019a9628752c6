//! The symbols of a cubin: names of kernels, and variables. What else an ELF file for a GPU contains is not documented.

use super::image::{Image, Linkage, Refused, Signature, Variable};
use cuda_sys::CUresult;
use elf::ElfBytes;
use elf::abi::{SHN_LORESERVE, SHT_NOBITS, STB_LOCAL, STB_WEAK, STT_FUNC, STT_OBJECT};
use elf::endian::LittleEndian;
use elf::symbol::Symbol;
use std::fmt::Display;

/// The first bytes of an ELF file.
pub(super) const MAGIC: [u8; 4] = *b"\x7fELF";
/// The size of its header.
pub(super) const HEADER: usize = 64;
/// The machine of NVIDIA's GPUs in the registry of ELF.
const MACHINE: u16 = 190;
/// The most bytes of names and values, in sizes of the file. Those of a sound file hardly overlap.
const MOST_COPIED: usize = 4;
/// The largest alignment of a variable.
const MOST_ALIGNED: u64 = 1 << 12;

pub(super) fn refused(what: impl Display) -> Refused {
    let text = format!("softgpu: the cubin cannot be read: {what}");
    Refused::new(CUresult::CUDA_ERROR_INVALID_IMAGE, text)
}

/// The size of a cubin by its header: its tables of segments and sections are at its end.
pub(super) fn size(header: &[u8; HEADER]) -> Option<usize> {
    let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let word = |at: usize| {
        let bytes = header[at..at + 8].try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let end = |offset: usize, entry: usize, count: usize| word(offset)?.checked_add(half(entry) * half(count));
    Some(end(32, 54, 56)?.max(end(40, 58, 60)?).max(HEADER))
}

/// Reads the symbols.
pub(super) fn read(bytes: &[u8]) -> Result<Image, Refused> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(bytes).map_err(refused)?;
    if file.ehdr.e_machine != MACHINE {
        let text = format!("softgpu: the ELF file is for machine {}, not for a GPU ({MACHINE})", file.ehdr.e_machine);
        return Err(Refused::new(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, text));
    }
    let (symbols, names) = file.symbol_table().map_err(refused)?.ok_or_else(|| refused("it has no symbols"))?;
    let (Some(sections), Some(titles)) = file.section_headers_with_strtab().map_err(refused)? else {
        return Err(refused("it has no sections"));
    };
    let mut image = Image::default();
    let mut room = MOST_COPIED * bytes.len();
    for symbol in symbols.iter().filter(is_shown) {
        let name = names.get(symbol.st_name as usize).map_err(refused)?;
        let take = |room: usize, size| room.checked_sub(size).ok_or_else(|| refused("its symbols overlap"));
        room = take(room, name.len())?;
        let section = sections.get(symbol.st_shndx.into()).map_err(refused)?;
        let title = titles.get(section.sh_name as usize).map_err(refused)?;
        let linkage = if symbol.st_bind() == STB_WEAK { Linkage::Weak } else { Linkage::All };
        match symbol.st_symtype() {
            STT_FUNC if title.strip_prefix(".text.") == Some(name) => {
                image.signatures.push(Signature { name: name.to_owned(), linkage, ..Signature::default() });
            }
            STT_OBJECT if [".nv.global", ".nv.constant"].iter().any(|start| title.starts_with(start)) => {
                let size = usize::try_from(symbol.st_size).map_err(refused)?;
                let initial = if section.sh_type == SHT_NOBITS {
                    Vec::new()
                } else {
                    let data = file.section_data(&section).map_err(refused)?.0;
                    let start = usize::try_from(symbol.st_value).map_err(refused)?;
                    let end = start.checked_add(size).filter(|end| *end <= data.len());
                    let end = end.ok_or_else(|| refused(format_args!("the variable `{name}` leaves its section")))?;
                    room = take(room, size)?;
                    data[start..end].to_vec()
                };
                let align = section.sh_addralign.clamp(1, MOST_ALIGNED).next_power_of_two();
                let align = usize::try_from(align).map_err(refused)?;
                let name = name.to_owned();
                image.variables.push(Variable { name, size, align, linkage, initial, ..Variable::default() });
            }
            _ => {}
        }
    }
    Ok(image)
}

/// Whether programs find it by its name. Functions that kernels call are local, and several variables may have one local name.
fn is_shown(symbol: &Symbol) -> bool {
    symbol.st_shndx != 0 && symbol.st_shndx < SHN_LORESERVE && symbol.st_bind() != STB_LOCAL
}
