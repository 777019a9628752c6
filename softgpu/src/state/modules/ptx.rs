//! The declarations of PTX: kernels with their parameters, variables with their initial values. Instructions are skipped.

use super::declared::{MOST, Named};
use super::image::{Image, Linkage, MOST_OF_PARAMETERS, Parameter, Refused, Signature, Variable};
use super::initial;
use super::reader::{Reader, Result};
use super::tokens::Token;
use crate::settings;
use cuda_sys::CUresult;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The most bytes of all initial values, with the zeros between them: a short text can state many.
const MOST_OF_VALUES: usize = 1 << 26;

/// Whether a text is PTX: it has a line that begins with the release.
pub(super) fn is_ptx(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with(".version"))
}

/// Reads PTX as a whole.
pub(super) fn read(text: &str) -> Result<Image> {
    let (reader, image) = (Reader::new(text), Image::default());
    let mut program = Program { reader, image, shared: HashMap::new(), linkage: Linkage::Own, room: MOST_OF_VALUES };
    program.all()?;
    Ok(program.image)
}

/// Refuses PTX that is newer than the CUDA release of the driver. The usual release takes all PTX, because softgpu runs no
/// instruction.
fn check_release(driver: u32, release: &str) -> Result {
    let (major, minor) = release.split_once('.').unwrap_or((release, "0"));
    let release = (major.parse().unwrap_or(0), minor.parse().unwrap_or(0));
    // Each CUDA release until 12.5 brought one release of PTX, and so did each one from 12.7 on.
    let served = match (driver / 1000, driver / 10 % 100) {
        (12, minor @ 6..) => (8, minor - 1),
        (cuda, minor) => (cuda - 4, minor),
    };
    if driver >= settings::USUAL || release <= served {
        return Ok(());
    }
    let text =
        format!("softgpu: a driver of CUDA {}.{} takes no PTX {major}.{minor}", driver / 1000, driver / 10 % 100);
    Err(Refused::new(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, text))
}

struct Program<'a> {
    reader: Reader<'a>,
    image: Image,
    /// The sizes of the variables in shared memory that are declared outside of functions.
    shared: HashMap<&'a str, usize>,
    /// The linkage that the words before a declaration state.
    linkage: Linkage,
    /// How many bytes further initial values may have.
    room: usize,
}

impl Program<'_> {
    fn all(&mut self) -> Result {
        while let Some(token) = self.reader.peek() {
            let start = self.reader.at;
            match token {
                Token::Directive("version") => {
                    self.reader.at += 1;
                    let Some(Token::Number(release)) = self.reader.next() else {
                        return self.reader.expected("a release, such as 8.0");
                    };
                    check_release(settings::chosen().map_or(settings::USUAL, |settings| settings.version), release)?;
                }
                Token::Directive("target") => self.target()?,
                Token::Directive("address_size") => {
                    self.reader.at += 1;
                    if self.reader.number()? != 64 {
                        self.reader.at -= 1;
                        return self.reader.expected("the address size 64");
                    }
                }
                Token::Directive("file" | "loc") => self.debug_line(),
                Token::Directive("section") => {
                    self.reader.skip_to_block()?;
                    self.reader.block()?;
                }
                Token::Directive("pragma" | "alias") => self.reader.skip_past(';')?,
                Token::Directive("entry") => self.entry()?,
                Token::Directive("func") => self.function()?,
                Token::Directive("extern") => {
                    self.reader.at += 1;
                    self.outside()?;
                }
                Token::Directive("visible" | "weak" | "common") => {
                    self.reader.at += 1;
                    self.linkage = if token == Token::Directive("visible") { Linkage::All } else { Linkage::Weak };
                    continue;
                }
                Token::Directive("global" | "const" | "shared" | "tex") => self.variables(true)?,
                Token::Sign(';') => self.reader.at += 1,
                _ => return self.reader.expected("a declaration"),
            }
            debug_assert!(self.reader.at > start, "each declaration takes words");
            self.linkage = Linkage::Own;
        }
        Ok(())
    }

    fn target(&mut self) -> Result {
        self.reader.at += 1;
        loop {
            let name = self.reader.name()?;
            if let Some(number) = name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_")) {
                let digits = number.trim_end_matches(|c: char| !c.is_ascii_digit());
                self.image.target = digits.parse().unwrap_or(0);
            }
            if !self.reader.accept(Token::Sign(',')) {
                return Ok(());
            }
        }
    }

    /// `.file 1 "name", 5, 6` and `.loc 1 2 3` end without a sign.
    fn debug_line(&mut self) {
        self.reader.at += 1;
        while matches!(
            self.reader.peek(),
            Some(Token::Number(_) | Token::Text | Token::Name(_) | Token::Sign(',' | '+'))
        ) {
            self.reader.at += 1;
        }
    }

    /// `.extern`: what another module defines. Only memory that each launch adds is known here.
    fn outside(&mut self) -> Result {
        match self.reader.peek() {
            Some(Token::Directive("func")) => self.function(),
            Some(Token::Directive("entry")) => self.reader.skip_past(';'),
            Some(Token::Directive("global" | "const" | "shared" | "tex")) => self.variables(false),
            _ => self.reader.expected("a function or a variable"),
        }
    }

    fn function(&mut self) -> Result {
        self.reader.at += 1;
        while let Some(token) = self.reader.peek() {
            match token {
                Token::Sign('{') => return self.reader.block().map(drop),
                Token::Directive("pragma") => self.reader.skip_past(';')?,
                Token::Sign(';') => {
                    self.reader.at += 1;
                    return Ok(());
                }
                _ => self.reader.at += 1,
            }
        }
        self.reader.expected("`{` or `;`")
    }

    fn entry(&mut self) -> Result {
        self.reader.at += 1;
        let name = self.reader.name()?;
        let mut signature = Signature { name: name.to_owned(), linkage: self.linkage, ..Signature::default() };
        signature.parameters = Some(if self.reader.accept(Token::Sign('(')) { self.parameters()? } else { Vec::new() });
        loop {
            match self.reader.peek() {
                Some(Token::Directive("maxntid")) => signature.most_threads = Some(product(self.shape()?)),
                Some(Token::Directive("reqntid")) => {
                    let shape = self.shape()?;
                    (signature.most_threads, signature.required) = (Some(product(shape)), Some(shape));
                }
                Some(Token::Directive("pragma")) => self.reader.skip_past(';')?,
                Some(Token::Sign('{')) => break,
                // The declaration of a kernel whose body follows later.
                Some(Token::Sign(';')) => {
                    self.reader.at += 1;
                    return Ok(());
                }
                Some(Token::Directive(_) | Token::Number(_) | Token::Name(_) | Token::Sign(',' | '(' | ')')) => {
                    self.reader.at += 1
                }
                _ => return self.reader.expected(format!("the body of the kernel `{name}`")),
            }
        }
        let body = self.reader.block()?;
        (signature.shared, signature.local) = self.memory_of_body(&body)?;
        self.reader.at = body.end;
        self.image.signatures.push(signature);
        Ok(())
    }

    /// One to three numbers of threads.
    fn shape(&mut self) -> Result<[u32; 3]> {
        self.reader.at += 1;
        let mut shape = [1; 3];
        for (place, size) in shape.iter_mut().enumerate() {
            if place > 0 && !self.reader.accept(Token::Sign(',')) {
                break;
            }
            *size = match u32::try_from(self.reader.number()?) {
                Ok(size) if size > 0 => size,
                _ => {
                    self.reader.at -= 1;
                    return self.reader.expected("a number of threads");
                }
            };
        }
        Ok(shape)
    }

    fn parameters(&mut self) -> Result<Vec<Parameter>> {
        let (mut all, mut end) = (Vec::new(), 0_usize);
        if self.reader.accept(Token::Sign(')')) {
            return Ok(all);
        }
        loop {
            if !self.reader.accept(Token::Directive("param")) {
                return self.reader.expected("`.param`");
            }
            let declared = self.reader.declared()?;
            let Some(size) = self.reader.named(declared)?.size else {
                return self.reader.expected("a size of the parameter before");
            };
            let offset = end.next_multiple_of(declared.align);
            end = offset + size;
            if end > MOST_OF_PARAMETERS {
                return self.reader.expected(format!("at most {MOST_OF_PARAMETERS} bytes of parameters"));
            }
            all.push(Parameter { offset, size });
            if self.reader.accept(Token::Sign(')')) {
                return Ok(all);
            }
            self.reader.sign(',')?;
        }
    }

    /// Variables of one declaration: `.global .u32 a, b[4] = {1, 2};` Those that another module defines are skipped.
    fn variables(&mut self, are_defined: bool) -> Result {
        let space = self.reader.next();
        if self.reader.accept(Token::Sign('[')) {
            self.reader.number()?;
            self.reader.sign(']')?;
        }
        let declared = self.reader.declared()?;
        loop {
            let Named { name, size, parts } = self.reader.named(declared)?;
            let mut variable = Variable { name: name.to_owned(), align: declared.align, ..Variable::default() };
            (variable.managed, variable.linkage) = (declared.managed, self.linkage);
            if self.reader.accept(Token::Sign('=')) {
                let lane = declared.size / declared.lanes;
                let room = self.room;
                initial::read(&mut self.reader, &mut variable, lane, size.unwrap_or(room).min(room), &parts)?;
                self.room -= variable.initial.len();
                let part = parts.first().map_or(lane, |part| (*part).max(1));
                variable.size = size.unwrap_or(variable.initial.len().next_multiple_of(part));
            } else {
                variable.size = size.unwrap_or(0);
            }
            match space {
                _ if !are_defined => {}
                Some(Token::Directive("shared")) => drop(self.shared.insert(name, variable.size)),
                Some(Token::Directive("tex")) => {}
                _ => self.image.variables.push(variable),
            }
            if !self.reader.accept(Token::Sign(',')) {
                return self.reader.sign(';');
            }
        }
    }

    /// The shared and the local memory that a body declares, with the shared memory outside of it that it names.
    fn memory_of_body(&mut self, body: &Range<usize>) -> Result<(usize, usize)> {
        let (mut shared, mut local, mut seen) = (0_usize, 0_usize, HashSet::new());
        self.reader.at = body.start;
        let mut begins = true;
        while self.reader.at < body.end
            && let Some(token) = self.reader.peek()
        {
            if let (true, Token::Directive(space @ ("shared" | "local"))) = (begins, token) {
                self.reader.at += 1;
                let declared = self.reader.declared()?;
                loop {
                    let size = self.reader.named(declared)?.size;
                    let sum = if space == "shared" { &mut shared } else { &mut local };
                    *sum = sum.next_multiple_of(declared.align).saturating_add(size.unwrap_or(0)).min(MOST);
                    if !self.reader.accept(Token::Sign(',')) {
                        break;
                    }
                }
                self.reader.sign(';')?;
                continue;
            }
            if let Token::Name(name) = token
                && let Some((name, size)) = self.shared.get_key_value(name)
                && seen.insert(*name)
            {
                shared = shared.saturating_add(*size).min(MOST);
            }
            begins = matches!(token, Token::Sign(';' | '{' | '}' | ':'));
            self.reader.at += 1;
        }
        Ok((shared, local))
    }
}

fn product(shape: [u32; 3]) -> u32 {
    shape.into_iter().fold(1, u32::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_sys::CUresult;

    fn variable(declaration: &str) -> Variable {
        let image = read(&format!(".version 8.0\n.target sm_90a, debug\n.address_size 64\n{declaration}")).unwrap();
        let [variable] = &image.variables[..] else { panic!("{declaration}: {:?}", image.variables) };
        variable.clone()
    }

    #[test]
    fn variables_have_sizes_alignments_and_values() {
        let found = |declaration: &str| {
            let variable = variable(declaration);
            (variable.size, variable.align, variable.initial)
        };
        assert_eq!(found(".visible .global .align 16 .b8 a[3][4] = {{1, 2}, {3}};"), (12, 16, vec![1, 2, 0, 0, 3]));
        assert_eq!(found(".global .v2 .b8 a[2] = {{1}, {2, 3}};"), (4, 2, vec![1, 0, 2, 3]));
        assert_eq!(found(".const .u16 a[] = {0x102, -1};"), (4, 2, vec![2, 1, 255, 255]));
        assert_eq!(found(".const .u8 a[][4] = {{1}, {2}};"), (8, 1, vec![1, 0, 0, 0, 2]));
        assert_eq!(found(".weak .global .v4 .f32 a;"), (16, 16, vec![]));
        assert_eq!(found(".global .f64 a = 0d3FF0000000000000;"), (8, 8, 1.0_f64.to_le_bytes().to_vec()));
        assert_eq!(found(".global .f32 a = -1.5;"), (4, 4, (-1.5_f32).to_le_bytes().to_vec()));
        for (number, value) in
            [("1.0e+5", 1e5_f32), ("-2.5E-3", -2.5e-3), ("1e2", 100.0), (".5", 0.5), ("0F3f800000", 1.0)]
        {
            assert_eq!(found(&format!(".global .f32 a = {number};")), (4, 4, value.to_le_bytes().to_vec()), "{number}");
        }
        assert_eq!(found(".const[2] .s32 a = 017;"), (4, 4, vec![15, 0, 0, 0]));
        let pointers = variable(".global .u64 a[2] = {generic(b)+8, 0};");
        assert_eq!(pointers.initial, [0; 16]);
        let [address] = &pointers.addresses[..] else { panic!("{pointers:?}") };
        assert_eq!((address.offset, address.size, &*address.of, address.plus), (0, 8, "b", 8));
    }

    #[test]
    fn what_others_define_is_no_variable() {
        let image =
            read(".version 8.0\n.extern .global .u32 a;\n.extern .shared .align 16 .b8 s[];\n.func f(.reg .u32 x);")
                .unwrap();
        assert_eq!(image, Image::default());
    }

    #[test]
    fn kernels_have_bounds_and_the_memory_that_they_name() {
        let text = ".version 8.0\n.target compute_75\n.shared .b8 all[100];\n.shared .u32 other;\n\
            .file 1 \"a.cu\", 5, 6\n.func (.param .b32 r) g(.param .b32 a) { .shared .b8 x[9]; ret; }\n\
            .entry k(.param .align 4 .b8 a[6], .param .u64 b, .param .v2 .u32 c) .maxntid 8, 4, 2 .minnctapersm 2 .pragma \"x\"; {\n\
            .local .align 8 .b8 d[24]; L: .shared .u64 y; { mov.u32 %r1, all; mov.u32 %r1, all; } @%p1 bra L; }\n\
            .section .debug_str { .b8 1, 2 }";
        let image = read(text).unwrap();
        assert_eq!(image.target, 75);
        let [kernel] = &image.signatures[..] else { panic!("{image:?}") };
        let places: Vec<_> = kernel.parameters.iter().flatten().map(|place| (place.offset, place.size)).collect();
        assert_eq!(places, [(0, 6), (8, 8), (16, 8)]);
        assert_eq!((kernel.most_threads, kernel.required, kernel.shared, kernel.local), (Some(64), None, 108, 24));
    }

    #[test]
    fn older_drivers_refuse_newer_ptx() {
        for (driver, newest, refused) in [
            (11020, "7.2", "7.3"),
            (12000, "8.0", "8.1"),
            (12010, "8.1", "8.2"),
            (12060, "8.5", "8.6"),
            (12090, "8.8", "9.0"),
        ] {
            assert!(check_release(driver, newest).is_ok() && check_release(driver, "5.0").is_ok(), "{driver}");
            let error = check_release(driver, refused).unwrap_err();
            assert_eq!(error.code, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "{driver}");
            assert!(error.text.contains(refused), "{}", error.text);
        }
        assert!(check_release(settings::USUAL, "9.9").is_ok());
    }

    #[test]
    fn errors_name_the_line_and_the_word() {
        for (text, expected) in [
            ("\nentry", "line 2: expected a declaration, but found `entry`"),
            (".address_size 32", "line 1: expected the address size 64, but found `32`"),
            (".entry k(.param u32 a) {}", "line 1: expected a type, but found `u32`"),
            (".entry k(.param .u32 a {}", "line 1: expected `,`, but found `{`"),
            (".global .u8 a[2] = {1, 2, 3};", "line 1: expected the end of the value of `a`, but found `3`"),
            (".global .align 3 .u8 a;", "line 1: expected an alignment, which is a power of two, but found `3`"),
            (".global .u8 a[2] = {{1}};", "line 1: expected fewer braces, but found `{`"),
            (".global .b8 a[2][2] = {{1, 2, 3}};", "line 1: expected the end of the value of `a`, but found `3`"),
            (".global .b8 a[4294967296][4294967296];", "line 1: expected a smaller size of `a`, but found `;`"),
            (".entry k() .maxntid 0 {}", "line 1: expected a number of threads, but found `0`"),
            (".entry k(.param .b8 a[32765]) {}", "line 1: expected at most 32764 bytes of parameters, but found `)`"),
            (
                ".global .b8 a[2][33554432] = {{1}, {2}}, b[2][33554432] = {{1}, {2}};",
                "line 1: expected the end of the value of `b`, but found `{`",
            ),
            (".entry k() \"", "line 1: expected the body of the kernel `k`, but found a text"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.text, format!("softgpu: PTX, {expected}"));
            assert_eq!(error.code, CUresult::CUDA_ERROR_INVALID_PTX);
        }
    }
}
