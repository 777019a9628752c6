//! The C types that the interfaces use, with typedefs resolved. Two headers that spell the same type differently give
//! the same value here.

use std::collections::BTreeMap;
use std::fmt;

/// A C type without typedefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CType {
    /// `void`, behind a pointer or as a result.
    Void,
    /// A number, by its C name. `unsigned int` and `uint32_t` are different, as they are to a C++ compiler on some
    /// systems.
    Number(&'static str),
    /// A structure, union or enumeration, by its tag.
    Tagged(String),
    /// A pointer.
    Pointer {
        /// Whether the target is `const`.
        constant: bool,
        /// The target's type.
        to: Box<CType>,
    },
    /// An array inside a structure.
    Array {
        /// The element type.
        of: Box<CType>,
        /// The number of elements.
        length: usize,
    },
    /// A pointer to a function.
    Function(Box<Signature>),
}

/// A function's arguments and result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The argument types. Argument names are not part of the interface.
    pub arguments: Vec<CType>,
    /// The result.
    pub result: CType,
}

/// Typedefs, by name.
pub type Aliases = BTreeMap<String, syn::Type>;

/// bindgen's names of number types, with C's names.
const NUMBERS: [(&str, &str); 25] = [
    ("c_char", "char"),
    ("c_schar", "signed char"),
    ("c_uchar", "unsigned char"),
    ("c_short", "short"),
    ("c_ushort", "unsigned short"),
    ("c_int", "int"),
    ("c_uint", "unsigned int"),
    ("c_long", "long"),
    ("c_ulong", "unsigned long"),
    ("c_longlong", "long long"),
    ("c_ulonglong", "unsigned long long"),
    ("c_float", "float"),
    ("c_double", "double"),
    ("i8", "int8_t"),
    ("u8", "uint8_t"),
    ("i16", "int16_t"),
    ("u16", "uint16_t"),
    ("i32", "int32_t"),
    ("u32", "uint32_t"),
    ("i64", "int64_t"),
    ("u64", "uint64_t"),
    ("usize", "size_t"),
    ("f32", "float"),
    ("f64", "double"),
    ("bool", "bool"),
];

impl CType {
    /// Resolves a bindgen type.
    ///
    /// # Errors
    ///
    /// No C interface has a type of this kind.
    pub fn resolve(written: &syn::Type, aliases: &Aliases) -> Result<Self, String> {
        match written {
            syn::Type::Path(path) => {
                let last = path.path.segments.last().ok_or("a type without a name")?;
                let name = last.ident.to_string();
                if name == "Option" {
                    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
                        return Err("an Option of nothing".to_owned());
                    };
                    return match arguments.args.first() {
                        Some(syn::GenericArgument::Type(inner)) => Self::resolve(inner, aliases),
                        _ => Err("an Option of no type".to_owned()),
                    };
                }
                if name == "c_void" {
                    return Ok(Self::Void);
                }
                if let Some((_, number)) = NUMBERS.iter().find(|(rust, _)| *rust == name) {
                    return Ok(Self::Number(number));
                }
                match aliases.get(&name) {
                    Some(target) => Self::resolve(target, aliases),
                    None => Ok(Self::Tagged(name)),
                }
            }
            syn::Type::Ptr(pointer) => Ok(Self::Pointer {
                constant: pointer.const_token.is_some(),
                to: Box::new(Self::resolve(&pointer.elem, aliases)?),
            }),
            syn::Type::Array(array) => Ok(Self::Array {
                of: Box::new(Self::resolve(&array.elem, aliases)?),
                length: integer(&array.len)
                    .and_then(|length| usize::try_from(length).ok())
                    .ok_or("an array of unknown length")?,
            }),
            syn::Type::BareFn(function) => {
                let arguments = function.inputs.iter().map(|argument| &argument.ty);
                Ok(Self::Function(Box::new(Signature::resolve(arguments, &function.output, aliases)?)))
            }
            syn::Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Self::Void),
            _ => Err("a type that C does not have".to_owned()),
        }
    }
}

impl Signature {
    /// Resolves the signature from bindgen's arguments and result.
    ///
    /// # Errors
    ///
    /// As [`CType::resolve`].
    pub fn resolve<'a>(
        arguments: impl Iterator<Item = &'a syn::Type>,
        result: &syn::ReturnType,
        aliases: &Aliases,
    ) -> Result<Self, String> {
        Ok(Self {
            arguments: arguments.map(|argument| CType::resolve(argument, aliases)).collect::<Result<_, _>>()?,
            result: match result {
                syn::ReturnType::Default => CType::Void,
                syn::ReturnType::Type(_, result) => CType::resolve(result, aliases)?,
            },
        })
    }
}

/// Reads an integer literal as bindgen writes it, with or without a sign.
pub fn integer(expression: &syn::Expr) -> Option<i128> {
    match expression {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(literal), .. }) => literal.base10_parse().ok(),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => Some(-integer(expr)?),
        _ => None,
    }
}

impl fmt::Display for CType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Void => f.write_str("void"),
            Self::Number(name) => f.write_str(name),
            Self::Tagged(tag) => f.write_str(tag),
            Self::Pointer { constant: true, to } => write!(f, "const {to} *"),
            Self::Pointer { constant: false, to } => write!(f, "{to} *"),
            Self::Array { of, length } => write!(f, "{of}[{length}]"),
            Self::Function(signature) => write!(f, "{signature}"),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<_> = self.arguments.iter().map(CType::to_string).collect();
        write!(f, "{} ({})", self.result, arguments.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(pairs: &[(&str, &str)]) -> Aliases {
        pairs.iter().map(|(name, written)| ((*name).to_owned(), syn::parse_str(written).unwrap())).collect()
    }

    fn resolve(written: &str, pairs: &[(&str, &str)]) -> CType {
        CType::resolve(&syn::parse_str(written).unwrap(), &aliases(pairs)).unwrap()
    }

    #[test]
    fn a_chain_of_typedefs_ends_at_what_it_stands_for() {
        let pairs =
            [("CUdeviceptr", "CUdeviceptr_v2"), ("CUdeviceptr_v2", "::core::ffi::c_ulonglong"), ("A", "*mut A_st")];
        assert_eq!(resolve("CUdeviceptr", &pairs), CType::Number("unsigned long long"));
        assert_eq!(resolve("*const CUdeviceptr", &pairs), resolve("*const ::core::ffi::c_ulonglong", &[]));
        assert_eq!(resolve("*mut *const A", &pairs).to_string(), "const A_st * * *");
    }

    #[test]
    fn types_that_differ_in_one_thing_differ() {
        let written = [
            "*mut T",
            "*const T",
            "T",
            "[T; 2usize]",
            "[T; 3usize]",
            "::core::ffi::c_uint",
            "::core::ffi::c_int",
            "u32",
            "usize",
            "u64",
            "*mut ::core::ffi::c_void",
            "::core::option::Option<unsafe extern \"C\" fn(a: T)>",
            "::core::option::Option<unsafe extern \"C\" fn(a: T) -> T>",
            "::core::option::Option<unsafe extern \"C\" fn()>",
        ];
        for (index, one) in written.iter().enumerate() {
            for (other_index, other) in written.iter().enumerate() {
                assert_eq!(resolve(one, &[]) == resolve(other, &[]), index == other_index, "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_function_pointer_by_typedef_is_the_same_as_one_written_out() {
        let written = "::core::option::Option<unsafe extern \"C\" fn(data: *mut ::core::ffi::c_void)>";
        assert_eq!(resolve("Callback", &[("Callback", written)]), resolve(written, &[]));
    }

    #[test]
    fn integers_have_their_sign() {
        assert_eq!(integer(&syn::parse_str("-3").unwrap()), Some(-3));
        assert_eq!(integer(&syn::parse_str("0x10u32").unwrap()), Some(16));
        assert_eq!(integer(&syn::parse_str("a").unwrap()), None);
    }
}
