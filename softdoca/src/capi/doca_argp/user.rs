//! What the user is shown.

use std::ffi::{CString, c_void};

use doca_abi::DOCA_LOG_LEVEL_ERROR;

use super::session;
use crate::argp::{Scope, usage};
use crate::capi::stdio::Stream;
use crate::error::{Error, Result};

/// Prints how the program, or one of its commands, is used.
pub(super) fn show_usage(scope: Option<&Scope>) -> Result<()> {
    let text = session::with(|session| {
        let scope = scope.unwrap_or(&session.scope);
        Ok(usage(
            &session.definitions,
            session.called.as_deref(),
            scope,
        ))
    })?;
    Stream::output().write(&text);
    Ok(())
}

/// Tells the user why the arguments are not accepted.
pub(super) fn complain(text: &str) -> Result<()> {
    let (logger, name) = session::with(|session| {
        let name = session.definitions.program_name.as_ref();
        let name = name.or(session.called.as_ref()).cloned();
        Ok((session.logger, name.unwrap_or_default()))
    })?;
    let text = format!("{name}: {text}; -h shows the usage");
    let Some(logger) = logger else {
        Stream::errors().write(&format!("{text}\n"));
        return Ok(());
    };
    // The text is the format: it has no arguments.
    let format = CString::new(text.replace('%', "%%")).map_err(|_| Error::InvalidValue)?;
    let mut arguments = NoArguments::new();
    // SAFETY: the program gave the function for this purpose; a format without conversions takes none of the arguments.
    unsafe {
        logger(
            DOCA_LOG_LEVEL_ERROR,
            format.as_ptr(),
            std::ptr::from_mut(&mut arguments).cast::<c_void>(),
        );
    }
    Ok(())
}

/// A `va_list` with nothing in it, as the platform's ABI lays it out.
#[repr(C)]
struct NoArguments(#[cfg_attr(not(test), allow(dead_code, reason = "read by C"))] [u64; 4]);

impl NoArguments {
    #[cfg(target_arch = "x86_64")]
    fn new() -> NoArguments {
        // u32 gp_offset, u32 fp_offset, overflow_arg_area, reg_save_area: all registers are taken.
        NoArguments([48 | 176 << 32, 0, 0, 0])
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn new() -> NoArguments {
        // On AArch64: stack, gr_top, vr_top, i32 gr_offs, i32 vr_offs: offsets of 0 say that all registers are taken.
        NoArguments([0; 4])
    }
}
