//! State common to servers and clients: settings, send tasks, connection events with the program's callbacks, and
//! counters of control messages.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use doca_abi::{
    doca_comch_connection, doca_comch_event_connection_status_changed_cb_t,
    doca_comch_event_consumer_cb_t, doca_comch_event_msg_recv, doca_comch_event_msg_recv_cb_t,
};

use super::connection::{Connection, SendState};
use super::frame::{Frame, MAX_FRAME};
use super::producer::RemoteConsumer;
use super::{DEFAULT_RECV_QUEUE, MAX_MESSAGE_SIZE, MAX_RECV_QUEUE, MAX_TASKS, check_range};
use crate::error::{Error, Result};
use crate::log;
use crate::progress::{Ctx, Event, Task, TaskCallback, TaskOf, TaskPool};

/// Time for which a stopping context tries to deliver submitted messages to a peer that does not read.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of consecutive frames of one connection that are read, because a peer can send frames as fast as they
/// are read. Other events are processed before the remaining frames; the socket remains readable.
const MOST_FRAMES: usize = 64;

/// The body of a control message's send task.
pub(crate) struct SendTask {
    connection: Arc<Connection>,
    /// The program's message, valid until the task completes.
    message: *const c_void,
    len: u32,
}

struct Sending {
    task: NonNull<Task>,
    connection: Arc<Connection>,
    frame: u64,
}

/// Result of reading from a connection's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// All available frames, or the maximum for one call, have been read.
    Open,
    /// The peer has disconnected, or violated the protocol.
    Ended,
}

/// The common part of a server's or client's context.
pub(crate) struct ControlPath {
    send_tasks: TaskPool,
    events: Events,
    max_message: Cell<u32>,
    recv_queue: Cell<u32>,
    sending: RefCell<Vec<Sending>>,
    notices: RefCell<VecDeque<Notice>>,
    scratch: RefCell<Vec<u8>>,
    stopping_since: Cell<Option<Instant>>,
}

impl ControlPath {
    pub(super) fn new() -> Self {
        Self {
            send_tasks: TaskPool::default(),
            events: Events::default(),
            max_message: Cell::new(MAX_MESSAGE_SIZE),
            recv_queue: Cell::new(DEFAULT_RECV_QUEUE),
            sending: RefCell::default(),
            notices: RefCell::default(),
            scratch: RefCell::new(vec![0; MAX_FRAME]),
            stopping_since: Cell::new(None),
        }
    }

    /// The callbacks registered by the program.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn max_message(&self) -> u32 {
        self.max_message.get()
    }

    pub(crate) fn set_max_message(&self, ctx: &Ctx, size: u32) -> Result<()> {
        ctx.expect_idle("the largest message is set")?;
        check_range("largest message", size, MAX_MESSAGE_SIZE)?;
        self.max_message.set(size);
        Ok(())
    }

    pub(crate) fn recv_queue(&self) -> u32 {
        self.recv_queue.get()
    }

    pub(crate) fn set_recv_queue(&self, ctx: &Ctx, size: u32) -> Result<()> {
        ctx.expect_idle("the size of the receive queue is set")?;
        check_range("receive queue", size, MAX_RECV_QUEUE)?;
        self.recv_queue.set(size);
        Ok(())
    }

    pub(crate) fn configure_send_tasks(
        &self,
        ctx: &Ctx,
        on_success: Option<TaskCallback>,
        on_error: Option<TaskCallback>,
        count: u32,
    ) -> Result<()> {
        check_range("number of send tasks", count, MAX_TASKS)?;
        self.send_tasks.configure(ctx, on_success, on_error, count)
    }

    /// Checks that the mandatory settings are configured, and resets the state of an earlier run.
    pub(super) fn prepare(&self, is_server: bool) -> Result<()> {
        let missing = if self.send_tasks.limit() == 0 {
            "send tasks"
        } else if !self.events.has_message() {
            "a message callback"
        } else if is_server && !self.events.has_connections() {
            "connection callbacks"
        } else {
            self.notices.borrow_mut().clear();
            self.stopping_since.set(None);
            return Ok(());
        };
        Err(Error::BadState.because(format_args!("configure {missing} before the start")))
    }

    /// Allocates a task that sends `len` bytes at `message`.
    pub(crate) fn allocate(
        &self,
        ctx: &Ctx,
        connection: Arc<Connection>,
        message: *const c_void,
        len: u32,
    ) -> Result<NonNull<TaskOf<SendTask>>> {
        if message.is_null() {
            return Err(Error::InvalidValue.because("expected a message, got NULL"));
        }
        check_range("message length", len, connection.max_message())?;
        let body = SendTask {
            connection,
            message,
            len,
        };
        self.send_tasks
            .allocate(ctx, body, doca_abi::doca_data { u64: 0 })
    }

    pub(super) fn submit(&self, task: &Task) -> Result<()> {
        let body = &task.downcast::<SendTask>().ok_or(Error::InvalidValue)?.body;
        // SAFETY: the program keeps the message unchanged until the task completes; it is copied here.
        let message =
            unsafe { std::slice::from_raw_parts(body.message.cast::<u8>(), body.len as usize) };
        let frame = body.connection.send(&Frame::Message(message), Vec::new());
        body.connection.traffic().sent(message.len());
        self.sending.borrow_mut().push(Sending {
            task: NonNull::from(task),
            connection: Arc::clone(&body.connection),
            frame,
        });
        Ok(())
    }

    /// Queues an event for the program, unless the program has stopped the context.
    pub(super) fn notify(&self, notice: Notice) {
        if !self.is_stopping() {
            self.notices.borrow_mut().push_back(notice);
        }
    }

    /// Returns `true` if the receive queue is full.
    pub(super) fn is_full(&self) -> bool {
        self.notices.borrow().len() >= self.recv_queue.get() as usize
    }

    /// The next completion or event.
    pub(super) fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        if let Some(event) = self.next_completion() {
            return Some(event);
        }
        loop {
            // A separate statement, so that no borrow is active while the event is created.
            let notice = self.notices.borrow_mut().pop_front()?;
            if let Some(event) = self.events.event_of(ctx, notice) {
                return Some(event);
            }
        }
    }

    fn next_completion(&self) -> Option<Event> {
        let mut sending = self.sending.borrow_mut();
        if sending.is_empty() {
            return None;
        }
        let impatient = self.is_impatient();
        let (at, result) = sending.iter().enumerate().find_map(|(at, entry)| {
            match entry.connection.state_of(entry.frame) {
                SendState::Sent => Some((at, Ok(()))),
                SendState::Failed => Some((at, Err(Error::NotConnected))),
                SendState::Waiting if impatient => Some((at, Err(Error::TimeOut))),
                SendState::Waiting => None,
            }
        })?;
        let entry = sending.remove(at);
        Some(Event::Task(entry.task, result))
    }

    /// Reads frames from a connection and queues the resulting events.
    pub(super) fn read(&self, connection: &Arc<Connection>) -> Reading {
        let mut scratch = self.scratch.borrow_mut();
        let mut descriptors = Vec::new();
        let mut resets = 0;
        for _ in 0..MOST_FRAMES {
            // The program's receive queue size limits messages and consumer events: further frames stay in the socket,
            // which provides backpressure.
            if self.is_full() {
                break;
            }
            descriptors.clear();
            let len = match connection.socket().receive(&mut scratch, &mut descriptors) {
                Ok(Some(len)) => len,
                Ok(None) => return Reading::Ended,
                Err(Error::Again) => return Reading::Open,
                // Reported once if the peer closed the connection without reading everything; frames that it had sent
                // before can still be received.
                Err(Error::ConnectionReset) if resets < 8 => {
                    resets += 1;
                    continue;
                }
                Err(error) => {
                    log::warn!("a Comch connection ends: receiving failed with {error}");
                    return Reading::Ended;
                }
            };
            let descriptors = std::mem::take(&mut descriptors);
            if let Err(reason) = self.take(connection, &scratch[..len], descriptors) {
                log::warn!("a Comch connection ends: its peer is faulty: {reason}");
                return Reading::Ended;
            }
        }
        Reading::Open
    }

    /// Processes one frame. An error describes the peer's protocol violation.
    fn take(
        &self,
        connection: &Arc<Connection>,
        bytes: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> std::result::Result<(), String> {
        let frame = Frame::decode(bytes).map_err(|malformed| malformed.to_string())?;
        match frame {
            Frame::Message(message) => {
                if message.len() > connection.max_message() as usize {
                    return Err(format!(
                        "a message of {} bytes, at most {} were agreed on",
                        message.len(),
                        connection.max_message()
                    ));
                }
                connection.traffic().received(message.len());
                self.notify(Notice::Message(Arc::clone(connection), message.to_vec()));
            }
            Frame::ConsumerAdded { id, max_message } => {
                connection.check_new_remote(id)?;
                let [ring, wake] = <[_; 2]>::try_from(descriptors).map_err(|got| {
                    format!("a consumer comes with 2 descriptors, got {}", got.len())
                })?;
                let consumer = RemoteConsumer::open(id, max_message, ring, wake)
                    .map_err(|error| format!("its consumer {id} has no usable ring: {error}"))?;
                connection.add_remote(Arc::new(consumer));
                self.notify(Notice::ConsumerAdded(Arc::clone(connection), id));
            }
            Frame::ConsumerExpired { id } => {
                if !connection.expire_remote(id) {
                    return Err(format!("its consumer {id} expires, which it does not have"));
                }
                self.notify(Notice::ConsumerExpired(Arc::clone(connection), id));
            }
            Frame::ProducerAttached { consumer_id } => {
                let [wake] = <[_; 1]>::try_from(descriptors).map_err(|got| {
                    format!("a producer comes with 1 descriptor, got {}", got.len())
                })?;
                // The consumer may have stopped while the frame was in flight.
                if let Some(consumer) = connection.local_consumer(consumer_id) {
                    consumer.producer_attached(wake);
                }
            }
            Frame::Hello(_) | Frame::Accept { .. } | Frame::Refuse { .. } => {
                return Err("a frame of the handshake on an established connection".into());
            }
        }
        Ok(())
    }

    /// Handles a connection that was closed by the peer: closes it for all threads and queues the resulting events.
    pub(super) fn end(&self, connection: &Arc<Connection>, last: Notice) {
        connection.close();
        for id in connection.expire_all_remote() {
            self.notify(Notice::ConsumerExpired(Arc::clone(connection), id));
        }
        self.notify(last);
    }

    /// Starts the stop of the context: submitted messages are still delivered, within [`STOP_TIMEOUT`].
    pub(super) fn begin_stop(&self) {
        self.stopping_since.set(Some(Instant::now()));
        // Events that have not been delivered yet are dropped.
        self.notices.borrow_mut().clear();
    }

    fn is_stopping(&self) -> bool {
        self.stopping_since.get().is_some()
    }

    /// Returns `true` if a stopping context has waited long enough for a peer that does not read.
    pub(super) fn is_impatient(&self) -> bool {
        self.stopping_since
            .get()
            .is_some_and(|since| since.elapsed() > STOP_TIMEOUT)
    }
}

/// A pending event for the program.
pub(super) enum Notice {
    Connected(Arc<Connection>, bool),
    Disconnected(Arc<Connection>),
    Message(Arc<Connection>, Vec<u8>),
    ConsumerAdded(Arc<Connection>, u32),
    ConsumerExpired(Arc<Connection>, u32),
    Started,
    StartFailed,
    Broken,
}

/// The callbacks that a program has registered with a server or client.
#[derive(Default)]
pub(crate) struct Events {
    callbacks: Cell<Callbacks>,
}

/// The callback for messages, called with a 64-bit length: in 2.5, its type is `size_t`, in later releases `uint32_t`.
type MessageCallback = unsafe extern "C" fn(
    *mut doca_comch_event_msg_recv,
    *mut u8,
    usize,
    *mut doca_comch_connection,
);

/// Converts the callback of a program compiled for any release.
fn message_callback(callback: doca_comch_event_msg_recv_cb_t) -> Option<MessageCallback> {
    type Of32Bits = unsafe extern "C" fn(
        *mut doca_comch_event_msg_recv,
        *mut u8,
        u32,
        *mut doca_comch_connection,
    );
    const { assert!(cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))) };
    // SAFETY: in the calling conventions of C of both architectures, the third integer argument is in a register of 64
    // bits, of which a function with a parameter of 32 bits reads only the lower half.
    callback.map(|callback| unsafe { std::mem::transmute::<Of32Bits, MessageCallback>(callback) })
}

#[derive(Clone, Copy, Default)]
struct Callbacks {
    message: Option<MessageCallback>,
    consumer_added: doca_comch_event_consumer_cb_t,
    consumer_expired: doca_comch_event_consumer_cb_t,
    connected: doca_comch_event_connection_status_changed_cb_t,
    disconnected: doca_comch_event_connection_status_changed_cb_t,
}

impl Events {
    /// Returns `true` if the callback for messages is set.
    fn has_message(&self) -> bool {
        self.callbacks.get().message.is_some()
    }

    /// Returns `true` if the callbacks for connections are set.
    fn has_connections(&self) -> bool {
        self.callbacks.get().connected.is_some()
    }

    fn update(
        &self,
        ctx: &Ctx,
        what: &str,
        all_given: bool,
        change: impl FnOnce(&mut Callbacks),
    ) -> Result<()> {
        ctx.expect_idle("events are registered")?;
        if !all_given {
            return Err(
                Error::InvalidValue.because(format_args!("expected a {what} callback, got NULL"))
            );
        }
        let mut callbacks = self.callbacks.get();
        change(&mut callbacks);
        self.callbacks.set(callbacks);
        Ok(())
    }

    /// Sets the callback for control messages.
    pub(crate) fn on_message(
        &self,
        ctx: &Ctx,
        callback: doca_comch_event_msg_recv_cb_t,
    ) -> Result<()> {
        self.update(ctx, "message", callback.is_some(), |all| {
            all.message = message_callback(callback);
        })
    }

    /// Sets the callbacks for new and expired consumers of the peer.
    pub(crate) fn on_consumers(
        &self,
        ctx: &Ctx,
        added: doca_comch_event_consumer_cb_t,
        expired: doca_comch_event_consumer_cb_t,
    ) -> Result<()> {
        self.update(
            ctx,
            "consumer",
            added.is_some() && expired.is_some(),
            |all| {
                all.consumer_added = added;
                all.consumer_expired = expired;
            },
        )
    }

    /// Sets the callbacks for connected and disconnected clients.
    pub(crate) fn on_connections(
        &self,
        ctx: &Ctx,
        connected: doca_comch_event_connection_status_changed_cb_t,
        disconnected: doca_comch_event_connection_status_changed_cb_t,
    ) -> Result<()> {
        let given = connected.is_some() && disconnected.is_some();
        self.update(ctx, "connection", given, |all| {
            all.connected = connected;
            all.disconnected = disconnected;
        })
    }

    /// Converts a pending event to a call of the program's callback; `None` without a callback.
    fn event_of(&self, ctx: &Ctx, notice: Notice) -> Option<Event> {
        let callbacks = self.callbacks.get();
        // Programs do not use the event objects: they get a pointer that is not NULL, but must not be dereferenced.
        let event = std::ptr::from_ref(ctx).cast_mut();
        let handle = |connection: &Arc<Connection>| {
            Arc::as_ptr(connection)
                .cast_mut()
                .cast::<doca_comch_connection>()
        };
        // SAFETY (all calls below): the program registered the functions with these types. The connection lives while
        // the closure does.
        let call: Box<dyn FnOnce()> = match notice {
            Notice::Started => return Some(Event::Started),
            Notice::StartFailed => return Some(Event::StartFailed),
            Notice::Broken => return Some(Event::Broken),
            Notice::Connected(connection, successful) => {
                if !successful {
                    connection.set_reported();
                }
                let callback = callbacks.connected?;
                // SAFETY: as above.
                return Some(Event::Connection(Box::new(move || unsafe {
                    callback(event.cast(), handle(&connection), successful.into());
                })));
            }
            Notice::Disconnected(connection) => {
                connection.set_reported();
                let callback = callbacks.disconnected?;
                // SAFETY: as above.
                return Some(Event::Connection(Box::new(move || unsafe {
                    callback(event.cast(), handle(&connection), 1);
                })));
            }
            Notice::Message(connection, mut bytes) => {
                let callback = callbacks.message?;
                // SAFETY: as above; the bytes live until the callback returns.
                Box::new(move || unsafe {
                    let len = bytes.len();
                    callback(event.cast(), bytes.as_mut_ptr(), len, handle(&connection));
                })
            }
            Notice::ConsumerAdded(connection, id) => {
                let callback = callbacks.consumer_added?;
                // SAFETY: as above.
                Box::new(move || unsafe { callback(event.cast(), handle(&connection), id) })
            }
            Notice::ConsumerExpired(connection, id) => {
                let callback = callbacks.consumer_expired?;
                // SAFETY: as above.
                Box::new(move || unsafe { callback(event.cast(), handle(&connection), id) })
            }
        };
        Some(Event::Call(call))
    }
}

/// A counter of control messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Number of submitted messages.
    SentMessages,
    /// Bytes in submitted messages.
    SentBytes,
    ReceivedMessages,
    ReceivedBytes,
}

/// The counters, and their values at the program's last update.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    now: [AtomicU64; 4],
    seen: [AtomicU64; 4],
}

impl Traffic {
    pub(super) fn sent(&self, bytes: usize) {
        self.count(Counter::SentMessages, 1);
        self.count(Counter::SentBytes, bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.count(Counter::ReceivedMessages, 1);
        self.count(Counter::ReceivedBytes, bytes as u64);
    }

    fn count(&self, counter: Counter, by: u64) {
        self.now[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Makes [`Self::seen`] return the current counts.
    pub(super) fn update(&self) {
        for (now, seen) in self.now.iter().zip(&self.seen) {
            seen.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The value at the last update; zero before the first update.
    pub(crate) fn seen(&self, counter: Counter) -> u64 {
        self.seen[counter as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_last_update() {
        let traffic = Traffic::default();
        traffic.sent(10);
        traffic.sent(5);
        traffic.received(7);
        assert_eq!(traffic.seen(Counter::SentBytes), 0);
        traffic.update();
        traffic.received(1);
        assert_eq!(traffic.seen(Counter::SentMessages), 2);
        assert_eq!(traffic.seen(Counter::SentBytes), 15);
        assert_eq!(traffic.seen(Counter::ReceivedMessages), 1);
        assert_eq!(traffic.seen(Counter::ReceivedBytes), 7);
    }
}
