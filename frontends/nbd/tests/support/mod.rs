//! A server with a disk in memory, and its client.
#![allow(dead_code, reason = "every test binary uses its own part")]

mod client;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use client::*;
use control::shutdown::Shutdown;
use nbd_frontend::connection::Shared;
use nbd_frontend::protocol::Export;
use nbd_frontend::server::Server;
use nbd_frontend::sockets::Listener;
use nbd_frontend::transmission::Limits;
use rustls::ServerConfig;
use tempfile::TempDir;
use volume::testing::{MemoryDisk, MemoryQueue, Settings};

/// An export of `size` bytes that supports flush.
pub fn export(size: u64) -> Export {
    Export {
        name: "disk".to_owned(),
        description: "a disk of a test".to_owned(),
        size,
        preferred_block: 4096,
        max_payload: MAX_PAYLOAD,
        read_only: false,
        flush: true,
    }
}

/// A server with a disk in memory.
pub struct Sandbox {
    pub disk: MemoryDisk,
    pub directory: TempDir,
    shutdown: Shutdown,
    thread: Option<JoinHandle<Vec<MemoryQueue>>>,
}

/// Options of the server for tests.
pub struct Options {
    pub size: usize,
    pub queues: usize,
    pub settings: Settings,
    pub export: fn(&mut Export),
    pub limits: Limits,
    pub handshake_timeout: Duration,
    pub client_timeout: Duration,
    pub max_connections: usize,
    pub native_fua: bool,
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: 8 << 20,
            queues: 2,
            settings: Settings::default(),
            export: |_| {},
            limits: Limits::default(),
            handshake_timeout: Duration::from_secs(60),
            client_timeout: Duration::from_secs(60),
            max_connections: 16,
            native_fua: true,
            tls: None,
        }
    }
}

impl Sandbox {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = Listener::unix(&directory.path().join("socket")).expect("a socket");
        Self::on(directory, vec![listener], options)
    }

    pub fn on(directory: TempDir, listeners: Vec<Listener>, options: Options) -> Self {
        let disk = MemoryDisk::new(vec![0; options.size]);
        let mut export = export(options.size as u64);
        (options.export)(&mut export);
        let shared = Shared {
            export: Arc::new(export),
            native_fua: options.native_fua,
            tls: options.tls,
            handshake_timeout: options.handshake_timeout,
            client_timeout: options.client_timeout,
            limits: options.limits,
        };
        let queues = (0..options.queues)
            .map(|_| disk.queue(options.settings).expect("a queue"))
            .collect();
        let server = Server::start(queues, &[], shared, options.max_connections).expect("threads");
        let shutdown = Shutdown::new().expect("a pipe");
        let requested = shutdown.clone();
        let thread = std::thread::spawn(move || {
            server.serve(&listeners, &requested).expect("no failure");
            drop(listeners);
            server.stop().expect("no failure")
        });
        Self {
            disk,
            directory,
            shutdown,
            thread: Some(thread),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn client(&self, structured: bool) -> Client<UnixStream> {
        Client::transmitting(&self.socket(), structured)
    }

    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shutdown.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("no panic in the server");
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end();
    }
}
