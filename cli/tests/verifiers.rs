//! Storages that lose acknowledged writes, or are replaced by other storages, behind real front ends and services;
//! services that are asked to exit.
//!
//! The loss of unflushed writes is simulated by a copy of the backing file, made when its contents were flushed: like
//! the file after a power failure, the copy is another incarnation of the same storage.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use deployment::process::{Process, Signal};
use serde_json::json;

use crate::failover;
use crate::nbd::{FOREVER, serve, serve_waiting, stop, target, target_flags};
use crate::nbd_client::{Client, EIO, FLUSH, FUA, TRIM, WRITE, WRITE_ZEROES, reply, request};
use crate::support::gga::{TARGETS, redundancy};
use crate::support::{Sandbox, default_deadline, ended, killed, wait_for_value};

/// A second worker.
const SECOND: [&str; 2] = ["--cpu", "0"];

type Nbd = Client<std::os::unix::net::UnixStream>;

fn flush(client: &mut Nbd) -> u32 {
    let cookie = client.send(0, FLUSH, 0, 0);
    client.result(cookie)
}

/// A target with a backing file; it is killed and restarted.
struct Target<'a> {
    sandbox: &'a Sandbox,
    name: &'a str,
    block_size: &'static str,
    port: u16,
    process: Process,
}

impl<'a> Target<'a> {
    fn start(sandbox: &'a Sandbox, name: &'a str, block_size: &'static str) -> Self {
        let flags = Self::flags(sandbox, name, block_size);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let (process, port) = sandbox.target(&flags);
        Self {
            sandbox,
            name,
            block_size,
            port,
            process,
        }
    }

    fn flags(sandbox: &Sandbox, name: &str, block_size: &str) -> Vec<String> {
        let second = SECOND.map(str::to_owned);
        let flags = target_flags(sandbox, name, block_size);
        flags.into_iter().chain(second).collect()
    }

    fn path(&self) -> std::path::PathBuf {
        self.sandbox.path(self.name)
    }

    /// Copies the file with its currently flushed contents.
    fn copy(&self) {
        fs::copy(self.path(), self.path().with_extension("flushed")).expect("a copy");
    }

    /// Kills the target, changes its file, and starts it again.
    fn restart(self, change: impl FnOnce(&Path)) -> Self {
        self.process.signal(Signal::KILL);
        killed(self.process);
        change(&self.sandbox.path(self.name));
        let flags = Self::flags(self.sandbox, self.name, self.block_size);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let process = self.sandbox.target_again(self.port, &flags);
        Self { process, ..self }
    }

    /// Restarts the target with the contents of the last copy.
    fn lose(self) -> Self {
        self.restart(|path| {
            fs::remove_file(path).expect("removed");
            fs::rename(path.with_extension("flushed"), path).expect("renamed");
        })
    }
}

#[test]
fn flush_of_each_client_fails_after_the_target_has_lost_acknowledged_writes() {
    let sandbox = Sandbox::new();
    let target = Target::start(&sandbox, "disk", "4096");
    let service = sandbox.service(target.port, &[&FOREVER[..], &SECOND].concat());
    let (server, socket) = serve(&sandbox, &SECOND);
    // On different queues.
    let mut one = Client::transmitting(&socket, false);
    let mut other = Client::transmitting(&socket, false);
    let (old, new) = (contents::noise(1, 4096), contents::noise(2, 4096));
    assert_eq!((one.write(0, &old), other.write(4096, &old)), (0, 0));
    assert_eq!(flush(&mut one), 0);
    target.copy();
    assert_eq!(one.write(0, &new), 0);
    let target = target.lose();
    assert_eq!((flush(&mut other), flush(&mut other)), (EIO, 0));
    assert_eq!((flush(&mut one), flush(&mut one)), (EIO, 0));
    assert_eq!(one.read_simple(0, 4096), Ok(old.clone()));
    assert_eq!(other.read_simple(4096, 4096), Ok(old));

    // All acknowledged writes are flushed, or durable.
    assert_eq!(one.write(0, &new), 0);
    assert_eq!(flush(&mut other), 0);
    let cookie = one.send_write(FUA, 4096, &new);
    assert_eq!(one.result(cookie), 0);
    target.copy();
    let target = target.lose();
    assert_eq!((flush(&mut one), flush(&mut other)), (0, 0));
    for block in [0, 4096] {
        assert_eq!(one.read_simple(block, 4096), Ok(new.clone()));
    }
    stop(server);
    // One of the sessions was interrupted.
    drop((service, target));
}

/// A write with FUA does not make earlier writes durable. A command without data is followed by a flush.
#[test]
fn command_with_fua_after_a_loss_fails_or_not_and_the_next_flush_fails() {
    for command in [TRIM, WRITE_ZEROES] {
        let sandbox = Sandbox::new();
        let target = Target::start(&sandbox, "disk", "4096");
        let service = sandbox.service(target.port, &FOREVER);
        let (server, socket) = serve(&sandbox, &[]);
        let mut client = Client::transmitting(&socket, false);
        let (old, new) = (contents::noise(1, 4096), contents::noise(2, 4096));
        assert_eq!(client.write(0, &old), 0);
        assert_eq!(flush(&mut client), 0);
        target.copy();
        assert_eq!(client.write(0, &new), 0);
        let target = target.lose();
        let cookie = client.send(FUA, command, 8192, 4096);
        let result = client.result(cookie);
        assert!(matches!(result, 0 | EIO), "{command}: {result}");
        assert_eq!((flush(&mut client), flush(&mut client)), (EIO, 0));
        assert_eq!(client.read_simple(0, 4096), Ok(old));
        stop(server);
        drop((service, target));
    }
}

#[test]
fn restart_of_a_target_keeps_acknowledged_writes() {
    let sandbox = Sandbox::new();
    let target = Target::start(&sandbox, "disk", "4096");
    let service = sandbox.service(target.port, &FOREVER);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, false);
    let data = contents::noise(1, 4096);
    assert_eq!(client.write(0, &data), 0);
    let target = target.restart(|_| {});
    assert_eq!(flush(&mut client), 0);
    assert_eq!(client.read_simple(0, 4096), Ok(data));
    stop(server);
    drop((service, target));
}

/// A set behind a server: a client has acknowledged writes that are not flushed, after a flush that the copies contain.
/// All its processes except the server are killed, these targets lose the unflushed writes, and all processes are
/// restarted. Returns the result of the client's flush, and `true` if its writes are still present.
fn flush_of_a_set_after_losses(lost: &[usize]) -> (u32, bool) {
    let sandbox = Sandbox::new();
    let targets = TARGETS.map(|name| Target::start(&sandbox, name, "2112"));
    let ports = targets.each_ref().map(|target| target.port);
    let flags = ["--logical-block-size", "4096", "--degraded", "on"];
    let flags = [&FOREVER[..], &flags].concat();
    let service = sandbox.gga_service(ports, 1, &flags);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, false);
    assert_eq!(client.write(0, &contents::noise(1, 1 << 20)), 0);
    assert_eq!(flush(&mut client), 0);
    targets.iter().for_each(Target::copy);
    let data = contents::noise(2, 1 << 20);
    assert_eq!(client.write(0, &data), 0);
    service.signal(Signal::KILL);
    killed(service);
    let mut number = 0;
    let targets = targets.map(|target| {
        number += 1;
        if lost.contains(&(number - 1)) {
            target.lose()
        } else {
            target.restart(|_| {})
        }
    });
    let service = sandbox.gga_service(ports, 1, &flags);
    let flushed = flush(&mut client);
    let are_kept = client.read_simple(0, 1 << 20) == Ok(data);
    stop(server);
    drop((service, targets));
    (flushed, are_kept)
}

#[test]
fn set_whose_targets_were_restarted_has_kept_its_writes() {
    assert_eq!(flush_of_a_set_after_losses(&[]), (0, true));
}

#[test]
fn flush_fails_after_two_targets_of_a_set_have_lost_acknowledged_writes() {
    let (flushed, are_kept) = flush_of_a_set_after_losses(&[0, 1, 2]);
    assert_eq!((flushed, are_kept), (EIO, false));
    let (flushed, _) = flush_of_a_set_after_losses(&[0, 2]);
    assert_eq!(flushed, EIO);
}

/// Printed identity of a backing file.
fn identity(path: &Path) -> String {
    let file = fs::read(path).expect("a backing file");
    let bytes = file[28..44].iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn ios_fail_while_the_storage_is_another_one() {
    let sandbox = Sandbox::new();
    let target = Target::start(&sandbox, "disk", "4096");
    let service = sandbox.service(target.port, &FOREVER);
    let (server, socket) = serve_waiting(&sandbox, "1", &[]);
    let mut client = Client::transmitting(&socket, false);
    let data = contents::noise(1, 4096);
    assert_eq!(client.write(0, &data), 0);
    assert_eq!(flush(&mut client), 0);
    // Simulates a file system that is not mounted: the target creates a new file.
    let aside = sandbox.path("aside");
    let target = target.restart(|path| fs::rename(path, &aside).expect("renamed"));
    let (former, other) = (identity(&aside), identity(&target.path()));
    // The service's error names the former storage and the new one.
    for identity in [&former, &other] {
        wait_for_value(&service, identity, 1);
    }
    assert_eq!(client.read_simple(0, 4096), Err(EIO));
    assert_eq!(client.write(0, &data), EIO);
    // A new service process, which does not know the former storage.
    service.signal(Signal::KILL);
    killed(service);
    let service = sandbox.service(target.port, &FOREVER);
    for identity in [&former, &other] {
        wait_for_value(&server, identity, 1);
    }
    assert_eq!(client.read_simple(0, 4096), Err(EIO));
    service.signal(Signal::KILL);
    killed(service);

    let target = target.restart(|path| fs::rename(&aside, path).expect("renamed"));
    let service = sandbox.service(target.port, &FOREVER);
    let deadline = default_deadline();
    let read = loop {
        let read = client.read_simple(0, 4096);
        if read.is_ok() || std::time::Instant::now() > deadline {
            break read;
        }
    };
    assert_eq!(read, Ok(data));
    assert_eq!(flush(&mut client), 0);
    stop(server);
    drop((service, target));
}

#[test]
fn flush_fails_after_a_loss_that_another_service_reports() {
    let sandbox = Sandbox::new();
    let target = Target::start(&sandbox, "disk", "4096");
    let [first, second] =
        failover::NAMES.map(|name| failover::service(&sandbox, target.port, name));
    let (server, socket) = serve(&sandbox, &failover::SERVICES);
    let mut client = Client::transmitting(&socket, false);
    let (old, new) = (contents::noise(1, 4096), contents::noise(2, 4096));
    assert_eq!(client.write(0, &old), 0);
    assert_eq!(flush(&mut client), 0);
    target.copy();
    assert_eq!(client.write(0, &new), 0);
    first.signal(Signal::KILL);
    killed(first);
    let target = target.lose();
    assert_eq!((flush(&mut client), flush(&mut client)), (EIO, 0));
    assert_eq!(client.read_simple(0, 4096), Ok(old));
    stop(server);
    drop((second, target));
}

#[test]
fn next_service_with_another_storage_is_refused() {
    let sandbox = Sandbox::new();
    let target = Target::start(&sandbox, "disk", "4096");
    let other = Target::start(&sandbox, "other", "4096");
    let ports = [target.port, other.port];
    let [first, second] =
        [0, 1].map(|index| failover::service(&sandbox, ports[index], failover::NAMES[index]));
    let (server, socket) = serve_waiting(&sandbox, "2", &failover::SERVICES);
    let mut client = Client::transmitting(&socket, false);
    let data = contents::noise(1, 4096);
    assert_eq!(client.write(0, &data), 0);
    first.signal(Signal::KILL);
    killed(first);
    assert_eq!(client.read_simple(0, 4096), Err(EIO));
    for target in [&target, &other] {
        wait_for_value(&server, &identity(&target.path()), 1);
    }
    let first = failover::service(&sandbox, target.port, failover::NAMES[0]);
    let deadline = default_deadline();
    let read = loop {
        let read = client.read_simple(0, 4096);
        if read.is_ok() || std::time::Instant::now() > deadline {
            break read;
        }
    };
    assert_eq!(read, Ok(data));
    assert_eq!(flush(&mut client), 0);
    stop(server);
    drop((first, second, target, other));
}

#[test]
fn flush_to_a_replaced_backing_file_fails() {
    let sandbox = Sandbox::new();
    let target = Target::start(&sandbox, "disk", "4096");
    let service = sandbox.service(target.port, &FOREVER);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, false);
    let (path, aside) = (target.path(), sandbox.path("aside"));
    assert_eq!(client.write(0, &contents::noise(1, 4096)), 0);
    assert_eq!(flush(&mut client), 0);
    fs::rename(&path, &aside).expect("renamed");
    fs::copy(&aside, &path).expect("copied");
    // The file is checked with every flush, and otherwise periodically.
    let _ = client.write(0, &contents::noise(2, 4096));
    assert_eq!(flush(&mut client), EIO);
    stop(server);
    drop(service);
    target.process.signal(Signal::TERM);
    ended(target.process, 1);
}

/// Keeps 16 writes in flight until the server stops responding, and returns the number of responses.
fn write_until_closed(socket: &Path) -> usize {
    let mut stream = Client::transmitting(socket, false).stream;
    for cookie in 0.. {
        let mut bytes = request(0, WRITE, cookie, cookie % 64 * 4096, 4096);
        bytes.extend(contents::noise(cookie, 4096));
        let is_sent = stream.write_all(&bytes).is_ok();
        if !is_sent || cookie >= 16 && reply(&mut stream).is_err() {
            return cookie as usize;
        }
    }
    0
}

/// Asks a gga service to exit, and starts another service, which must find a set that was closed cleanly.
fn restart_service(is_busy: bool) {
    let sandbox = Sandbox::new();
    let targets = TARGETS.map(|name| Target::start(&sandbox, name, "2112"));
    let ports = targets.each_ref().map(|target| target.port);
    let flags = ["--logical-block-size", "4096", "--degraded", "on"];
    let flags = [&FOREVER[..], &flags].concat();
    let mut service = sandbox.gga_service(ports, 1, &flags);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, false);
    let data = contents::noise(1, 1 << 20);
    assert_eq!(client.write(1 << 20, &data), 0);
    let writer = is_busy.then(|| {
        let socket = socket.clone();
        std::thread::spawn(move || write_until_closed(&socket))
    });
    if is_busy {
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    service.signal(Signal::TERM);
    let status = service.wait(default_deadline()).expect("it ends");
    assert!(status.success(), "{status}: {}", service.stderr());
    let service = sandbox.gga_service(ports, 1, &flags);
    // The data is still there in the next session.
    assert_eq!(client.read_simple(1 << 20, 1 << 20), Ok(data));
    assert_eq!(flush(&mut client), 0);
    stop(server);
    if let Some(writer) = writer {
        assert!(writer.join().expect("no panic") > 16);
    }
    service.signal(Signal::TERM);
    let settled = &redundancy(service)["settled_stripes"];
    let none = json!({"consistent": 0, "rewritten": 0, "lost": 0});
    assert_eq!(*settled, none);
    targets.into_iter().for_each(|target| stop(target.process));
}

#[test]
fn terminated_service_with_an_idle_client_closes_its_set_cleanly() {
    restart_service(false);
}

#[test]
fn terminated_service_with_a_busy_client_closes_its_set_cleanly() {
    restart_service(true);
}

#[test]
fn terminated_zero_copy_service_exits_with_success() {
    let sandbox = Sandbox::new();
    let (target, port) = target(&sandbox, "disk", "4096");
    let service = sandbox.service(port, &FOREVER);
    let (server, socket) = serve(&sandbox, &[]);
    let mut client = Client::transmitting(&socket, false);
    assert_eq!(client.write(0, b"data"), 0);
    stop(service);
    let service = sandbox.service(port, &FOREVER);
    assert_eq!(client.read_simple(0, 4), Ok(b"data".to_vec()));
    stop(server);
    stop(service);
    stop(target);
}
