//! Error texts of cuda-mem in the names of another language.
//!
//! The texts name functions and options of Rust. A binding has a table of what stands for them in its language.

/// An error text of cuda-mem, without the Rust function at its beginning, and with names of Rust replaced as the table says:
/// pairs of a name in Rust and one in the language. A name comes before others that it contains.
///
/// ```
/// use cuda_mem_dynamic::renamed;
/// let names = [("with Stream::new", "by Stream()")];
/// assert_eq!(renamed("Pool::allocate: make one with Stream::new", &names), "make one by Stream()");
/// ```
pub fn renamed(text: &str, names: &[(&str, &str)]) -> String {
    let text = without_call(text).unwrap_or(text);
    names.iter().fold(text.to_owned(), |text, (rust, name)| text.replace(rust, name))
}

/// The text without the name of a Rust function at its beginning: `Buffer::fill: ` or `Buffer::fill failed: `.
fn without_call(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != ':' && letter != '_')?;
    let (call, rest) = (text[..end].trim_end_matches(':'), &text[end..]);
    let named = call.contains("::") && !call.starts_with("cu");
    named.then(|| rest.strip_prefix(" failed:").unwrap_or(rest).trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_become_those_of_the_table() {
        let names = [("`Options::size`", "size"), ("Options::size", "the size")];
        for (text, expected) in [
            ("Buffer::read: bytes 0 to 0+9 lie outside", "bytes 0 to 0+9 lie outside"),
            ("Channel::send failed: Broken pipe", "Broken pipe"),
            ("cuMemAlloc_v2 failed: CUDA_ERROR_INVALID_VALUE", "cuMemAlloc_v2 failed: CUDA_ERROR_INVALID_VALUE"),
            ("buffer is 0: it must not", "buffer is 0: it must not"),
            ("Pool::new: raise `Options::size`, not Options::size", "raise size, not the size"),
        ] {
            assert_eq!(renamed(text, &names), expected);
        }
    }
}
