//! The DOCA C API as data: its types, its constants, and one table of its functions.
//!
//! All declarations that must agree on the ABI are generated from these tables: the extern block of `doca-sys`, the
//! compile-time check that softdoca's definitions have the declared types ([`check_definitions!`]), and the C headers,
//! which are written from [`ENUMS`], [`HANDLES`], [`CALLBACKS`] and [`headers`]. A second, handwritten declaration of a
//! function would link silently even if it were wrong; this crate makes such declarations unnecessary.
//!
//! Items have the names of the C API. Enums are integers with constants and not Rust enums, because the other side of an ABI may
//! send any value.
//!
//! This is the API of DOCA 3.3, as far as its storage applications and the Comch and RDMA samples use it.

#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, reason = "names of the C API")]

mod callbacks;
mod constants;
mod enums;
mod functions;
mod handles;
mod reflect;

pub use callbacks::*;
pub use constants::*;
pub use core::ffi::{c_char, c_int, c_void};
pub use enums::*;
pub use functions::{INLINE_IN_SDK, headers};
pub use handles::*;
pub use reflect::{
    CallbackDecl, ConstantDecl, EnumDecl, EnumValue, FunctionDecl, HandleDecl, Header, Parameter,
    Pointer, Type,
};

#[cfg(test)]
mod tests;
