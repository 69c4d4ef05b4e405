//! Unsent replies: headers, and the data that follows them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::stream::Stream;

/// Maximum number of parts per system call.
const BATCH: usize = 64;

/// Number of sent header bytes above which they are removed from the buffer.
const COMPACT: usize = 64 * 1024;

/// A queue of replies.
#[derive(Debug)]
pub struct Output<B> {
    headers: Vec<u8>,
    /// Number of sent header bytes that are still in the buffer.
    headers_sent: usize,
    /// Number of header bytes in `items`.
    headers_queued: usize,
    items: VecDeque<Item<B>>,
    /// Number of bytes of the first item that were sent.
    sent: usize,
    /// Number of data bytes in the queue.
    data: usize,
}

#[derive(Debug)]
enum Item<B> {
    /// A number of header bytes.
    Header(usize),
    /// A number of bytes of an I/O's buffer.
    Memory(B, usize),
    Bytes(Vec<u8>),
}

impl<B> Default for Output<B> {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            headers_sent: 0,
            headers_queued: 0,
            items: VecDeque::new(),
            sent: 0,
            data: 0,
        }
    }
}

impl<B: AsRef<[u8]>> Output<B> {
    /// Buffer to append headers to.
    pub fn headers(&mut self) -> &mut Vec<u8> {
        &mut self.headers
    }

    /// Queues `len` bytes of a buffer behind the headers so far.
    pub fn push_memory(&mut self, memory: B, len: usize) {
        self.queue_headers();
        self.data += len;
        self.items.push_back(Item::Memory(memory, len));
    }

    /// Queues bytes behind the headers so far.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.queue_headers();
        self.data += bytes.len();
        self.items.push_back(Item::Bytes(bytes));
    }

    fn queue_headers(&mut self) {
        let new = self.headers.len() - self.headers_queued;
        self.headers_queued = self.headers.len();
        if new == 0 {
            return;
        }
        if let Some(Item::Header(len)) = self.items.back_mut() {
            *len += new;
        } else {
            self.items.push_back(Item::Header(new));
        }
    }

    /// Returns `true` if everything was sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.headers_queued == self.headers.len()
    }

    /// Number of unsent bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data + self.headers.len() - self.headers_sent
    }

    /// Discards all replies.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends until everything was sent (`true`) or the socket accepts no more. Adds the number of bytes sent to `count`.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub fn send(&mut self, stream: &mut Stream, count: &mut u64) -> io::Result<bool> {
        self.queue_headers();
        while !self.items.is_empty() {
            let taken = self.send_batch(stream);
            match taken {
                Ok(taken) => {
                    *count += taken as u64;
                    self.consume(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.headers.clear();
        self.headers_queued = 0;
        self.headers_sent = 0;
        stream.flush()
    }

    fn send_batch(&self, stream: &mut Stream) -> io::Result<usize> {
        let mut parts = [IoSlice::new(&[]); BATCH];
        let mut count = 0;
        let mut header = self.headers_sent;
        let mut skip = self.sent;
        for (item, part) in self.items.iter().zip(&mut parts) {
            let bytes = match item {
                Item::Header(len) => {
                    // The sent bytes of the first item are before `headers_sent`.
                    let len = len - skip;
                    skip = 0;
                    header += len;
                    &self.headers[header - len..header]
                }
                Item::Memory(memory, len) => &memory.as_ref()[..*len],
                Item::Bytes(bytes) => bytes,
            };
            *part = IoSlice::new(&bytes[skip..]);
            skip = 0;
            count += 1;
        }
        stream.send(&parts[..count])
    }

    fn consume(&mut self, mut taken: usize) {
        while let Some(item) = self.items.front() {
            let (len, is_header) = match item {
                Item::Header(len) => (*len, true),
                Item::Memory(_, len) => (*len, false),
                Item::Bytes(bytes) => (bytes.len(), false),
            };
            let now = taken.min(len - self.sent);
            self.sent += now;
            taken -= now;
            if is_header {
                self.headers_sent += now;
            } else {
                self.data -= now;
            }
            if self.sent < len {
                break;
            }
            self.sent = 0;
            self.items.pop_front();
        }
        if self.headers_sent > COMPACT {
            self.headers.drain(..self.headers_sent);
            self.headers_queued -= self.headers_sent;
            self.headers_sent = 0;
        }
    }
}
