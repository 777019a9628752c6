//! What PTX declares of a variable or a parameter: `.align 8 .b8 name[3][4]`.

use super::reader::{Reader, Result};
use super::tokens::Token;

/// The most bytes of a variable, or of the shared or local memory of a kernel.
pub(super) const MOST: usize = 1 << 40;

/// The most dimensions of an array.
const DIMENSIONS: usize = 16;

/// What precedes a name: `.global .align 8 .b8`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Declared {
    /// The size of an element in bytes, and its alignment. An element may be a vector of several lanes.
    pub(super) size: usize,
    pub(super) lanes: usize,
    pub(super) align: usize,
    pub(super) managed: bool,
}

/// A name with its dimensions: `a[3][4]`.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    /// The size in bytes; `None` if the first dimension is open.
    pub(super) size: Option<usize>,
    /// The sizes of the parts of each dimension, the outer ones first. The last one is that of a number.
    pub(super) parts: Vec<usize>,
}

impl<'a> Reader<'a> {
    /// Alignment, attributes and type, up to the name.
    pub(super) fn declared(&mut self) -> Result<Declared> {
        let (mut declared, mut align) = (Declared { lanes: 1, ..Declared::default() }, None);
        while let Some(Token::Directive(word)) = self.peek() {
            self.at += 1;
            match word {
                "align" => {
                    // After `.ptr`, the alignment is that of the memory to which the parameter points.
                    let number = self.number()?;
                    if !number.is_power_of_two() || number > 1 << 20 {
                        self.at -= 1;
                        return self.expected("an alignment, which is a power of two");
                    }
                    align = align.or((declared.size == 0).then_some(number));
                }
                "attribute" => {
                    self.sign('(')?;
                    let mut depth = 1_usize;
                    while depth > 0 {
                        match self.next() {
                            Some(Token::Directive("managed")) => declared.managed = true,
                            Some(Token::Sign('(')) => depth += 1,
                            Some(Token::Sign(')')) => depth -= 1,
                            Some(_) => {}
                            None => return self.expected("`)`"),
                        }
                    }
                }
                "v2" => declared.lanes = 2,
                "v4" => declared.lanes = 4,
                "v8" => declared.lanes = 8,
                "ptr" | "global" | "const" | "shared" | "local" | "param" if declared.size > 0 => {}
                word => match size_of(word) {
                    Some(size) if declared.size == 0 => declared.size = size * declared.lanes,
                    _ => {
                        self.at -= 1;
                        return self.expected("a type");
                    }
                },
            }
        }
        if declared.size == 0 {
            return self.expected("a type");
        }
        declared.align = align.unwrap_or(declared.size);
        Ok(declared)
    }

    pub(super) fn named(&mut self, declared: Declared) -> Result<Named<'a>> {
        let name = self.name()?;
        // The dimension that is open has no count.
        let mut counts = Vec::new();
        while self.accept(Token::Sign('[')) {
            if self.accept(Token::Sign(']')) {
                counts.push(None);
            } else {
                counts.push(Some(self.number()?));
                self.sign(']')?;
            }
            if counts.len() > DIMENSIONS {
                return self.expected(format!("fewer dimensions of `{name}`"));
            }
        }
        let lane = declared.size / declared.lanes;
        let (mut size, mut parts) = (declared.size, if declared.lanes > 1 { vec![lane] } else { Vec::new() });
        for count in counts.iter().rev() {
            parts.push(size);
            size = match size.checked_mul(count.unwrap_or(1)) {
                Some(size) if size <= MOST => size,
                _ => return self.expected(format!("a smaller size of `{name}`")),
            };
        }
        parts.reverse();
        Ok(Named { name, size: (!counts.contains(&None)).then_some(size), parts })
    }
}

/// The size of a type in bytes.
fn size_of(word: &str) -> Option<usize> {
    Some(match word {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" | "f32x2" | "texref" | "samplerref" | "surfref" => 8,
        "b128" => 16,
        _ => return None,
    })
}
