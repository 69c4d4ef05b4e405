//! The one parser of a process.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use doca_abi::{
    doca_argp_dpdk_cb_t, doca_argp_logger_cb_t, doca_argp_param_cb_t, doca_argp_validation_cb_t,
    doca_dev, doca_devinfo, doca_error_t,
};

use crate::argp::{Definitions, LogLevels, Scope};
use crate::error::{Error, Result};

/// A pointer of the program's, which softdoca only hands back.
#[repr(transparent)]
pub(super) struct Opaque<T>(pub(super) *mut T);

// Not derived: that would ask for a `T` that can be copied.
impl<T> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Opaque<T> {}

// SAFETY: it is not followed; what the program's callbacks do with it in which thread is the program's affair.
unsafe impl<T> Send for Opaque<T> {}

/// The program's own `doca_dev_open`, which takes an argument more.
pub(super) type DevOpen =
    unsafe extern "C" fn(*mut doca_devinfo, *mut c_void, *mut *mut doca_dev) -> doca_error_t;

/// What `doca_argp_init` begins and `doca_argp_destroy` ends.
pub(super) struct Session {
    pub(super) definitions: Definitions,
    pub(super) config: Opaque<c_void>,
    pub(super) version: doca_argp_param_cb_t,
    pub(super) validation: doca_argp_validation_cb_t,
    pub(super) logger: doca_argp_logger_cb_t,
    /// What opens devices, and its own argument.
    pub(super) dev_open: Option<(DevOpen, Opaque<c_void>)>,
    pub(super) dpdk: doca_argp_dpdk_cb_t,
    /// How the program was called.
    pub(super) called: Option<String>,
    /// The command that the arguments named.
    pub(super) scope: Scope,
    pub(super) levels: LogLevels,
    /// Strings that the program may keep pointers to.
    pub(super) kept: Vec<CString>,
    /// Pointers to some of them, with a NULL behind them.
    pub(super) dpdk_arguments: Vec<Opaque<c_char>>,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Begins.
pub(super) fn begin(program_name: Option<String>, config: *mut c_void) -> Result<()> {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    if session.is_some() {
        return Err(Error::BadState.because("doca_argp_init was called already"));
    }
    let mut definitions = Definitions::default();
    definitions.program_name = program_name;
    *session = Some(Session {
        definitions,
        config: Opaque(config),
        version: None,
        validation: None,
        logger: None,
        dev_open: None,
        dpdk: None,
        called: None,
        scope: Scope::new(),
        levels: LogLevels::default(),
        kept: Vec::new(),
        dpdk_arguments: Vec::new(),
    });
    Ok(())
}

/// Ends.
pub(super) fn end() -> Result<()> {
    SESSION
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .map(drop)
        .ok_or_else(none)
}

/// Runs `action` on the session. It must not call the program, whose callbacks use the session themselves.
pub(super) fn with<T>(action: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    action(session.as_mut().ok_or_else(none)?)
}

fn none() -> Error {
    Error::BadState.because("doca_argp_init was not called, or doca_argp_destroy was")
}
