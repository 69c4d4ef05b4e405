//! softdoca as a shared library: every `doca_*` symbol of the engine, and the variadic function that it cannot have.
//!
//! A package of its own, so that builds of Rust programs, which link the engine as a crate, neither make the library nor
//! need a C compiler.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

// Nothing of the crate is named: it is linked for its `doca_*` symbols, which a cdylib exports as its own.
use softdoca as _;

unsafe extern "C" {
    /// In variadic.c.
    fn softdoca_log_variadic(
        level: u32,
        source: c_int,
        file: *const c_char,
        line: c_int,
        function: *const c_char,
        format: *const c_char,
        ...
    ) -> u32;
}

/// Logs a message of the program, `printf`'s format and arguments.
///
/// A jump and nothing else: symbols of C objects are not exported from a cdylib, and a Rust function cannot take variadic
/// arguments; but it can leave them all where the caller put them. The declared type is that without arguments.
///
/// # Safety
/// As for `printf`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log() -> u32 {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("jmp {}", sym softdoca_log_variadic);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("b {}", sym softdoca_log_variadic);
}
