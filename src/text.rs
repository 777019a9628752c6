//! Texts
//!
//! Longer texts, such as JSON, are objects of the library: read them with cudamem_text_get, and destroy them.

use crate::call::{self, Out, destroy, drop_object, handle_type, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use core::ffi::c_char;

/// A text behind a handle, with the zero that it ends with.
#[derive(Debug)]
pub struct Text(Vec<u8>);

handle_type!(cudamem_text: Text, Kind::Text);

/// A handle for a text.
pub(crate) fn new_text(text: impl Into<Vec<u8>>) -> call::Outcome<cudamem_text> {
    let mut characters = text.into();
    characters.push(0);
    call::new_handle(Text(characters))
}

/// Gives a text's characters in UTF-8, which end with a zero, and their number without it. length may be NULL. They are valid
/// until the text is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_text_get(
    text: cudamem_text,
    characters: Out<'_, *const c_char>,
    length: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_text_get", || {
        let characters = out("characters", characters)?;
        let text = object("text", text)?;
        characters.write(text.0.as_ptr().cast());
        if let Some(length) = length {
            length.write(text.0.len() - 1);
        }
        Ok(())
    })
}

/// Destroys a text. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_text_destroy(text: cudamem_text) -> cudamem_status {
    run("cudamem_text_destroy", || destroy("text", text, drop_object))
}
