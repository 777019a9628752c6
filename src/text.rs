//! Texts
//!
//! Longer texts, such as JSON, are objects of the library. Read them with cudamem_text_get, and destroy them.

use crate::call::{self, Out, destroy, drop_object, handle_type, object, out, run};
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use core::ffi::c_char;

/// The object behind a text's handle, with its terminating zero.
#[derive(Debug)]
pub struct Text(Vec<u8>);

handle_type!(cudamem_text: Text);

/// Makes a handle for a text.
pub(crate) fn new_text(text: impl Into<Vec<u8>>) -> call::Outcome<cudamem_text> {
    let mut characters = text.into();
    characters.push(0);
    call::new_handle(Text(characters))
}

/// Gets a text's characters in UTF-8, terminated by a zero, and their number without the zero. length may be NULL. The
/// characters are valid until the text is destroyed.
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
