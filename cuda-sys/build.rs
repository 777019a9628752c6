//! With the feature `bindgen`, turns wrapper.h into `$OUT_DIR/bindings.rs`. The checked-in src/bindings.rs is a copy of
//! that file, made by scripts/bindings, so that a plain build needs no libclang.
//!
//! cuda-sys, vkgdr-sys and ucx-sys use the same script. The crate's name decides which names the bindings contain.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    #[cfg(feature = "bindgen")]
    generate::run();
}

#[cfg(feature = "bindgen")]
mod generate {
    use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};
    use proc_macro2::TokenStream;
    use quote::quote;
    use std::{env, fs, path::PathBuf};
    use syn::{Attribute, Expr, ForeignItem, Item, Lit, Meta};

    /// The names that a crate takes from its header.
    struct Names {
        functions: &'static str,
        types: &'static str,
        constants: &'static str,
        /// Types that another crate declares, and the line that imports them.
        foreign: Option<(&'static str, &'static str)>,
        /// Enumerations whose values are bits.
        masks: &'static str,
        /// Whether each bit states its release.
        dated: bool,
        /// Structures that contain functions, which have no identity.
        incomparable: &'static str,
        /// The enumeration of the results, whose names programs print.
        results: &'static str,
    }

    fn names() -> Names {
        match env::var("CARGO_PKG_NAME").as_deref() {
            Ok("cuda-mem-sys") => Names {
                functions: "cu[A-Z].*",
                types: "CU.*|cuuint.*",
                constants: "CU_.*|CUDA_.*",
                foreign: None,
                masks: "CUmemAllocationHandleType_enum|CU.*_flags_enum",
                dated: false,
                incomparable: "CUDA_HOST_NODE_PARAMS_st",
                results: "cudaError_enum",
            },
            Ok("vkgdr-sys") => Names {
                functions: "vkgdr_.*",
                types: "vkgdr_.*",
                constants: "VKGDR_.*",
                foreign: Some(("CUdevice|CUdeviceptr", "use cuda_sys::{CUdevice, CUdeviceptr};")),
                masks: "-",
                dated: false,
                incomparable: "-",
                results: "-",
            },
            Ok("cuda-mem-ucx-sys") => Names {
                functions: "uc[ps]_.*",
                types: "uc[ps]_.*",
                constants: "UC[PS]_.*",
                foreign: Some((
                    "sockaddr|sockaddr_storage|socklen_t|__socklen_t|sa_family_t",
                    "use libc::{sockaddr, sockaddr_storage, socklen_t};",
                )),
                masks: "ucp_.*_field|ucp_.*_flags|ucp_.*_flags_t|ucp_feature|ucp_mem_map_prot|ucp_op_attr_t|ucp_am_recv_attr_t",
                dated: true,
                incomparable: "ucp_params|ucp_.*_handler|ucp_am_handler_param",
                results: "ucs_status_t",
            },
            other => panic!("no rule for the crate {other:?}"),
        }
    }

    /// bindgen copies the text of doc comments into attributes unchanged. rustdoc and rustfmt would disagree about a
    /// leading blank.
    #[derive(Debug)]
    struct TidyComments;

    impl ParseCallbacks for TidyComments {
        fn process_comment(&self, comment: &str) -> Option<String> {
            let lines: Vec<&str> = comment.lines().map(str::trim).collect();
            Some(format!(" {}", lines.join(" ").trim()))
        }

        /// The types of other crates are plain C, as ours are.
        fn blocklisted_type_implements_trait(&self, _name: &str, derive: DeriveTrait) -> Option<ImplementsTrait> {
            matches!(derive, DeriveTrait::Copy | DeriveTrait::Debug).then_some(ImplementsTrait::Yes)
        }
    }

    pub fn run() {
        let names = names();
        let mut builder = bindgen::Builder::default()
            .header("wrapper.h")
            .allowlist_function(names.functions)
            .allowlist_type(names.types)
            .allowlist_var(names.constants)
            .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
            .bitfield_enum(names.masks)
            .prepend_enum_name(false)
            .must_use_type(names.results)
            .use_core()
            .derive_default(true)
            .derive_eq(true)
            .no_partialeq(names.incomparable)
            .layout_tests(true)
            .generate_comments(true)
            .merge_extern_blocks(true)
            .rust_target(bindgen::RustTarget::stable(85, 0).expect("a release that bindgen knows"))
            .rust_edition(bindgen::RustEdition::Edition2024)
            .formatter(bindgen::Formatter::Prettyplease)
            .parse_callbacks(Box::new(TidyComments));
        if let Some((types, line)) = names.foreign {
            builder = builder.blocklist_type(types).raw_line(line);
        }
        let bindings = builder.generate().unwrap_or_else(|error| {
            panic!("bindgen cannot read wrapper.h: {error}; it needs libclang (Debian: apt-get install libclang-dev)")
        });

        let file = syn::parse_file(&bindings.to_string()).expect("bindgen writes Rust");
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
        fs::write(&out, rewrite(file, &names))
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
    }

    /// Keeps types and constants, turns the `extern` block into a call of `function_table!`, and adds the names of the
    /// result codes.
    fn rewrite(file: syn::File, names: &Names) -> String {
        let mut items = TokenStream::new();
        let mut functions = TokenStream::new();
        let masks: Vec<String> = file.items.iter().filter_map(mask).collect();
        for item in file.items {
            match item {
                Item::ForeignMod(block) => {
                    for item in block.items {
                        let ForeignItem::Fn(function) = item else { continue };
                        functions.extend(entry(&function));
                    }
                }
                other => {
                    if let Item::Impl(block) = &other
                        && let Some(ident) = inherent(block)
                    {
                        if ident == names.results {
                            items.extend(result_names(ident, block));
                        }
                        if names.dated && masks.iter().any(|mask| ident == mask) {
                            items.extend(dated_bits(ident, block));
                        }
                    }
                    items.extend(quote!(#other));
                }
            }
        }
        let table = pretty(quote!(unsafe extern "C" { #functions }));
        let table = table.trim_start_matches("unsafe extern \"C\"");
        format!(
            "// Made from wrapper.h by build.rs (scripts/bindings); do not edit.\n\n{}\nfunction_table!{table}",
            pretty(items)
        )
    }

    fn pretty(tokens: TokenStream) -> String {
        prettyplease::unparse(&syn::parse2(tokens).expect("the generator writes Rust"))
    }

    /// One function: its documentation, the release that introduced it, its signature.
    fn entry(function: &syn::ForeignItemFn) -> TokenStream {
        let name = &function.sig.ident;
        let doc = documentation(&function.attrs);
        let since =
            since(&doc).unwrap_or_else(|| panic!("{name}: wrapper.h does not say since which release it is there"));
        let since = proc_macro2::Literal::u32_unsuffixed(since);
        let doc = format!(" {doc}");
        let arguments = function.sig.inputs.iter();
        let result = match &function.sig.output {
            syn::ReturnType::Default => quote!(()),
            syn::ReturnType::Type(_, result) => quote!(#result),
        };
        quote! {
            #[doc = #doc]
            #[since(#since)]
            fn #name(#(#arguments),*) -> #result;
        }
    }

    /// The type that a block without a trait adds to.
    fn inherent(block: &syn::ItemImpl) -> Option<&syn::Ident> {
        match &*block.self_ty {
            syn::Type::Path(path) if block.trait_.is_none() => path.path.get_ident(),
            _ => None,
        }
    }

    /// An enumeration whose values are bits: bindgen writes an `|` for it.
    fn mask(item: &Item) -> Option<String> {
        let Item::Impl(block) = item else { return None };
        let (_, path, _) = block.trait_.as_ref()?;
        let (syn::Type::Path(mask), true) = (&*block.self_ty, path.segments.last()?.ident == "BitOr") else {
            return None;
        };
        Some(mask.path.get_ident()?.to_string())
    }

    fn constants(block: &syn::ItemImpl) -> impl Iterator<Item = &syn::ImplItemConst> {
        block.items.iter().filter_map(|item| match item {
            syn::ImplItem::Const(constant) => Some(constant),
            _ => None,
        })
    }

    /// A function that maps a result code to its name.
    fn result_names(results: &syn::Ident, block: &syn::ItemImpl) -> TokenStream {
        let names: Vec<_> = constants(block).map(|constant| &constant.ident).collect();
        let texts = names.iter().map(|name| name.to_string());
        quote! {
            impl #results {
                /// The code's name, if this crate knows the code.
                pub const fn name(self) -> Option<&'static str> {
                    Some(match self {
                        #(Self::#names => #texts,)*
                        _ => return None,
                    })
                }
            }
        }
    }

    /// The bits of a mask, each with the release that introduced it.
    fn dated_bits(mask: &syn::Ident, block: &syn::ItemImpl) -> TokenStream {
        let bits = constants(block).map(|constant| {
            let name = &constant.ident;
            let text = name.to_string();
            let since = since(&documentation(&constant.attrs))
                .unwrap_or_else(|| panic!("{name}: wrapper.h does not say since which release it is there"));
            let since = proc_macro2::Literal::u32_unsuffixed(since);
            quote!(Bit::new(#text, Self::#name.0, #since))
        });
        quote! {
            impl Mask for #mask {
                const BITS: &'static [Bit] = &[#(#bits),*];
                fn value(self) -> u32 {
                    self.0
                }
            }
        }
    }

    fn documentation(attributes: &[Attribute]) -> String {
        attributes
            .iter()
            .filter_map(|attribute| match &attribute.meta {
                Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                    Expr::Lit(literal) => match &literal.lit {
                        Lit::Str(text) => Some(text.value().trim().to_owned()),
                        _ => None,
                    },
                    _ => None,
                },
                _ => None,
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Parses `Since vkgdr 0.1.` as 10, and `Since CUDA 11.2.` as 11020, the number that cuDriverGetVersion would
    /// return.
    fn since(doc: &str) -> Option<u32> {
        let rest = ["Since CUDA ", "Since vkgdr ", "Since UCX "].iter().find_map(|since| doc.rsplit_once(since))?.1;
        let (major, minor) = rest.trim_end_matches('.').split_once('.')?;
        Some(major.parse::<u32>().ok()? * 1000 + minor.parse::<u32>().ok()? * 10)
    }
}
