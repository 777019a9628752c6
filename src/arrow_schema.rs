//! Arrow: schemas
//!
//! A schema is the type of an Arrow array: the specification's letters for the type ("g" for doubles, "u" for text,
//! "+s" for structures), the field's name, and the children. This header does not need Arrow's; a program may include
//! both, in any order.

use crate::call::{self, Options, Out, Outcome, check_struct, destroy, drop_object, fill, handle_type};
use crate::call::{invalid, list, object, options, out, run, text};
use crate::handles::cudamem_arrow_schema;
use crate::handles::cudamem_text;
use crate::message::c_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::c_char;
use core::mem::size_of;
use core::ptr;
use cuda_mem::Error;
use cuda_mem::interchange::arrow::{ArrowSchema, Schema};
use std::ffi::CString;

/// The object behind a schema's handle, with its texts as C strings.
#[derive(Debug)]
pub struct NamedSchema {
    pub(crate) schema: Schema,
    format: CString,
    name: CString,
}

handle_type!(cudamem_arrow_schema: NamedSchema);

impl From<Schema> for NamedSchema {
    fn from(schema: Schema) -> Self {
        Self { format: c_text(schema.format.clone()), name: c_text(schema.name.clone()), schema }
    }
}

/// A flag of schemas: values may be missing.
pub const CUDAMEM_ARROW_NULLABLE: i64 = 2;

/// How a schema is made. Zeros are the defaults, except that format must be set.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_arrow_schema_options {
    /// sizeof(cudamem_arrow_schema_options).
    pub size: usize,
    /// The specification's letters for the type. Must not be NULL.
    pub format: *const c_char,
    /// The field's name, or NULL.
    pub name: *const c_char,
    /// CUDAMEM_ARROW_NULLABLE and other flags of the specification.
    pub flags: i64,
    /// The number of children.
    pub n_children: usize,
    /// The children. The handles stay the program's.
    pub children: *const cudamem_arrow_schema,
    /// The type of the dictionary's values, or the null handle. The handle stays the program's.
    pub dictionary: cudamem_arrow_schema,
    /// The number of metadata pairs.
    pub n_metadata: usize,
    /// The keys of the metadata.
    pub metadata_keys: *const *const c_char,
    /// The values of the metadata.
    pub metadata_values: *const *const c_char,
}

// SAFETY: only numbers and pointers of 8 bytes.
unsafe impl Options for cudamem_arrow_schema_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Reads a text that must not be NULL.
///
/// # Safety
///
/// `given` is NULL or a C string.
unsafe fn needed(argument: &'static str, given: *const c_char) -> Outcome<String> {
    // SAFETY: this function's contract.
    match unsafe { text(argument, given) }? {
        Some(text) => Ok(text.to_owned()),
        None => Err(invalid(argument, "NULL", "it must be a text")),
    }
}

/// Makes a schema.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_schema_create(
    options: *const cudamem_arrow_schema_options,
    schema: Out<'_, cudamem_arrow_schema>,
) -> cudamem_status {
    run("cudamem_arrow_schema_create", || {
        let schema = out("schema", schema)?;
        // SAFETY: the header requires valid options, lists and strings.
        let (said, format, name) = unsafe {
            let said = self::options("options", options)?;
            let name = text("options.name", said.name)?.unwrap_or_default().to_owned();
            (said, needed("options.format", said.format)?, name)
        };
        // SAFETY: as above.
        let (children, keys, values) = unsafe {
            (
                list("options.children", said.children, said.n_children)?,
                list("options.metadata_keys", said.metadata_keys, said.n_metadata)?,
                list("options.metadata_values", said.metadata_values, said.n_metadata)?,
            )
        };
        let children = children.iter().map(|child| Ok(object("options.children", *child)?.schema.clone()));
        let children = children.collect::<Outcome<Vec<Schema>>>()?;
        let dictionary = match said.dictionary.id {
            0 => None,
            _ => Some(Box::new(object("options.dictionary", said.dictionary)?.schema.clone())),
        };
        let bytes = |argument, given: &*const c_char| -> Outcome<Vec<u8>> {
            // SAFETY: as above.
            Ok(unsafe { needed(argument, *given) }?.into_bytes())
        };
        let pair = |(key, value)| -> Outcome<(Vec<u8>, Vec<u8>)> {
            Ok((bytes("options.metadata_keys", key)?, bytes("options.metadata_values", value)?))
        };
        let metadata = keys.iter().zip(values).map(pair).collect::<Outcome<Vec<_>>>()?;
        let made = Schema { format, name, metadata, flags: said.flags, children, dictionary };
        schema.write(call::new_handle(made.into())?);
        Ok(())
    })
}

/// Fills in the program's struct ArrowSchema. The consumer must call its release once.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_schema_export(
    schema: cudamem_arrow_schema,
    result: Out<'_, ArrowSchema>,
) -> cudamem_status {
    run("cudamem_arrow_schema_export", || {
        let result = out("result", result)?;
        result.write(object("schema", schema)?.schema.export().map_err(Error::from)?);
        Ok(())
    })
}

/// The release callback of a copied struct that is only checked.
unsafe extern "C" fn keep(schema: *mut ArrowSchema) {
    // SAFETY: only this library's own copy of the struct carries this callback.
    unsafe { (*schema).release = None };
}

/// Reads a struct ArrowSchema, and releases it on success. On failure the struct is unchanged.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the schema was released, or if its numbers or texts are invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_schema_import(
    source: *mut ArrowSchema,
    schema: Out<'_, cudamem_arrow_schema>,
) -> cudamem_status {
    run("cudamem_arrow_schema_import", || {
        let schema = out("schema", schema)?;
        check_struct("source", source)?;
        // SAFETY: the header requires a valid struct. The original is released below, or not at all.
        let mut looked_at = unsafe { ptr::read(source) };
        let release = looked_at.release;
        looked_at.release = release.map(|_| keep as _);
        // SAFETY: the header requires a valid schema.
        let read = unsafe { Schema::import(&mut looked_at) }.map_err(Error::from)?;
        schema.write(call::new_handle(read.into())?);
        if let Some(release) = release {
            // SAFETY: the schema is not released yet, and nothing uses it any more.
            unsafe {
                release(source);
                (*source).release = None;
            }
        }
        Ok(())
    })
}

/// What a schema is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_arrow_schema_info {
    /// sizeof(cudamem_arrow_schema_info), set by the program.
    pub size: usize,
    /// The specification's letters for the type, valid until the schema is destroyed.
    pub format: *const c_char,
    /// The field's name, valid until the schema is destroyed. Empty if the field has no name.
    pub name: *const c_char,
    /// CUDAMEM_ARROW_NULLABLE and other flags of the specification.
    pub flags: i64,
    /// The number of children.
    pub n_children: usize,
    /// The number of dictionaries: 0 or 1.
    pub n_dictionaries: usize,
    /// The number of metadata pairs.
    pub n_metadata: usize,
}

// SAFETY: only numbers and pointers of 8 bytes.
unsafe impl Options for cudamem_arrow_schema_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a schema. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_schema_get_info(
    schema: cudamem_arrow_schema,
    info: *mut cudamem_arrow_schema_info,
) -> cudamem_status {
    run("cudamem_arrow_schema_get_info", || {
        let named = object("schema", schema)?;
        let answer = cudamem_arrow_schema_info {
            size: size_of::<cudamem_arrow_schema_info>(),
            format: named.format.as_ptr(),
            name: named.name.as_ptr(),
            flags: named.schema.flags,
            n_children: named.schema.children.len(),
            n_dictionaries: usize::from(named.schema.dictionary.is_some()),
            n_metadata: named.schema.metadata.len(),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// As the index of a child, of schemas and of arrays: the dictionary.
pub const CUDAMEM_ARROW_DICTIONARY: usize = usize::MAX;

/// Gets a handle for a child's type, or for the type of the dictionary's values if index is CUDAMEM_ARROW_DICTIONARY.
/// The null handle if there is no dictionary.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_schema_get_child(
    schema: cudamem_arrow_schema,
    index: usize,
    child: Out<'_, cudamem_arrow_schema>,
) -> cudamem_status {
    run("cudamem_arrow_schema_get_child", || {
        let child = out("child", child)?;
        let named = object("schema", schema)?;
        let found = match index {
            CUDAMEM_ARROW_DICTIONARY => named.schema.dictionary.as_deref(),
            index => Some(entry("index", index, &named.schema.children)?),
        };
        child.write(match found {
            Some(found) => call::new_handle(Schema::clone(found).into())?,
            None => cudamem_arrow_schema { id: 0 },
        });
        Ok(())
    })
}

/// The entry of a list at an index that the program gave.
pub(crate) fn entry<'list, T>(argument: &'static str, index: usize, list: &'list [T]) -> Outcome<&'list T> {
    list.get(index).ok_or_else(|| invalid(argument, index.to_string(), format!("it must be less than {}", list.len())))
}

/// Gets one metadata pair. Keys and values may hold any bytes, including zeros and invalid UTF-8. cudamem_text_get
/// returns their lengths.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_schema_get_metadata(
    schema: cudamem_arrow_schema,
    index: usize,
    key: Out<'_, cudamem_text>,
    value: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_arrow_schema_get_metadata", || {
        let (key, value) = (out("key", key)?, out("value", value)?);
        let named = object("schema", schema)?;
        let (first, second) = entry("index", index, &named.schema.metadata)?;
        let first = new_text(first.clone())?;
        match new_text(second.clone()) {
            Ok(second) => {
                key.write(first);
                value.write(second);
                Ok(())
            }
            Err(failure) => {
                destroy("key", first, drop_object)?;
                Err(failure)
            }
        }
    })
}

/// Destroys the handle. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_schema_destroy(schema: cudamem_arrow_schema) -> cudamem_status {
    run("cudamem_arrow_schema_destroy", || destroy("schema", schema, drop_object))
}
