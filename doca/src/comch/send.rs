//! Control messages on their way out.

use std::rc::Rc;

use doca_sys as sys;

use super::{ComchEvent, Connection};
use crate::Event;
use crate::device::non_null;
use crate::pe::EventQueue;
use crate::{ErrorCode, Result};

/// A message that DOCA has: freed by the callback of its task.
struct Outgoing {
    // DOCA reads the bytes until the task completes.
    message: Box<[u8]>,
    connection: Connection,
    queue: Rc<EventQueue>,
}

type TaskSend = sys::doca_comch_task_send;

/// Sends `message`: `allocate` makes the task for its bytes.
pub(super) fn send(
    operation: &'static str,
    queue: &Rc<EventQueue>,
    connection: &Connection,
    message: &[u8],
    allocate: impl FnOnce(
        *mut sys::doca_comch_connection,
        *const sys::c_void,
        u32,
        *mut *mut TaskSend,
    ) -> Result<()>,
) -> Result<()> {
    let len = u32::try_from(message.len()).map_err(|_| {
        crate::Error::with_detail(
            operation,
            ErrorCode::TOO_BIG,
            format!("a message of {} bytes", message.len()),
        )
    })?;
    connection.with(operation, |raw| {
        let outgoing = Box::new(Outgoing {
            message: message.into(),
            connection: connection.clone(),
            queue: Rc::clone(queue),
        });
        let mut task = std::ptr::null_mut();
        allocate(raw, outgoing.message.as_ptr().cast(), len, &mut task)?;
        let task = non_null(operation, task)?;
        let outgoing = Box::into_raw(outgoing);
        // SAFETY: the task was just allocated and is submitted once. The message lives until its callback frees it, or the
        // lines below, when it was not submitted and has no callback.
        unsafe {
            let task = sys::doca_comch_task_send_as_task(task.as_ptr());
            sys::doca_task_set_user_data(
                task,
                sys::doca_data {
                    ptr: outgoing.cast(),
                },
            );
            let result = crate::error::check("doca_task_submit", sys::doca_task_submit(task));
            if result.is_err() {
                sys::doca_task_free(task);
                drop(Box::from_raw(outgoing));
            }
            result
        }
    })
}

/// The message was delivered.
pub(super) unsafe extern "C" fn sent(
    task: *mut TaskSend,
    user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA calls this once for a task of `send`, with the user data set there, and the task is ours again.
    unsafe {
        let outgoing = Box::from_raw(user_data.ptr.cast::<Outgoing>());
        sys::doca_task_free(sys::doca_comch_task_send_as_task(task));
        drop(outgoing);
    }
}

/// The message could not be delivered.
pub(super) unsafe extern "C" fn failed(
    task: *mut TaskSend,
    user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `sent`.
    let (outgoing, code) = unsafe {
        let outgoing = Box::from_raw(user_data.ptr.cast::<Outgoing>());
        let task = sys::doca_comch_task_send_as_task(task);
        let code = ErrorCode(sys::doca_task_get_status(task));
        sys::doca_task_free(task);
        (outgoing, code)
    };
    let Outgoing {
        connection, queue, ..
    } = *outgoing;
    // The error callback was called, so it did not succeed.
    let code = if code == ErrorCode::SUCCESS {
        ErrorCode::UNKNOWN
    } else {
        code
    };
    queue.push(Event::Comch(ComchEvent::SendFailed { connection, code }));
}
