//! The DOCA C API as data: its types, its constants, and one table of its functions.
//!
//! All declarations that must agree on the ABI are generated from these tables: the extern block of `doca-sys`, the
//! compile-time check that softdoca's definitions have the declared types ([`check_definitions!`]), and the C headers,
//! which are generated from [`ENUMS`], [`HANDLES`], [`CALLBACKS`] and [`headers`]. A second, handwritten declaration of
//! a function would link silently even if it were wrong; this crate makes such declarations unnecessary.
//!
//! Items have the names of the C API. Enums are integers with constants and not Rust enums, because the other side of
//! an ABI may send any value.
//!
//! This is the API of DOCA 3.3, as far as its storage applications and the Comch and RDMA samples use it. Differing
//! declarations of earlier releases are in [`EARLIER_FUNCTIONS`] and in the related tables.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![allow(non_camel_case_types, reason = "names of the C API")]

mod changes;
mod documented;
mod enums;
mod functions;
mod handles;
mod releases;

pub use changes::{
    Arguments, CHANGES, Change, EARLIER_INCLUDES, EARLIER_INCLUDES_UNTIL, Effect, SymbolKind,
    VERSIONS, Version,
};
pub use core::ffi::{c_char, c_int, c_void};
pub use documented::{DOCUMENTED_ERRORS, DocumentedError, Provocation, Reason};
pub use enums::*;
pub use functions::{
    CallbackDecl, ConstantDecl, EARLIER_FUNCTIONS, EarlierFunction, EnumDecl, EnumValue,
    FunctionDecl, HandleDecl, Header, INLINE_IN_SDK, Parameter, Pointer, Type, headers,
};
pub use handles::*;
pub use releases::*;

#[cfg(test)]
mod tests {
    use core::mem::{align_of, size_of};

    extern crate std;
    use std::collections::BTreeSet;
    use std::string::{String, ToString};
    use std::vec::Vec;

    use crate::*;

    fn functions() -> impl Iterator<Item = &'static FunctionDecl> {
        headers().iter().flat_map(|header| header.functions)
    }

    #[test]
    fn the_two_lists_of_headers_agree() {
        let mut names: Vec<&str> = Vec::new();
        macro_rules! names {
        ([$names:ident] header $header:literal; $(
            $(#[$doc:meta])* fn $name:ident($($p:ident: $t:ty),* $(,)?) $(-> $r:ty)?;
        )*) => { $($names.push(stringify!($name));)* };
    }
        doca_functions!(names, names);
        assert_eq!(
            names,
            functions()
                .map(|function| function.name)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn documented_errors_are_errors_of_functions() {
        let mut names: BTreeSet<String> = BTreeSet::new();
        let errors = ENUMS.iter().find(|decl| decl.name == "doca_error_t");
        let errors = errors.expect("the enum of errors").values;
        for documented in DOCUMENTED_ERRORS {
            let DocumentedError {
                function, error, ..
            } = documented;
            assert!(
                functions().any(|known| known.name == *function),
                "{function} is not in the table"
            );
            let name = std::format!("DOCA_ERROR_{error}");
            assert!(
                errors.iter().any(|known| known.name == name),
                "{function}: there is no {name}"
            );
            assert!(
                names.insert(std::format!("{function} {error}")),
                "{function}: {error} is listed twice"
            );
        }
    }

    #[test]
    fn names_are_unique_and_documented() {
        let mut names = BTreeSet::new();
        for function in functions() {
            assert!(
                names.insert(function.name),
                "{} is declared twice",
                function.name
            );
            assert!(
                !function.doc.trim().is_empty(),
                "{} has no documentation",
                function.name
            );
            assert!(function.name.starts_with("doca_"));
        }
        for name in INLINE_IN_SDK {
            assert!(names.contains(name), "{name} is not in the table");
        }
    }

    /// A type that the header generator cannot name would otherwise be reported only by its tests.
    #[test]
    fn every_type_in_a_signature_is_known() {
        let mut known: BTreeSet<String> = [
            "c_void", "c_char", "c_int", "u8", "u16", "u32", "u64", "usize",
        ]
        .into_iter()
        .chain([
            "doca_data",
            "doca_rdma_gid",
            "doca_clock_timespec_t",
            "doca_be32_t",
            "doca_notification_handle_t",
            "FILE",
            "va_list",
        ])
        .chain(ENUMS.iter().map(|decl| decl.name))
        .chain(HANDLES.iter().map(|decl| decl.name))
        .map(ToString::to_string)
        .collect();
        known.extend(CALLBACKS.iter().map(|decl| decl.name.to_string()));
        let parameters = functions()
            .flat_map(|function| function.params)
            .chain(CALLBACKS.iter().flat_map(|c| c.params));
        for ty in parameters
            .map(|parameter| parameter.ty)
            .chain(functions().filter_map(|function| function.ret))
        {
            assert!(
                known.contains(ty.base()),
                "{ty:?} is neither a handle nor an enum nor a callback"
            );
        }
    }

    #[test]
    fn enum_values_are_unique_within_their_enum() {
        for decl in ENUMS {
            let values: BTreeSet<u32> = decl.values.iter().map(|value| value.value).collect();
            assert_eq!(values.len(), decl.values.len(), "{}", decl.name);
            let names: BTreeSet<&str> = decl.values.iter().map(|value| value.name).collect();
            assert_eq!(names.len(), decl.values.len(), "{}", decl.name);
        }
    }

    #[test]
    fn errors_have_the_published_values() {
        assert_eq!(ENUMS[0].name, "doca_error_t");
        assert!(
            ENUMS[0]
                .values
                .iter()
                .enumerate()
                .all(|(index, value)| value.value as usize == index)
        );
        assert_eq!(
            (
                DOCA_ERROR_INVALID_VALUE,
                DOCA_ERROR_TIME_OUT,
                DOCA_ERROR_IO_FAILED,
                DOCA_ERROR_BAD_STATE,
                DOCA_ERROR_SKIPPED
            ),
            (6, 9, 17, 18, 30)
        );
        for value in ENUMS[0].values {
            assert_eq!(
                error_name(value.value).map(|name| name.to_str()),
                Some(Ok(value.name))
            );
            assert_eq!(
                error_description(value.value).map(|name| name.to_str()),
                Some(Ok(value.doc))
            );
        }
        assert_eq!((error_name(31), error_description(u32::MAX)), (None, None));
    }

    #[test]
    fn layouts_are_those_of_c() {
        assert_eq!(
            (size_of::<doca_data>(), align_of::<doca_data>()),
            (8, align_of::<u64>())
        );
        assert_eq!(size_of::<doca_rdma_gid>(), 16);
        assert_eq!(size_of::<doca_task_completion_cb_t>(), size_of::<usize>());
        assert_eq!(size_of::<doca_buf>(), 0);
    }

    #[test]
    fn reflection_shows_the_declaration() {
        let get_len = functions()
            .find(|function| function.name == "doca_buf_get_len")
            .unwrap();
        assert_eq!(get_len.header, "doca_buf.h");
        assert_eq!(get_len.ret.map(Type::base), Some("doca_error_t"));
        assert_eq!(
            get_len
                .params
                .iter()
                .map(|parameter| parameter.name)
                .collect::<Vec<_>>(),
            ["buf", "len"]
        );
        assert_eq!(get_len.params[0].ty.base(), "doca_buf");
        assert_eq!(
            get_len.params[0].ty.pointers().collect::<Vec<_>>(),
            [Pointer::Const]
        );
        let export = functions()
            .find(|function| function.name == "doca_mmap_export_pci")
            .unwrap();
        assert_eq!(export.params[2].ty.base(), "c_void");
        assert_eq!(
            export.params[2].ty.pointers().collect::<Vec<_>>(),
            [Pointer::Mut, Pointer::Const]
        );
        assert_eq!(
            export.params[3].ty.pointers().collect::<Vec<_>>(),
            [Pointer::Mut]
        );
        let free = functions()
            .find(|function| function.name == "doca_task_free")
            .unwrap();
        assert_eq!(free.ret, None);
    }
}
