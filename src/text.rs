//! Texts
//!
//! Longer texts, such as JSON, are objects of the library: read them with cudamem_text_get, and destroy them.

use crate::call::{self, Out, destroy, drop_object, handle_type, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_text;
use crate::message::c_text;
use crate::status::cudamem_status;
use core::ffi::c_char;
use std::ffi::CString;

/// A text behind a handle.
#[derive(Debug)]
pub struct Text(CString);

handle_type!(cudamem_text: Text, Kind::Text);

/// A handle for a text.
pub(crate) fn new_text(text: String) -> call::Outcome<cudamem_text> {
    call::new_handle(Text(c_text(text)))
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
        characters.write(text.0.as_ptr());
        if let Some(length) = length {
            length.write(text.0.as_bytes().len());
        }
        Ok(())
    })
}

/// Destroys a text. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_text_destroy(text: cudamem_text) -> cudamem_status {
    run("cudamem_text_destroy", || destroy("text", text, drop_object))
}
