//! Types of arrays: Arrow's schema structures.

use super::ArrowError;
use super::raw::ArrowSchema;
use crate::error::callback::call_through;
use core::ffi::{CStr, c_char};
use core::ptr;
use std::ffi::CString;

/// Pairs of keys and values.
type Metadata = Vec<(Vec<u8>, Vec<u8>)>;

/// The deepest nesting of types and arrays.
pub(super) const MAX_DEPTH: usize = 64;

/// The type of an array: the specification's letters, the field's name, the children.
///
/// ```
/// use cuda_mem::interchange::arrow::{FLAG_NULLABLE, Schema};
/// let column = Schema { name: "price".into(), flags: FLAG_NULLABLE, ..Schema::new("g") };
/// let table = Schema { children: vec![column], ..Schema::new("+s") };
/// let mut raw = table.export()?;
/// // SAFETY: made just now, and nobody else has it.
/// assert_eq!(unsafe { Schema::import(&mut raw) }?, table);
/// # Ok::<(), cuda_mem::interchange::arrow::ArrowError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The type: `g` for doubles, `u` for text, `+s` for structures, and so on.
    pub format: String,
    /// The field's name.
    pub name: String,
    /// Pairs of keys and values.
    pub metadata: Metadata,
    /// [`FLAG_NULLABLE`](super::FLAG_NULLABLE) and others.
    pub flags: i64,
    /// The children's types.
    pub children: Vec<Schema>,
    /// The type of the dictionary's values.
    pub dictionary: Option<Box<Schema>>,
}

/// The data behind an exported schema.
struct ExportedSchema {
    _format: CString,
    _name: CString,
    _metadata: Option<Vec<u8>>,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
}

impl Schema {
    /// A type without a name.
    pub fn new(format: &str) -> Self {
        Self { format: format.to_owned(), ..Self::default() }
    }

    /// Makes the C structure. The receiver must call `release`.
    ///
    /// # Errors
    ///
    /// A text contains a zero byte.
    pub fn export(&self) -> Result<ArrowSchema, ArrowError> {
        let text = |text: &str, what| CString::new(text).map_err(|_| ArrowError::Text { what });
        let (format, name) = (text(&self.format, "the format")?, text(&self.name, "the name")?);
        let metadata = (!self.metadata.is_empty()).then(|| encode(&self.metadata));
        // Everything that can fail comes first: an error drops, and so releases, the children made so far.
        let owned = |schema: &Schema| schema.export().map(Owned);
        let children = self.children.iter().map(owned).collect::<Result<Vec<_>, _>>()?;
        let dictionary = self.dictionary.as_deref().map(owned).transpose()?;
        let boxed = |schema: Owned| Box::into_raw(Box::new(schema.into_raw()));
        let mut held = Box::new(ExportedSchema {
            children: children.into_iter().map(boxed).collect(),
            dictionary: dictionary.map_or(ptr::null_mut(), boxed),
            _format: format,
            _name: name,
            _metadata: metadata,
        });
        Ok(ArrowSchema {
            format: held._format.as_ptr(),
            name: held._name.as_ptr(),
            metadata: held._metadata.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast()),
            flags: self.flags,
            n_children: held.children.len() as i64,
            children: held.children.as_mut_ptr(),
            dictionary: held.dictionary,
            release: Some(end),
            private_data: Box::into_raw(held).cast(),
        })
    }

    /// Reads a C structure and releases it.
    ///
    /// # Errors
    ///
    /// The structure is invalid, and has been released; or it was released already.
    ///
    /// # Safety
    ///
    /// `raw` is a schema or a released one; its pointers fit its numbers, and nobody else uses it.
    pub unsafe fn import(raw: &mut ArrowSchema) -> Result<Self, ArrowError> {
        if raw.release.is_none() {
            return Err(ArrowError::Released { what: "the schema" });
        }
        let owned = Owned(core::mem::replace(raw, ArrowSchema::RELEASED));
        // SAFETY: this function's contract.
        unsafe { read(&owned.0, 0) }
    }
}

/// A schema that its drop releases.
struct Owned(ArrowSchema);

impl Owned {
    fn into_raw(mut self) -> ArrowSchema {
        core::mem::replace(&mut self.0, ArrowSchema::RELEASED)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        release_schema(&mut self.0);
    }
}

/// Calls `release` unless that was done before.
fn release_schema(raw: &mut ArrowSchema) {
    if let Some(release) = raw.release {
        // SAFETY: not released yet, and the caller owns it.
        call_through(|| unsafe { release(raw) });
        raw.release = None;
    }
}

/// The `release` of our schemas.
unsafe extern "C" fn end(raw: *mut ArrowSchema) {
    // SAFETY: `export` made the private data for this one call.
    unsafe {
        let Some(raw) = raw.as_mut() else { return };
        let held = Box::from_raw(raw.private_data.cast::<ExportedSchema>());
        for child in held.children.iter().copied().chain([held.dictionary]).filter(|child| !child.is_null()) {
            // A consumer may have moved a child away.
            release_schema(&mut *child);
            drop(Box::from_raw(child));
        }
        raw.release = None;
    }
}

/// # Safety
///
/// As for [`Schema::import`].
unsafe fn read(raw: &ArrowSchema, depth: usize) -> Result<Schema, ArrowError> {
    if depth > MAX_DEPTH {
        return Err(ArrowError::TooDeep { limit: MAX_DEPTH });
    }
    let text = |pointer: *const c_char, what| {
        // SAFETY: a text that ends with zero, by the caller's contract.
        unsafe { CStr::from_ptr(pointer) }.to_str().map(str::to_owned).map_err(|_| ArrowError::Text { what })
    };
    if raw.format.is_null() {
        return Err(ArrowError::Null { what: "a schema's format" });
    }
    let format = text(raw.format, "a schema's format")?;
    let name = if raw.name.is_null() { String::new() } else { text(raw.name, "a field's name")? };
    // SAFETY: the caller's contract.
    let metadata = if raw.metadata.is_null() { Vec::new() } else { unsafe { decode(raw.metadata.cast()) }? };
    let count = super::count(["a schema's n_children", "a schema's children"], raw.n_children, raw.children.is_null())?;
    let mut children = Vec::new();
    for index in 0..count {
        // SAFETY: the caller's contract.
        let child = unsafe { (*raw.children.add(index)).as_ref() };
        let child = child.ok_or(ArrowError::Null { what: "a schema's child" })?;
        // SAFETY: as above.
        children.push(unsafe { read(child, depth + 1) }?);
    }
    // SAFETY: as above.
    let dictionary = match unsafe { raw.dictionary.as_ref() } {
        // SAFETY: as above.
        Some(dictionary) => Some(Box::new(unsafe { read(dictionary, depth + 1) }?)),
        None => None,
    };
    Ok(Schema { format, name, metadata, flags: raw.flags, children, dictionary })
}

/// The specification's form: a count, then keys and values, each with its length before it.
fn encode(pairs: &Metadata) -> Vec<u8> {
    let mut bytes = (pairs.len() as i32).to_ne_bytes().to_vec();
    for part in pairs.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend_from_slice(&(part.len() as i32).to_ne_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// # Safety
///
/// `bytes` points to such metadata, which is as long as its numbers state.
unsafe fn decode(mut bytes: *const u8) -> Result<Metadata, ArrowError> {
    // SAFETY: the caller's contract.
    let pairs = unsafe { take_number(&mut bytes) }?;
    let mut read = Metadata::new();
    for _ in 0..pairs {
        // SAFETY: as above.
        read.push(unsafe { (take_part(&mut bytes)?, take_part(&mut bytes)?) });
    }
    Ok(read)
}

/// # Safety
///
/// `bytes` points to a number in metadata.
unsafe fn take_number(bytes: &mut *const u8) -> Result<usize, ArrowError> {
    // SAFETY: this function's contract.
    let value = unsafe { bytes.cast::<i32>().read_unaligned() };
    // SAFETY: as above.
    *bytes = unsafe { bytes.add(size_of::<i32>()) };
    let error =
        ArrowError::Number { what: "a length in metadata", value: value.into(), rule: "it must not be negative" };
    usize::try_from(value).map_err(|_| error)
}

/// # Safety
///
/// `bytes` points to a length in metadata, and that many bytes follow it.
unsafe fn take_part(bytes: &mut *const u8) -> Result<Vec<u8>, ArrowError> {
    // SAFETY: this function's contract.
    unsafe {
        let length = take_number(bytes)?;
        let part = core::slice::from_raw_parts(*bytes, length).to_vec();
        *bytes = bytes.add(length);
        Ok(part)
    }
}
