use std::fmt;
use std::ops::Deref;

use doca_sys as sys;

use crate::Task;

/// A post-receive [`Task`] that tells what came beside the data.
pub struct PostRecvTask {
    task: Task,
    raw: *mut sys::doca_comch_consumer_task_post_recv,
}

/// What a message was sent with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Id of the producer that sent it.
    pub producer_id: u32,
    /// The immediate data, empty when there was none.
    pub immediate: Vec<u8>,
}

impl PostRecvTask {
    pub(super) fn new(task: Task, raw: *mut sys::doca_comch_consumer_task_post_recv) -> Self {
        Self { task, raw }
    }

    /// What the message that it received was sent with. `None` unless the last completion that was taken from the progress
    /// engine was a success, and none is to come.
    pub fn received(&self) -> Option<ReceivedMessage> {
        if !self.task.has_succeeded() {
            return None;
        }
        // SAFETY: the C task is allocated, and nobody else's at the moment.
        let (producer_id, data, len) = unsafe {
            (
                sys::doca_comch_consumer_task_post_recv_get_producer_id(self.raw),
                sys::doca_comch_consumer_task_post_recv_get_imm_data(self.raw),
                sys::doca_comch_consumer_task_post_recv_get_imm_data_len(self.raw),
            )
        };
        let immediate = if data.is_null() {
            Vec::new()
        } else {
            // SAFETY: the task holds that many bytes there until it is submitted again or freed, which takes the handle that
            // is borrowed here.
            unsafe { std::slice::from_raw_parts(data, len as usize) }.to_vec()
        };
        Some(ReceivedMessage {
            producer_id,
            immediate,
        })
    }
}

impl Deref for PostRecvTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl fmt::Debug for PostRecvTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostRecvTask")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
