//! The attribute `#[tool]` of the crate `toolhost`.

use proc_macro::TokenStream;
use quote::quote;
use syn::{parse::Parser, punctuated::Punctuated, *};

const HINTS: [&str; 7] = ["readonly", "idempotent", "destructive", "open_world", "messages", "supports_background", "long_running"];

/// Makes a tool of `fn f(args: A, call: &Call) -> Result<T, ToolError>`, or of an `async fn`.
///
/// Both parameters may be left out. The doc comment is the description. The attribute takes hints
/// (`readonly`, `open_world = false`), `name = "…"`, `timeout_seconds = 10`, and JSON in a string, as in
/// the manifest: `needs`, an object of what this tool needs in addition to its plugin, and `examples`, a list.
#[proc_macro_attribute]
pub fn tool(attr: TokenStream, item: TokenStream) -> TokenStream {
    let f = parse_macro_input!(item as ItemFn);
    expand(attr, f).unwrap_or_else(|e| e.to_compile_error()).into()
}

fn expand(attr: TokenStream, f: ItemFn) -> Result<proc_macro2::TokenStream> {
    let (ident, vis) = (&f.sig.ident, &f.vis);
    let (mut name, mut hints, mut timeout, mut needs, mut examples) =
        (quote!(stringify!(#ident)), vec![], quote!(None), quote!("{}"), quote!("[]"));
    for m in Punctuated::<Meta, Token![,]>::parse_terminated.parse(attr)? {
        let key = m.path().get_ident().map(|i| i.to_string()).unwrap_or_default();
        match &m {
            Meta::Path(_) if HINTS.contains(&&*key) => hints.push(quote!((#key, true))),
            Meta::NameValue(MetaNameValue { value, .. }) => match &*key {
                "name" => name = quote!(#value),
                "needs" => needs = quote!(#value),
                "examples" => examples = quote!(#value),
                "timeout_seconds" => timeout = quote!(Some(#value)),
                k if HINTS.contains(&k) => hints.push(quote!((#key, #value))),
                _ => return Err(unknown(&m)),
            },
            _ => return Err(unknown(&m)),
        }
    }

    let types: Vec<_> = f.sig.inputs.iter().filter_map(|a| if let FnArg::Typed(t) = a { Some(&*t.ty) } else { None }).collect();
    let (args, invoke) = match types.as_slice() {
        [] => (quote!(::toolhost::NoArgs), quote!(#ident())),
        [Type::Reference(_)] => (quote!(::toolhost::NoArgs), quote!(#ident(call))),
        [a] => (quote!(#a), quote!(#ident(args))),
        [a, Type::Reference(_)] => (quote!(#a), quote!(#ident(args, call))),
        _ => return Err(Error::new_spanned(&f.sig.inputs, "a tool takes its arguments and a &Call, each of which may be left out")),
    };
    let step = if f.sig.asyncness.is_some() {
        quote!(::toolhost::Step::Wait(::std::boxed::Box::pin(async move { ::toolhost::outcome(#invoke.await) })))
    } else {
        quote!(::toolhost::Step::Done(::toolhost::outcome(#invoke)))
    };
    let about = doc(&f.attrs);

    Ok(quote! {
        #f
        #[allow(non_camel_case_types)]
        #[doc(hidden)]
        #vis struct #ident {}
        impl ::toolhost::ToolDef for #ident {
            const NAME: &'static str = #name;
            const ABOUT: &'static str = #about;
            const HINTS: &'static [(&'static str, bool)] = &[#(#hints),*];
            const TIMEOUT_SECONDS: Option<u32> = #timeout;
            const NEEDS: &'static str = #needs;
            const EXAMPLES: &'static str = #examples;
            type Args = #args;
            #[allow(unused_variables)]
            fn run(args: Self::Args, call: &'static ::toolhost::Call) -> ::toolhost::Step { #step }
        }
    })
}

fn unknown(m: &Meta) -> Error {
    Error::new_spanned(m, format!("unknown option: want name, timeout_seconds, needs, examples or a hint ({})", HINTS.join(", ")))
}

/// The text of a doc comment, its lines joined.
fn doc(attrs: &[Attribute]) -> String {
    let line = |a: &Attribute| match &a.meta {
        Meta::NameValue(MetaNameValue { path, value: Expr::Lit(ExprLit { lit: Lit::Str(s), .. }), .. }) if path.is_ident("doc") => {
            Some(s.value().trim().to_string())
        }
        _ => None,
    };
    attrs.iter().filter_map(line).collect::<Vec<_>>().join(" ").trim().to_string()
}
