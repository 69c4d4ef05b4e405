//! The SDK's own log.

use std::ptr;
use std::sync::Mutex;

use crate::Result;
use crate::error::call;

/// The only back end of the process, as an address, because raw pointers are not `Send`.
static BACKEND: Mutex<Option<usize>> = Mutex::new(None);

/// Makes the SDK log messages of at least the severity `level` to standard error.
///
/// DOCA's levels: 10 disable, 20 critical, 30 error, 40 warning, 50 info, 60 debug, 70 trace. Further calls change the
/// level. It applies only to the messages of the DOCA libraries, not to those of this crate, which uses `tracing`.
///
/// ```no_run
/// doca::set_sdk_log_level(40)?;
/// # doca::Result::Ok(())
/// ```
pub fn set_sdk_log_level(level: u32) -> Result<()> {
    const STDERR: i32 = 2;
    let mut backend = BACKEND
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let pointer = match *backend {
        Some(address) => ptr::with_exposed_provenance_mut(address),
        None => {
            let mut pointer = ptr::null_mut();
            // SAFETY: the out-parameter is valid; the descriptor stays open for the lifetime of the process.
            unsafe { call!(doca_log_backend_create_with_fd_sdk(STDERR, &mut pointer)) }?;
            *backend = Some(pointer.expose_provenance());
            pointer
        }
    };
    // SAFETY: the back end was created above or by an earlier call and is never destroyed.
    unsafe { call!(doca_log_backend_set_sdk_level(pointer, level)) }
}
