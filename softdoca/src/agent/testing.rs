//! A scripted agent for tests: replies of other builds and of hostile peers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::runtime::{BootId, Key, Listener, RuntimeDir, Socket};

/// A request as received.
pub(crate) struct Asked {
    /// 1 describe, 2 read, 3 write, 4 and 5 atomics, 6 call.
    pub(crate) operation: u16,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// Reply to a request: value, payload, descriptors. `None` sends no reply.
pub(crate) type Answer = Option<(u64, Vec<u8>, Vec<Arc<OwnedFd>>)>;

/// An agent with an address of its own.
pub(crate) struct ScriptedAgent {
    address: [u8; 32],
    stopping: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedAgent {
    /// Answers every request on any connection with the reply of `script`.
    pub(crate) fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let boot = BootId::current().expect("a boot id").to_bytes();
        let key = Key::random().expect("a key");
        let name = format!("a-{key}.sock");
        let directory = RuntimeDir::get().expect("a runtime directory");
        let listener = Listener::bind(&directory, &name).expect("a new name");
        let stopping = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicUsize::new(0));
        let (stop, count) = (Arc::clone(&stopping), Arc::clone(&asked));
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept().expect("descriptors") {
                        Some(socket) => {
                            let (script, stop, count) = (&script, &stop, &count);
                            scope.spawn(move || serve(&socket, script, stop, count));
                        }
                        None => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
            });
        });
        let mut address = [0; 32];
        address[..16].copy_from_slice(&boot);
        address[16..].copy_from_slice(&key.to_bytes());
        Self {
            address,
            stopping,
            asked,
            thread: Some(thread),
        }
    }

    /// Number of requests received.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Builds an export descriptor as documented in `memory/descriptor.rs`: `kind` is 1 for PCIe and 2 for RDMA.
    pub(crate) fn descriptor(&self, kind: u8, permissions: u32, addr: u64, len: u64) -> Vec<u8> {
        let mut bytes = b"SOFTDOCA\x01\x00".to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(addr.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(self.address);
        bytes.extend([7; 16]);
        bytes.extend([0; 16]);
        bytes
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the script of an agent panicked");
        }
    }
}

fn serve(
    socket: &Socket,
    script: &(impl Fn(&Asked) -> Answer + Sync),
    stop: &AtomicBool,
    count: &AtomicUsize,
) {
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let Ok(Some(len)) = socket.receive(&mut buffer, &mut Vec::new()) else {
            if socket.is_closed() {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        assert!(len >= 56, "a request has a header");
        count.fetch_add(1, Ordering::Relaxed);
        let word = |at: usize| u64::from_le_bytes(*buffer[at..].first_chunk().expect("8 bytes"));
        let asked = Asked {
            operation: u16::from_le_bytes([buffer[6], buffer[7]]),
            addr: word(24),
            len: word(32),
        };
        let Some((value, payload, fds)) = script(&asked) else {
            continue;
        };
        let mut reply = b"SDrp\0\0\0\0".to_vec();
        reply.extend(value.to_le_bytes());
        reply.extend(payload);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
        // The client may have given up.
        let _ = socket.send(&reply, &fds);
    }
}

/// Encodes a segment in the agent's format; `memfd` is the index of its descriptor.
pub(crate) fn segment(addr: u64, len: u64, offset: u64, memfd: Option<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [addr, len, offset] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(u64::from(memfd.unwrap_or(u32::MAX)).to_le_bytes());
    bytes
}
