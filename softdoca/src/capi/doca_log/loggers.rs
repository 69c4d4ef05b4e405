//! Loggers: the sources of a program's messages as a tree by name, with a level each.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use doca_abi::{DOCA_LOGGER_NAME_SIZE, doca_logger};

use super::super::{
    check_out, doca_error_t, guard, guard_with, put, put_list, put_text, take_list, text,
};
use super::level;
use crate::error::{Error, Result};
use crate::log::sources::{self, Logger};

/// Loggers are never freed, and their addresses are looked up: any pointer may be asked for.
fn find(logger: *const doca_logger) -> Result<Arc<Logger>> {
    sources::at(logger.cast())
}

/// As [`find`], but NULL stands for what all loggers are below.
fn find_root(logger: *const doca_logger) -> Result<Option<Arc<Logger>>> {
    (!logger.is_null()).then(|| find(logger)).transpose()
}

/// Number of back ends that there can be: as many as memory allows.
///
/// # Safety
/// None needed: there is nothing to get wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_log_get_max_num_backends_sdk() -> u32 {
    u32::MAX
}

/// Lists loggers.
///
/// # Safety
/// The out-parameters are NULL or writable; `logger` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_create_list(
    logger: *const doca_logger,
    depth: u8,
    logger_list: *mut *mut *mut doca_logger,
    nb_loggers: *mut u32,
) -> doca_error_t {
    guard(|| {
        let loggers = sources::below(find_root(logger)?.as_deref(), depth);
        let handles = loggers
            .iter()
            .map(|logger| Arc::as_ptr(logger).cast_mut().cast());
        // SAFETY: the caller's promise.
        unsafe { put_list(handles, logger_list, nb_loggers) }
    })
}

/// Frees a list.
///
/// # Safety
/// `logger_list` is NULL or from [`doca_logger_create_list`], and dead afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_destroy_list(
    logger_list: *mut *mut doca_logger,
) -> doca_error_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { take_list(logger_list) }.map(drop))
}

/// Sets a level.
///
/// # Safety
/// Safe for any pointer: it is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_set_level(
    logger: *mut doca_logger,
    level_value: c_int,
    propagate: u8,
) -> doca_error_t {
    guard(|| {
        let level = level(u32::try_from(level_value).unwrap_or(u32::MAX))?;
        sources::set_level(find_root(logger)?.as_deref(), level, propagate != 0)
    })
}

/// Tells a level.
///
/// # Safety
/// `out` is NULL or writable; `logger` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_get_level(
    logger: *const doca_logger,
    out: *mut c_int,
) -> doca_error_t {
    guard(|| {
        super::super::not_null(logger)?;
        // SAFETY: the caller's promise.
        unsafe { put(out, find(logger)?.level() as c_int) }
    })
}

/// Writes a name.
///
/// # Safety
/// `name` is NULL or has room for [`DOCA_LOGGER_NAME_SIZE`] bytes; `logger` may be any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_get_name(
    logger: *const doca_logger,
    name: *mut c_char,
) -> doca_error_t {
    guard(|| {
        super::super::not_null(logger)?;
        // SAFETY: the caller's promise.
        unsafe { put_text(name, DOCA_LOGGER_NAME_SIZE, find(logger)?.name()) }
    })
}

/// Finds a logger in a list; NULL when it has none of this name.
///
/// # Safety
/// `logger_list` is NULL or a live list; `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_logger_find_by_name(
    logger_list: *mut *mut doca_logger,
    name: *const c_char,
) -> *mut doca_logger {
    let find = || -> Result<*mut doca_logger> {
        check_out(logger_list)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name) }?;
        for index in 0.. {
            // SAFETY: the list ends with a NULL, and the loop with it.
            let handle = unsafe { logger_list.add(index).read() };
            if handle.is_null() {
                break;
            }
            if sources::at(handle.cast_const().cast())?.name() == name {
                return Ok(handle);
            }
        }
        Err(Error::NotFound)
    };
    guard_with(std::ptr::null_mut(), || {
        find().unwrap_or(std::ptr::null_mut())
    })
}
