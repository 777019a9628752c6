//! Links: several images become one.

use super::cubin;
use super::image::{Image, Linkage, Refused, read};
use super::log::Log;
use crate::call::{Result as Answer, ensure};
use crate::state::Global;
use crate::state::contexts::Context;
use crate::sync::lock;
use cuda_sys::CUresult;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The first bytes of a linked image of several inputs. Its size, each input's size and each input follow. Sizes are words
/// of 8 bytes with the low byte first.
pub(super) const MAGIC: [u8; 4] = *b"\x7fLNK";
/// The size of what precedes the first input.
pub(super) const HEADER: usize = 12;

#[derive(Debug, Default)]
struct Inputs {
    bytes: Vec<Vec<u8>>,
    images: Vec<Image>,
    /// Why the link cannot be completed: two inputs define one name.
    refused: Option<Refused>,
}

/// A link under way.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    /// Where the program wants texts of all its calls.
    pub(crate) log: Log,
    inputs: Mutex<Inputs>,
    /// The linked image, which the program reads until the end of the link.
    output: Mutex<Option<Box<[u8]>>>,
}

impl Link {
    pub(crate) fn new(sequence: u64, context: Arc<Context>, log: Log) -> Self {
        Self { sequence, context, log, inputs: Mutex::default(), output: Mutex::default() }
    }

    pub(crate) fn find(global: &Global, handle: u64) -> Answer<Arc<Self>> {
        global.links.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Fails if the link is complete.
    pub(crate) fn check_open(&self) -> Answer {
        ensure(lock(&self.output).is_none())
    }

    /// Adds PTX or a cubin.
    pub(crate) fn add(&self, input: &[u8]) -> Result<(), Refused> {
        if input.starts_with(&MAGIC) {
            let text =
                "softgpu: what a link has made of several inputs cannot be linked again: link all inputs at once";
            return Err(Refused::new(CUresult::CUDA_ERROR_INVALID_IMAGE, text));
        }
        let (image, mut inputs) = (read(input)?, lock(&self.inputs));
        inputs.images.push(image);
        if let Err(twice) = join(inputs.images.clone()) {
            inputs.images.pop();
            // The code is the driver's.
            let refused = Refused::new(CUresult::CUDA_ERROR_UNKNOWN, twice.text);
            inputs.refused = Some(refused.clone());
            return Err(refused);
        }
        inputs.bytes.push(input.to_vec());
        Ok(())
    }

    /// Links the inputs, once. Returns the address and the size of the linked image, which live as long as the link.
    pub(crate) fn complete(&self) -> Result<(*const u8, usize), Refused> {
        let (mut output, inputs) = (lock(&self.output), lock(&self.inputs));
        if output.is_some() {
            let text = "softgpu: the link is complete already: use the image that the first cuLinkComplete gave";
            return Err(Refused::new(CUresult::CUDA_ERROR_INVALID_HANDLE, text));
        }
        if let Some(refused) = &inputs.refused {
            return Err(refused.clone());
        }
        let linked = output.insert(written(&inputs.bytes));
        Ok((linked.as_ptr(), linked.len()))
    }
}

/// The bytes of a linked image: its only input, with a zero that ends PTX, or several inputs.
fn written(inputs: &[Vec<u8>]) -> Box<[u8]> {
    match inputs {
        [cubin] if cubin.starts_with(&cubin::MAGIC) => return cubin.as_slice().into(),
        [text] => return [text, [0].as_slice()].concat().into(),
        _ => {}
    }
    let size = HEADER + inputs.iter().map(|input| 8 + input.len()).sum::<usize>();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((size as u64).to_le_bytes());
    for input in inputs {
        bytes.extend((input.len() as u64).to_le_bytes());
        bytes.extend(input);
    }
    bytes.into()
}

/// The size of a linked image by its header.
pub(super) fn size(header: &[u8; HEADER]) -> Option<usize> {
    usize::try_from(word(&header[MAGIC.len()..])?).ok()
}

fn word(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// Reads a linked image of several inputs.
pub(super) fn read_all(bytes: &[u8]) -> Result<Image, Refused> {
    let refused = || Refused::new(CUresult::CUDA_ERROR_INVALID_IMAGE, "softgpu: the linked image is not whole");
    let mut rest = bytes.get(HEADER..).ok_or_else(refused)?;
    let mut images = Vec::new();
    while let Some(length) = word(rest) {
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(8)).ok_or_else(refused)?;
        let input = rest.get(8..end).ok_or_else(refused)?;
        if input.starts_with(&MAGIC) {
            return Err(refused());
        }
        images.push(read(input)?);
        rest = &rest[end..];
    }
    join(images)
}

/// One image of several. Of weak definitions of one name, the first stays, unless another one is not weak. Variables that
/// an input has for itself get names that no text can have, if other inputs have those names too.
fn join(mut images: Vec<Image>) -> Result<Image, Refused> {
    let mut inputs_with: HashMap<String, usize> = HashMap::new();
    for name in images.iter().flat_map(|image| &image.variables).map(|variable| &variable.name) {
        *inputs_with.entry(name.clone()).or_default() += 1;
    }
    for (number, image) in images.iter_mut().enumerate() {
        let own = image.variables.iter().filter(|one| one.linkage == Linkage::Own && inputs_with[&one.name] > 1);
        let renamed = own.map(|one| (one.name.clone(), format!("{}\0{number}", one.name))).collect();
        image.rename(&renamed);
    }
    let mut all = Image::default();
    let (mut kernels, mut variables) = (HashMap::new(), HashMap::new());
    for image in images {
        all.target = all.target.max(image.target);
        for kernel in image.signatures {
            define(&mut all.signatures, &mut kernels, kernel, |kernel| (&kernel.name, kernel.linkage));
        }
        for variable in image.variables {
            define(&mut all.variables, &mut variables, variable, |variable| (&variable.name, variable.linkage));
        }
    }
    all.with_names(CUresult::CUDA_ERROR_INVALID_IMAGE)
}

/// Adds a definition to those of its kind, of which `places` has the names.
fn define<T>(all: &mut Vec<T>, places: &mut HashMap<String, usize>, new: T, about: impl Fn(&T) -> (&String, Linkage)) {
    let (name, linkage) = about(&new);
    match places.get(name) {
        Some(_) if linkage == Linkage::Weak => {}
        Some(place) if about(&all[*place]).1 == Linkage::Weak => all[*place] = new,
        _ => {
            places.insert(name.clone(), all.len());
            all.push(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(inputs: &[&str]) -> Result<Image, Refused> {
        let inputs: Vec<_> = inputs.iter().map(|input| format!(".version 8.0\n{input}").into_bytes()).collect();
        join(inputs.iter().map(|input| read(input).unwrap()).collect())?;
        read(&written(&inputs))
    }

    #[test]
    fn inputs_keep_their_own_variables() {
        let one = ".global .u8 a = 1; .global .u64 p = a;";
        let image = linked(&[one, ".global .u8 a = 2; .global .u64 q = a;", ".visible .global .u8 a = 3;"]).unwrap();
        let value_behind = |name: &str| {
            let pointer = &image.variables[image.variable(name.as_bytes()).unwrap()];
            image.variables[image.variable(pointer.addresses[0].of.as_bytes()).unwrap()].initial[0]
        };
        assert_eq!((value_behind("p"), value_behind("q")), (1, 2));
        assert_eq!(image.variables[image.variable(b"a").unwrap()].initial, [3]);
    }

    #[test]
    fn weak_definitions_give_way() {
        let kernel = |size: u32| format!(".weak .entry k(.param .b8 a[{size}]) {{}}");
        let image = linked(&[&kernel(1), ".entry k(.param .u16 a) {} .weak .global .u8 v = 5;", &kernel(3)]).unwrap();
        assert_eq!(image.signatures.len(), 1);
        assert_eq!(image.signatures[0].parameters.as_ref().unwrap()[0].size, 2);
        let twice = linked(&[".entry k() {}", ".entry k() {}"]).unwrap_err();
        assert_eq!((twice.code, &*twice.text), (CUresult::CUDA_ERROR_INVALID_IMAGE, "softgpu: `k` is defined twice"));
    }

    #[test]
    fn a_linked_image_that_is_cut_off_is_refused() {
        let inputs = [".version 8.0\n.entry a() {}", ".version 8.0\n.entry b() {}"];
        let whole = written(&inputs.map(|input| input.as_bytes().to_vec()));
        assert_eq!(read(&whole).unwrap().signatures.len(), 2);
        assert!(read(&whole[..whole.len() - 1]).is_err());
        let mut wrong = whole.clone();
        wrong[12..20].fill(0xff);
        assert!(read(&wrong).is_err());
    }
}
