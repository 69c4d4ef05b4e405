//! softdoca as a shared library: every `doca_*` symbol of the engine, and the variadic function.
//!
//! It is a separate package, so that builds of Rust programs, which link the engine as a crate, neither build the
//! library nor need a C compiler.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

// Linked only for its `doca_*` symbols, which the cdylib exports.
use softdoca as _;

unsafe extern "C" {
    /// Defined in variadic.c.
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

/// Logs a message of the program: `printf` format and arguments.
///
/// This is only a jump: a cdylib does not export symbols of C objects, and a Rust function cannot take variadic
/// arguments, but a naked function leaves them in place. It is therefore declared without parameters.
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
