//! Initial values of PTX variables.

use super::image::{Address, Variable};
use super::reader::{Reader, Result};
use super::tokens::Token;

/// Reads an initial value of numbers of `size` bytes, which ends before the byte `end`. `parts` are the sizes of the parts of
/// each dimension.
pub(super) fn read(
    reader: &mut Reader<'_>,
    variable: &mut Variable,
    size: usize,
    end: usize,
    parts: &[usize],
) -> Result {
    if reader.peek() == Some(Token::Sign('{')) {
        return list(reader, variable, size, end, parts);
    }
    element(reader, variable, size, end)
}

/// A list in braces, for the bytes up to `end`. Its numbers follow each other; a list inside it has a part of its own.
fn list(reader: &mut Reader<'_>, variable: &mut Variable, size: usize, end: usize, parts: &[usize]) -> Result {
    reader.sign('{')?;
    if reader.accept(Token::Sign('}')) {
        return Ok(());
    }
    loop {
        if reader.peek() == Some(Token::Sign('{')) {
            let [part, inner @ ..] = parts else { return reader.expected("fewer braces") };
            let end_of_part = variable.initial.len() + part;
            if inner.is_empty() {
                return reader.expected("fewer braces");
            }
            if end_of_part > end {
                return reader.expected(format!("the end of the value of `{}`", variable.name));
            }
            list(reader, variable, size, end_of_part, inner)?;
            if reader.peek() != Some(Token::Sign('}')) {
                variable.initial.resize(end_of_part, 0);
            }
        } else {
            element(reader, variable, size, end)?;
        }
        if reader.accept(Token::Sign('}')) {
            return Ok(());
        }
        reader.sign(',')?;
    }
}

fn element(reader: &mut Reader<'_>, variable: &mut Variable, size: usize, end: usize) -> Result {
    let offset = variable.initial.len();
    if offset + size > end {
        return reader.expected(format!("the end of the value of `{}`", variable.name));
    }
    let minus = reader.accept(Token::Sign('-'));
    let value = match reader.peek() {
        Some(Token::Number(number)) => {
            let Some(bits) = bits(number, size, minus) else { return reader.expected("a number") };
            reader.next();
            bits
        }
        Some(Token::Name(_)) if !minus => {
            address(reader, variable, offset, size)?;
            0
        }
        _ => return reader.expected("a value"),
    };
    let bytes = value.to_le_bytes();
    variable.initial.extend((0..size).map(|n| bytes.get(n).copied().unwrap_or(0)));
    Ok(())
}

/// The address of a variable: `name`, `generic(name)`, `name+8`, `mask(0xff, name)`. Of a masked address nothing is known.
fn address(reader: &mut Reader<'_>, variable: &mut Variable, offset: usize, size: usize) -> Result {
    let Some(Token::Name(name)) = reader.next() else { return reader.expected("a name") };
    let mut of = Some(name);
    if reader.accept(Token::Sign('(')) {
        of = None;
        while let Some(token) = reader.peek().filter(|token| *token != Token::Sign(')')) {
            if let (Token::Name(inner), "generic") = (token, name) {
                of = Some(inner);
            }
            if matches!(token, Token::Sign(';' | '{' | '}')) {
                break;
            }
            reader.next();
        }
        reader.sign(')')?;
    }
    let mut plus = 0;
    for (sign, factor) in [('+', 1), ('-', -1)] {
        if reader.accept(Token::Sign(sign)) {
            let number = match reader.peek() {
                Some(Token::Number(number)) => integer(number).and_then(|number| i64::try_from(number).ok()),
                _ => None,
            };
            let Some(number) = number else { return reader.expected("a number") };
            reader.next();
            plus = number * factor;
        }
    }
    if let Some(of) = of {
        variable.addresses.push(Address { offset, size, of: of.to_owned(), plus });
    }
    Ok(())
}

/// The bits of a number of some bytes: an integer, the bits of a float (`0f3F800000`), or a float with a point.
fn bits(number: &str, size: usize, minus: bool) -> Option<u128> {
    let hex = |digits: &str| u128::from_str_radix(digits, 16).ok();
    let float = |lead: &str| {
        number.strip_prefix(&format!("0{lead}")).or_else(|| number.strip_prefix(&format!("0{}", lead.to_uppercase())))
    };
    if let Some(bits) = float("f").filter(|digits| digits.len() == 8).and_then(hex) {
        let value = f32::from_bits(bits as u32) * if minus { -1.0 } else { 1.0 };
        return Some(if size == 8 { f64::from(value).to_bits().into() } else { value.to_bits().into() });
    }
    if let Some(bits) = float("d").filter(|digits| digits.len() == 16).and_then(hex) {
        let value = f64::from_bits(bits as u64) * if minus { -1.0 } else { 1.0 };
        return Some(if size == 4 { (value as f32).to_bits().into() } else { value.to_bits().into() });
    }
    if let Some(value) = integer(number) {
        return Some(if minus { value.wrapping_neg() } else { value });
    }
    let value: f64 = number.parse::<f64>().ok()? * if minus { -1.0 } else { 1.0 };
    Some(if size == 4 { (value as f32).to_bits().into() } else { value.to_bits().into() })
}

/// An integer: decimal, 0x, 0b, or octal with a leading zero. `U` may follow.
pub(super) fn integer(number: &str) -> Option<u128> {
    let digits = number.strip_suffix(['U', 'u']).unwrap_or(number);
    let with = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(*prefix));
    let (digits, radix) = if let Some(digits) = with(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = with(["0b", "0B"]) {
        (digits, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (digits, 8)
    } else {
        (digits, 10)
    };
    u64::from_str_radix(digits, radix).ok().map(u128::from)
}
