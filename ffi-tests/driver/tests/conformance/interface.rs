//! What a header declares, as bindgen reads it: constants, typedefs, structures with their layout, functions.

use crate::ctype::{Aliases, CType, Signature, integer};
use cuda_sys::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a header declares under the requested names.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// Macros and enumeration values, which share one namespace in C.
    pub constants: BTreeMap<String, Constant>,
    /// Enumerations by tag, with their underlying number types.
    pub enums: BTreeMap<String, CType>,
    /// Typedefs by name, resolved.
    pub types: BTreeMap<String, CType>,
    /// Structures and unions by tag.
    pub records: BTreeMap<String, Record>,
    /// Functions by name.
    pub functions: BTreeMap<String, Function>,
}

/// A macro or an enumeration value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Its value.
    pub value: i128,
    /// The enumeration's tag, or `None` for a macro.
    pub of: Option<String>,
    /// The release that its comment names.
    pub since: Option<Release>,
}

/// A function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its arguments and result.
    pub signature: Signature,
    /// The release that its comment names.
    pub since: Option<Release>,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A structure.
    Struct,
    /// A union.
    Union,
    /// A type that is declared but never defined: the target of a handle.
    Opaque,
}

/// A structure or union.
#[derive(Debug, Clone)]
pub struct Record {
    /// Structure, union, or neither.
    pub kind: Kind,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    ctype: CType,
    offset: usize,
    size: usize,
    since: Option<Release>,
}

/// A field of a record, or of an unnamed record inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its path as C reaches it from the record: `params.fence.value`.
    pub path: String,
    /// Its offset in bytes from the record's start.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Its type. For an unnamed record this is only its kind.
    pub ctype: CType,
}

impl Interface {
    /// Reads bindgen's output.
    ///
    /// # Errors
    ///
    /// The text is not Rust, or contains a type that C does not have.
    pub fn parse(bindings: &str) -> Result<Self, String> {
        let file = syn::parse_file(bindings).map_err(|error| error.to_string())?;
        let aliases = aliases(&file.items);
        let layouts = layouts(&file.items);
        let mut this = Self::default();
        for name in aliases.keys().filter(|name| !name.starts_with("__")) {
            this.types.insert(name.clone(), CType::resolve(&aliases[name], &aliases)?);
        }
        for item in &file.items {
            this.add(item, &aliases, &layouts)?;
        }
        Ok(this)
    }

    fn add(&mut self, item: &syn::Item, aliases: &Aliases, layouts: &BTreeMap<String, usize>) -> Result<(), String> {
        match item {
            syn::Item::Const(constant) => {
                // bindgen wraps the values of an unnamed enumeration in a type of its own.
                let written = match &*constant.expr {
                    syn::Expr::Call(call) => call.args.first(),
                    plain => Some(plain),
                };
                if let Some(value) = written.and_then(integer) {
                    self.constants.insert(constant.ident.to_string(), Constant { value, of: None, since: None });
                }
            }
            syn::Item::Struct(item) => {
                let tag = item.ident.to_string();
                match &item.fields {
                    // bindgen's newtype for an enumeration.
                    syn::Fields::Unnamed(fields) => {
                        if let Some(number) = fields.unnamed.first() {
                            self.enums.insert(tag, CType::resolve(&number.ty, aliases)?);
                        }
                    }
                    fields => {
                        let record = record(&tag, Kind::Struct, fields.iter(), aliases, layouts)?;
                        self.records.insert(tag, record);
                    }
                }
            }
            syn::Item::Union(item) => {
                let tag = item.ident.to_string();
                let record = record(&tag, Kind::Union, item.fields.named.iter(), aliases, layouts)?;
                self.records.insert(tag, record);
            }
            syn::Item::Impl(block) if block.trait_.is_none() => self.add_values(block),
            syn::Item::ForeignMod(block) => {
                for item in &block.items {
                    let syn::ForeignItem::Fn(function) = item else { continue };
                    let arguments = function.sig.inputs.iter().filter_map(|argument| match argument {
                        syn::FnArg::Typed(argument) => Some(&*argument.ty),
                        syn::FnArg::Receiver(_) => None,
                    });
                    let signature = Signature::resolve(arguments, &function.sig.output, aliases)?;
                    let since = since(&documentation(&function.attrs));
                    self.functions.insert(function.sig.ident.to_string(), Function { signature, since });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The values of an enumeration: `pub const NAME: Tag = Tag(1);`.
    fn add_values(&mut self, block: &syn::ItemImpl) {
        let syn::Type::Path(path) = &*block.self_ty else { return };
        let Some(tag) = path.path.get_ident().map(ToString::to_string) else { return };
        for item in &block.items {
            let syn::ImplItem::Const(constant) = item else { continue };
            let syn::Expr::Call(call) = &constant.expr else { continue };
            if let Some(value) = call.args.first().and_then(integer) {
                let since = since(&documentation(&constant.attrs));
                self.constants.insert(constant.ident.to_string(), Constant { value, of: Some(tag.clone()), since });
            }
        }
    }

    /// The interface as an earlier release has it, and the names that are newer. New fields are at the end of a record,
    /// which counts as a newer name itself, because its size is another.
    pub fn at(&self, release: Release) -> (Self, BTreeSet<String>) {
        let is_newer = |since: Option<Release>| since.is_some_and(|since| since > release);
        let mut newer = BTreeSet::new();
        let mut old = self.clone();
        old.constants.retain(|name, constant| !is_newer(constant.since) || !newer.insert(name.clone()));
        for (tag, record) in &mut old.records {
            let mut is_cut = false;
            record.fields.retain(|field| {
                let cut = is_newer(field.since) && newer.insert(format!("{tag}.{}", field.name));
                is_cut |= cut;
                !cut
            });
            if is_cut {
                let end = record.fields.last().map_or(0, |field| field.offset + field.size);
                record.size = end.next_multiple_of(record.align);
                newer.insert(tag.clone());
            }
        }
        (old, newer)
    }

    /// Whether bindgen invented this tag for an unnamed record.
    pub fn is_unnamed(tag: &str) -> bool {
        tag.contains("__bindgen_ty_")
    }

    /// The fields of a record, including those of unnamed records inside it, each with its path from the record.
    pub fn members(&self, tag: &str) -> Vec<Member> {
        let mut members = Vec::new();
        self.collect(tag, "", 0, &mut members);
        members
    }

    fn collect(&self, tag: &str, prefix: &str, start: usize, members: &mut Vec<Member>) {
        let Some(record) = self.records.get(tag).filter(|record| record.kind != Kind::Opaque) else { return };
        for field in &record.fields {
            let offset = start + field.offset;
            let path = format!("{prefix}{}", field.name);
            let inner = match &field.ctype {
                CType::Tagged(tag) if Self::is_unnamed(tag) => Some(tag),
                _ => None,
            };
            let Some(inner) = inner else {
                members.push(Member { path, offset, size: field.size, ctype: field.ctype.clone() });
                continue;
            };
            // As in C, the members of an unnamed member belong to the record around it.
            if field.name.starts_with("__bindgen_anon_") {
                self.collect(inner, prefix, offset, members);
            } else {
                let kind = self.records.get(inner).map_or(Kind::Opaque, |record| record.kind);
                let ctype = CType::Tagged(format!("unnamed {kind:?} of {} bytes", field.size));
                members.push(Member { path: path.clone(), offset, size: field.size, ctype });
                self.collect(inner, &format!("{path}."), offset, members);
            }
        }
    }
}

/// The size of a type in bytes on the systems that the interfaces support, or 0 if it has none.
fn size(ctype: &CType, layouts: &BTreeMap<String, usize>) -> usize {
    match ctype {
        CType::Void => 0,
        CType::Number(name) => match *name {
            "char" | "signed char" | "unsigned char" | "int8_t" | "uint8_t" | "bool" => 1,
            "short" | "unsigned short" | "int16_t" | "uint16_t" => 2,
            "int" | "unsigned int" | "int32_t" | "uint32_t" | "float" => 4,
            _ => 8,
        },
        // bindgen asserts no layout for enumerations. They are numbers of 4 bytes.
        CType::Tagged(tag) => layouts.get(&format!("Size of {tag}")).copied().unwrap_or(4),
        CType::Pointer { .. } | CType::Function(_) => 8,
        CType::Array { of, length } => length * size(of, layouts),
    }
}

/// Typedefs: `pub type A = B;` and, for enumerations, `pub use self::B as A;`.
fn aliases(items: &[syn::Item]) -> Aliases {
    let mut aliases = Aliases::new();
    for item in items {
        match item {
            syn::Item::Type(alias) => {
                aliases.insert(alias.ident.to_string(), (*alias.ty).clone());
            }
            syn::Item::Use(item) => {
                let syn::UseTree::Path(path) = &item.tree else { continue };
                let syn::UseTree::Rename(rename) = &*path.tree else { continue };
                let target = syn::Type::Path(syn::TypePath { qself: None, path: rename.ident.clone().into() });
                aliases.insert(rename.rename.to_string(), target);
            }
            _ => {}
        }
    }
    aliases
}

/// Parses bindgen's layout assertions: `["Size of T"][size_of::<T>() - 8usize];`, by their text.
fn layouts(items: &[syn::Item]) -> BTreeMap<String, usize> {
    let mut layouts = BTreeMap::new();
    for item in items {
        let syn::Item::Const(constant) = item else { continue };
        let syn::Expr::Block(block) = &*constant.expr else { continue };
        for statement in &block.block.stmts {
            let syn::Stmt::Expr(syn::Expr::Index(index), _) = statement else { continue };
            let (syn::Expr::Array(text), syn::Expr::Binary(difference)) = (&*index.expr, &*index.index) else {
                continue;
            };
            let Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })) = text.elems.first() else {
                continue;
            };
            if let Some(value) = integer(&difference.right).and_then(|value| usize::try_from(value).ok()) {
                layouts.insert(text.value(), value);
            }
        }
    }
    layouts
}

fn record<'a>(
    tag: &str,
    kind: Kind,
    fields: impl Iterator<Item = &'a syn::Field>,
    aliases: &Aliases,
    layouts: &BTreeMap<String, usize>,
) -> Result<Record, String> {
    let mut all = Vec::new();
    let mut end = 0;
    for field in fields {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        if name == "_unused" {
            return Ok(Record { kind: Kind::Opaque, size: 0, align: 0, fields: Vec::new() });
        }
        let ctype = CType::resolve(&field.ty, aliases)?;
        let offset = match layouts.get(&format!("Offset of field: {tag}::{name}")) {
            Some(&offset) => Some(offset),
            None => unnamed_member(&name, &ctype, kind, end, layouts),
        };
        // Bit fields and padding have no offset. Our records have neither.
        let Some(offset) = offset else { continue };
        let size = size(&ctype, layouts);
        end = offset + size;
        all.push(Field { name, ctype, offset, size, since: since(&documentation(&field.attrs)) });
    }
    let layout = |what: &str| layouts.get(&format!("{what} of {tag}")).copied().unwrap_or_default();
    Ok(Record { kind, size: layout("Size"), align: layout("Alignment"), fields: all })
}

/// The offset of an unnamed member, about which bindgen asserts nothing. By C's rules it follows the preceding member.
fn unnamed_member(
    name: &str,
    ctype: &CType,
    kind: Kind,
    end: usize,
    layouts: &BTreeMap<String, usize>,
) -> Option<usize> {
    let CType::Tagged(tag) = ctype else { return None };
    let align = *layouts.get(&format!("Alignment of {tag}"))?;
    name.starts_with("__bindgen_anon_").then(|| if kind == Kind::Union { 0 } else { end.next_multiple_of(align) })
}

fn documentation(attributes: &[syn::Attribute]) -> String {
    let texts = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// The release at the end of a comment: `Since CUDA 11.2.`
pub fn since(comment: &str) -> Option<Release> {
    let (_, rest) = comment.rsplit_once("Since ")?;
    let (_, number) = rest.split_once(' ')?;
    let number = number.split_whitespace().next()?.trim_end_matches('.');
    let (major, minor) = number.split_once('.')?;
    Some(Release::new(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS: &str = r#"
        pub const CU_SIZE: u32 = 64;
        pub const CU_NEGATIVE: i32 = -1;
        pub const CU_TEXT: &[u8; 2] = b"a\0";
        pub struct _bindgen_ty_1(pub ::core::ffi::c_uint);
        pub const CU_UNNAMED: _bindgen_ty_1 = _bindgen_ty_1(5);
        pub struct CUkind_enum(pub ::core::ffi::c_uint);
        impl CUkind_enum { #[doc = " A. Since CUDA 10.2."] pub const CU_KIND_A: CUkind_enum = CUkind_enum(3); }
        pub use self::CUkind_enum as CUkind;
        pub struct CUthing_st { _unused: [u8; 0] }
        pub type CUthing = *mut CUthing_st;
        pub struct CUplace_st { pub kind: CUkind, pub __bindgen_anon_1: CUplace_st__bindgen_ty_1 }
        const _: () = {
            ["Size of CUplace_st"][::core::mem::size_of::<CUplace_st>() - 8usize];
            ["Alignment of CUplace_st"][::core::mem::align_of::<CUplace_st>() - 4usize];
            ["Offset of field: CUplace_st::kind"][::core::mem::offset_of!(CUplace_st, kind) - 0usize];
            ["Size of CUplace_st__bindgen_ty_1"][::core::mem::size_of::<CUplace_st>() - 4usize];
            ["Alignment of CUplace_st__bindgen_ty_1"][::core::mem::align_of::<CUplace_st>() - 4usize];
            ["Offset of field: CUplace_st__bindgen_ty_1::id"][::core::mem::offset_of!(CUplace_st, kind) - 0usize];
        };
        pub struct CUgrown_st { pub kind: CUkind, #[doc = " More. Since CUDA 10.2."] pub more: ::core::ffi::c_int }
        const _: () = {
            ["Size of CUgrown_st"][::core::mem::size_of::<CUgrown_st>() - 8usize];
            ["Alignment of CUgrown_st"][::core::mem::align_of::<CUgrown_st>() - 4usize];
            ["Offset of field: CUgrown_st::kind"][::core::mem::offset_of!(CUgrown_st, kind) - 0usize];
            ["Offset of field: CUgrown_st::more"][::core::mem::offset_of!(CUgrown_st, more) - 4usize];
        };
        pub union CUplace_st__bindgen_ty_1 { pub id: ::core::ffi::c_int }
        unsafe extern "C" {
            #[doc = " Makes a thing. Since CUDA 11.2."]
            pub fn cuThingCreate(thing: *mut CUthing, place: *const CUplace_st) -> CUkind;
        }
    "#;

    #[test]
    fn every_kind_of_declaration_is_read() {
        let interface = Interface::parse(BINDINGS).unwrap();
        let constant = |name: &str| interface.constants[name].clone();
        assert_eq!(constant("CU_SIZE"), Constant { value: 64, of: None, since: None });
        assert_eq!(constant("CU_NEGATIVE").value, -1);
        assert_eq!(constant("CU_UNNAMED"), Constant { value: 5, of: None, since: None });
        let of = Some("CUkind_enum".to_owned());
        assert_eq!(constant("CU_KIND_A"), Constant { value: 3, of, since: Some(Release::new(10, 2)) });
        assert_eq!(interface.enums["CUkind_enum"].to_string(), "unsigned int");
        assert_eq!(interface.types["CUthing"].to_string(), "CUthing_st *");
        assert_eq!(interface.records["CUthing_st"].kind, Kind::Opaque);
        assert_eq!((interface.records["CUplace_st"].size, interface.records["CUplace_st"].align), (8, 4));
        let function = &interface.functions["cuThingCreate"];
        assert_eq!(function.signature.to_string(), "CUkind_enum (CUthing_st * *, const CUplace_st *)");
        assert_eq!(function.since, Some(Release::new(11, 2)));
    }

    #[test]
    fn members_of_an_unnamed_member_belong_to_the_record_around_it() {
        let members = Interface::parse(BINDINGS).unwrap().members("CUplace_st");
        let seen: Vec<_> =
            members.iter().map(|member| (member.path.as_str(), member.offset, member.ctype.to_string())).collect();
        assert_eq!(seen, [("kind", 0, "CUkind_enum".to_owned()), ("id", 4, "int".to_owned())]);
    }

    #[test]
    fn an_earlier_release_lacks_what_came_later() {
        let (old, newer) = Interface::parse(BINDINGS).unwrap().at(Release::new(10, 1));
        assert_eq!(newer.into_iter().collect::<Vec<_>>(), ["CU_KIND_A", "CUgrown_st", "CUgrown_st.more"]);
        assert!(!old.constants.contains_key("CU_KIND_A"));
        assert_eq!((old.records["CUgrown_st"].size, old.members("CUgrown_st").len()), (4, 1));
    }

    #[test]
    fn the_release_is_read_from_the_end_of_a_comment() {
        assert_eq!(since("Since CUDA 3.2 pools exist. Since CUDA 12.8."), Some(Release::new(12, 8)));
        assert_eq!(since("Since vkgdr 0.1."), Some(Release::new(0, 1)));
        assert_eq!(since("Since then."), None);
    }
}
