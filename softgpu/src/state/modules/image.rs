//! What softgpu knows of device code: its kernels and its variables.

use super::{cubin, link, ptx};
use cuda_sys::CUresult;
use std::collections::HashMap;
use std::fmt::Display;

/// The most bytes of the parameters of a kernel, as PTX 8.1 has it.
pub(crate) const MOST_OF_PARAMETERS: usize = 32764;

/// Device code as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) signatures: Vec<Signature>,
    pub(crate) variables: Vec<Variable>,
    /// The architecture for which it was compiled, such as 90; 0 if that is unknown.
    pub(crate) target: u32,
    /// What each name means.
    names: HashMap<String, Named>,
}

/// What a name means: a kernel or a variable, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Kernel(usize),
    Variable(usize),
}

impl Image {
    /// An image with kernels only.
    pub(crate) fn of_kernels(signatures: Vec<Signature>) -> Result<Self, Refused> {
        Self { signatures, ..Self::default() }.with_names(CUresult::CUDA_ERROR_INVALID_IMAGE)
    }

    /// The image with what its names mean. Fails with a code if one has two meanings.
    pub(super) fn with_names(mut self, code: CUresult) -> Result<Self, Refused> {
        let kernels = self.signatures.iter().enumerate().map(|(place, kernel)| (&kernel.name, Named::Kernel(place)));
        let variables = self.variables.iter().enumerate().map(|(place, one)| (&one.name, Named::Variable(place)));
        let mut names = HashMap::new();
        for (name, named) in kernels.chain(variables) {
            if names.insert(name.clone(), named).is_some() {
                return Err(Refused::new(code, format_args!("softgpu: `{name}` is defined twice")));
            }
        }
        self.names = names;
        Ok(self)
    }

    /// The place of a kernel.
    pub(super) fn kernel(&self, name: &[u8]) -> Option<usize> {
        match self.named(name)? {
            Named::Kernel(place) => Some(place),
            Named::Variable(_) => None,
        }
    }

    /// The place of a variable.
    pub(super) fn variable(&self, name: &[u8]) -> Option<usize> {
        match self.named(name)? {
            Named::Variable(place) => Some(place),
            Named::Kernel(_) => None,
        }
    }

    /// Gives variables other names.
    pub(super) fn rename(&mut self, names: &HashMap<String, String>) {
        for variable in &mut self.variables {
            let addresses = variable.addresses.iter_mut().map(|address| &mut address.of);
            for name in addresses.chain([&mut variable.name]) {
                if let Some(other) = names.get(name) {
                    name.clone_from(other);
                }
            }
        }
    }

    fn named(&self, name: &[u8]) -> Option<Named> {
        self.names.get(str::from_utf8(name).ok()?).copied()
    }
}

/// A kernel as its declaration states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    /// `None` if the image does not state them in a documented form.
    pub(crate) parameters: Option<Vec<Parameter>>,
    /// The most threads of a block.
    pub(crate) most_threads: Option<u32>,
    /// The one shape of a block with which the kernel may be launched.
    pub(crate) required: Option<[u32; 3]>,
    /// Bytes of a block's shared memory, without those that a launch adds.
    pub(crate) shared: usize,
    /// Bytes of a thread's local memory.
    pub(crate) local: usize,
    pub(crate) linkage: Linkage,
}

/// Which other images of a link know a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// None.
    #[default]
    Own,
    All,
    /// All, and another definition may take its place.
    Weak,
}

/// A parameter's place among all parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A variable in device memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) managed: bool,
    pub(crate) linkage: Linkage,
    /// The first bytes of the initial value; the others are zero.
    pub(crate) initial: Vec<u8>,
    /// Words of the initial value that are addresses.
    pub(crate) addresses: Vec<Address>,
}

/// The address of another variable in an initial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Where it is written.
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) of: String,
    pub(crate) plus: i64,
}

/// Why an image cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: CUresult,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(code: CUresult, text: impl Display) -> Self {
        Self { code, text: text.to_string() }
    }
}

/// The first bytes of a collection of images, and of the structure in a program that names one. Neither is documented.
const COLLECTIONS: [[u8; 4]; 2] = [[0x50, 0xed, 0x55, 0xba], [0xb1, 0x43, 0x62, 0x46]];

/// The most bytes of a binary. A header that states more is wrong.
const MOST: usize = 1 << 30;

/// The bytes of an image of which only the address is known: text that ends with a zero, or a binary that states its size.
///
/// # Safety
///
/// The address has such an image, which stays as it is while the result is used.
pub(crate) unsafe fn bytes_at<'image>(image: *const u8) -> Result<&'image [u8], Refused> {
    let mut known = 0;
    // SAFETY: text ends with a zero, and no binary has one in its first four bytes. Reads no further.
    while known < 4 && unsafe { image.add(known).read() } != 0 {
        known += 1;
    }
    // SAFETY: as above.
    let begin = unsafe { std::slice::from_raw_parts(image, known) };
    let length = if begin == cubin::MAGIC {
        // SAFETY: a binary has a whole header.
        let size = cubin::size(unsafe { &*image.cast::<[u8; cubin::HEADER]>() });
        size.filter(|size| *size <= MOST).ok_or_else(|| cubin::refused("its header states no size"))?
    } else if begin == link::MAGIC {
        // SAFETY: as above.
        let size = link::size(unsafe { &*image.cast::<[u8; link::HEADER]>() });
        size.filter(|size| *size <= MOST).ok_or_else(|| cubin::refused("its header states no size"))?
    } else if COLLECTIONS.iter().any(|collection| collection == begin) {
        known
    } else {
        // SAFETY: by this function's contract.
        unsafe { std::ffi::CStr::from_ptr(image.cast()) }.count_bytes()
    };
    // SAFETY: by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(image, length) })
}

/// Reads an image: PTX or a cubin.
pub(crate) fn read(image: &[u8]) -> Result<Image, Refused> {
    if image.starts_with(&cubin::MAGIC) {
        return cubin::read(image)?.with_names(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    if image.starts_with(&link::MAGIC) {
        return link::read_all(image);
    }
    if COLLECTIONS.iter().any(|known| image.starts_with(known)) {
        let text = "softgpu: a fatbin is not documented, so softgpu reads none: compile to PTX";
        return Err(Refused::new(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, text));
    }
    let text = image.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    if ptx::is_ptx(&text) {
        return ptx::read(&text)?.with_names(CUresult::CUDA_ERROR_INVALID_PTX);
    }
    let text = "softgpu: the image is neither a cubin nor PTX, which begins with .version";
    Err(Refused::new(CUresult::CUDA_ERROR_INVALID_IMAGE, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_meaning() {
        let twice = read(b".version 8.0\n.entry k() {} .global .u8 k;\0").unwrap_err();
        assert_eq!((twice.code, &*twice.text), (CUresult::CUDA_ERROR_INVALID_PTX, "softgpu: `k` is defined twice"));
    }
}
