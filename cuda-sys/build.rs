//! With the feature `bindgen`, turns wrapper.h into `$OUT_DIR/bindings.rs`. The checked-in src/bindings.rs is a copy of
//! that file, made by scripts/bindings, so that a plain build needs no libclang.
//!
//! cuda-sys and vkgdr-sys use the same script. The crate's name decides which names the bindings contain.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    #[cfg(feature = "bindgen")]
    generate::run();
}

#[cfg(feature = "bindgen")]
mod generate {
    use bindgen::callbacks::ParseCallbacks;
    use proc_macro2::TokenStream;
    use quote::quote;
    use std::{env, fs, path::PathBuf};
    use syn::{Attribute, Expr, ForeignItem, Item, Lit, Meta};

    /// The names that a crate takes from its header.
    struct Names {
        functions: &'static str,
        types: &'static str,
        constants: &'static str,
        /// Types that another crate declares.
        foreign: Option<(&'static str, &'static str)>,
    }

    fn names() -> Names {
        match env::var("CARGO_PKG_NAME").as_deref() {
            Ok("cuda-mem-sys") => {
                Names { functions: "cu[A-Z].*", types: "CU.*|cuuint.*", constants: "CU_.*|CUDA_.*", foreign: None }
            }
            Ok("vkgdr-sys") => Names {
                functions: "vkgdr_.*",
                types: "vkgdr_.*",
                constants: "VKGDR_.*",
                foreign: Some(("CUdevice|CUdeviceptr", "use cuda_sys::{CUdevice, CUdeviceptr};")),
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
    }

    pub fn run() {
        let names = names();
        let mut builder = bindgen::Builder::default()
            .header("wrapper.h")
            .allowlist_function(names.functions)
            .allowlist_type(names.types)
            .allowlist_var(names.constants)
            .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
            .bitfield_enum("CUmemAllocationHandleType_enum|CU.*_flags_enum")
            .prepend_enum_name(false)
            .must_use_type("cudaError_enum")
            .use_core()
            .derive_default(true)
            .derive_eq(true)
            // Functions have no identity.
            .no_partialeq("CUDA_HOST_NODE_PARAMS_st")
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
        fs::write(&out, rewrite(file)).unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
    }

    /// Keeps types and constants, turns the `extern` block into a call of `function_table!`, and adds the names of the
    /// result codes.
    fn rewrite(file: syn::File) -> String {
        let mut items = TokenStream::new();
        let mut functions = TokenStream::new();
        for item in file.items {
            match item {
                Item::ForeignMod(block) => {
                    for item in block.items {
                        let ForeignItem::Fn(function) = item else { continue };
                        functions.extend(entry(&function));
                    }
                }
                other => {
                    if let Item::Impl(block) = &other {
                        items.extend(result_names(block));
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
        let since = since(&doc).unwrap_or_else(|| panic!("{name}: wrapper.h does not say `Since CUDA x.y.`"));
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

    /// For the constants of `cudaError_enum`: a function that maps a code to its name.
    fn result_names(block: &syn::ItemImpl) -> Option<TokenStream> {
        let syn::Type::Path(path) = &*block.self_ty else { return None };
        if block.trait_.is_some() || !path.path.is_ident("cudaError_enum") {
            return None;
        }
        let names: Vec<_> = block
            .items
            .iter()
            .filter_map(|item| match item {
                syn::ImplItem::Const(constant) => Some(&constant.ident),
                _ => None,
            })
            .collect();
        let texts = names.iter().map(|name| name.to_string());
        Some(quote! {
            impl cudaError_enum {
                /// The code's name, if this crate knows the code.
                pub const fn name(self) -> Option<&'static str> {
                    Some(match self {
                        #(Self::#names => #texts,)*
                        _ => return None,
                    })
                }
            }
        })
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
        let rest = doc.rsplit_once("Since CUDA ").or_else(|| doc.rsplit_once("Since vkgdr "))?.1;
        let (major, minor) = rest.trim_end_matches('.').split_once('.')?;
        Some(major.parse::<u32>().ok()? * 1000 + minor.parse::<u32>().ok()? * 10)
    }
}
