//! Shared by the tests: isolation in a process with its own runtime directory, the devices of the built-in topology,
//! and waiting.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::panic::Location;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use doca::{
    BufInventory, ComchClient, ComchEvent, ComchServer, Completion, Connection, CtxState, Device,
    Event, MemoryRegion, Pe, Representor,
};

/// Timeout of all waits; long, as the machine may be loaded.
pub const TIMEOUT: Duration = Duration::from_secs(30);

const CHILD: &str = "DOCA_TEST_CHILD";

/// The names under which the harness may run a test of the file that calls this: alone, and in the module of the file.
#[track_caller]
pub fn names(test: &str) -> [String; 2] {
    let file = Path::new(Location::caller().file()).file_stem().unwrap();
    [
        test.to_owned(),
        format!("{}::{test}", file.to_string_lossy()),
    ]
}

/// Runs the body of the test called `name`, without its module, in a separate process with its own runtime directory:
/// emulated devices and servers are global, and the environment must be set before threads exist.
#[track_caller]
pub fn isolated(name: &str, body: impl FnOnce()) {
    if let Some(ran) = env::var_os(CHILD) {
        fs::write(ran, []).unwrap();
        return body();
    }
    let names = names(name);
    let directory = tempfile::Builder::new()
        .prefix("doca")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .unwrap();
    // Written by the child, because a filter that selects no test also succeeds.
    let ran = directory.path().join("ran");
    let mut child = Command::new(env::current_exe().unwrap())
        .args(names)
        .args(["--exact", "--nocapture"])
        .env(CHILD, &ran)
        .env("SOFTDOCA_RUNTIME_DIR", directory.path().join("run"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > 2 * TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name} did not end within {:?}", 2 * TIMEOUT);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(
        status.success(),
        "{name} failed in its own process: {status}"
    );
    assert!(ran.exists(), "there is no test {name}");
}

/// The host's device, the DPU's device, and the DPU's representor of the host's.
pub struct Devices {
    pub host: Device,
    pub dpu: Device,
    pub representor: Representor,
}

pub fn devices() -> Devices {
    let host = Device::open("0000:3b:00.0").unwrap();
    let dpu = Device::open("0000:03:00.0").unwrap();
    let representor = dpu.open_representor("0000:3b:00.0").unwrap();
    Devices {
        host,
        dpu,
        representor,
    }
}

/// Polls the engines in turn until `pick` returns `Some` for an event; other events are dropped.
pub fn wait_on<R>(
    what: &str,
    engines: &[&Pe],
    mut pick: impl FnMut(usize, &Event) -> Option<R>,
) -> R {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        for (index, pe) in engines.iter().enumerate() {
            if let Some(event) = pe.poll()
                && let Some(result) = pick(index, &event)
            {
                return result;
            }
        }
    }
    panic!("{what} did not happen within {TIMEOUT:?}");
}

/// The next `count` completions of one engine, while all engines make progress.
pub fn completions(count: usize, engines: &[&Pe]) -> Vec<Completion> {
    let mut found = Vec::new();
    while found.len() < count {
        found.push(wait_on(
            &format!("completion {} of {count}", found.len() + 1),
            engines,
            |_, event| match event {
                Event::Task(completion) => Some(*completion),
                _ => None,
            },
        ));
    }
    found
}

/// Progresses all engines for a moment. Drops events; fails for completions.
pub fn settle(engines: &[&Pe]) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        for pe in engines {
            if let Some(Event::Task(completion)) = pe.poll() {
                panic!("unexpected {completion:?}");
            }
        }
    }
}

/// A connected server and client, each with its engine.
pub struct Pair {
    pub server_pe: Pe,
    pub client_pe: Pe,
    pub server: ComchServer,
    pub client: ComchClient,
    /// The server's side of the connection.
    pub server_end: Connection,
    /// The client's side of the connection.
    pub client_end: Connection,
}

pub fn connected_pair(devices: &Devices, name: &str) -> Pair {
    let (server_pe, client_pe) = (Pe::new().unwrap(), Pe::new().unwrap());
    let server = ComchServer::start(&server_pe, &devices.dpu, &devices.representor, name).unwrap();
    let client = ComchClient::start(&client_pe, &devices.host, name).unwrap();
    let (mut server_end, mut client_end) = (None, None);
    wait_on(
        "the connection",
        &[&server_pe, &client_pe],
        |index, event| {
            if let Event::Comch(ComchEvent::Connected(connection)) = event {
                let end = if index == 0 {
                    &mut server_end
                } else {
                    &mut client_end
                };
                *end = Some(connection.clone());
            }
            (server_end.is_some() && client_end.is_some()).then_some(())
        },
    );
    assert_eq!(client.state(), CtxState::Running);
    assert_eq!(client.connection(), client_end);
    Pair {
        server_pe,
        client_pe,
        server,
        client,
        server_end: server_end.unwrap(),
        client_end: client_end.unwrap(),
    }
}

/// Memory of `len` bytes registered with a device, and an inventory.
pub fn memory(device: &Device, len: usize, access: doca::Access) -> (doca::Mmap, BufInventory) {
    let mmap = doca::Mmap::register(device, MemoryRegion::new(len).unwrap(), access).unwrap();
    (mmap, BufInventory::new(64).unwrap())
}
