//! A sandbox: the private runtime directory, files, channel and ports of one deployment, and the command lines of its roles.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::implementation::Layout;
use crate::network::Network;
use crate::port::Port;
use crate::process::{NotReady, Process};

/// The DPU's device in softdoca's built-in topology.
pub const DPU_DEVICE: &str = "03:00.0";
/// The host's device in softdoca's built-in topology; also the name of its representor on the DPU.
pub const HOST_DEVICE: &str = "3b:00.0";

/// softdoca's environment variable for the runtime directory.
const RUNTIME_DIR: &str = "SOFTDOCA_RUNTIME_DIR";
/// `__SO_ACCEPTCON`: the flag of a listening socket in `/proc/net/unix`.
const ACCEPTS: u32 = 1 << 16;
/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(2);

/// Number of the next sandbox of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Devices of the roles, as values of the flags `-d` and `-r`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// Device of initiators and targets.
    pub host: String,
    /// Device of services.
    pub dpu: String,
    /// The host's representor on the DPU.
    pub representor: String,
}

impl Default for Devices {
    /// softdoca's built-in devices.
    fn default() -> Self {
        Self {
            host: HOST_DEVICE.to_owned(),
            dpu: DPU_DEVICE.to_owned(),
            representor: HOST_DEVICE.to_owned(),
        }
    }
}

/// Private environment of one deployment. Its directory is removed when it is dropped.
#[derive(Debug)]
pub struct Sandbox {
    directory: TempDir,
    runtime: PathBuf,
    channel: String,
    devices: Devices,
    ports: RefCell<Vec<Port>>,
    network: Option<Network>,
}

impl Sandbox {
    /// Creates a sandbox with a private runtime directory.
    ///
    /// # Errors
    ///
    /// A directory cannot be created.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
        let runtime = directory.path().join("run");
        // softdoca refuses a directory that other users can access.
        fs::DirBuilder::new().mode(0o700).create(&runtime)?;
        Ok(Self::with(directory, runtime))
    }

    /// Creates a sandbox in the runtime directory of this process, which a scripted peer in this process and the
    /// program under test must share. Channel names are unique per sandbox.
    ///
    /// # Errors
    ///
    /// A directory cannot be created, or `SOFTDOCA_RUNTIME_DIR` is not set.
    pub fn shared() -> io::Result<Self> {
        let runtime = std::env::var_os(RUNTIME_DIR).ok_or_else(|| {
            io::Error::other("expected SOFTDOCA_RUNTIME_DIR to name a directory of mode 0700")
        })?;
        let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
        Ok(Self::with(directory, runtime.into()))
    }

    fn with(directory: TempDir, runtime: PathBuf) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            directory,
            runtime,
            channel: format!("storage-{}-{number}", std::process::id()),
            devices: Devices::default(),
            ports: RefCell::default(),
            network: None,
        }
    }

    /// Creates a sandbox on several machines: service and initiator run on machine 0, the targets are distributed over
    /// the others. Commands of the roles must be [placed](Sandbox::on_machine_of_target) on these machines.
    ///
    /// # Errors
    ///
    /// A directory cannot be created.
    pub fn over(network: Network) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("doca-storage-").tempdir()?;
        let mut sandbox = Self::with(directory, network.runtime(0));
        sandbox.network = Some(network);
        Ok(sandbox)
    }

    /// The network of a sandbox on several machines.
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The network of a sandbox on several machines, to change it.
    pub fn network_mut(&mut self) -> Option<&mut Network> {
        self.network.as_mut()
    }

    /// Sets the devices of the roles.
    #[must_use]
    pub fn with_devices(mut self, devices: Devices) -> Self {
        self.devices = devices;
        self
    }

    /// Name of the sandbox's Comch channel, unique among running processes.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Reserves a TCP port until the sandbox is dropped.
    ///
    /// # Errors
    ///
    /// As [`Port::reserve`].
    pub fn port(&self) -> io::Result<u16> {
        let port = Port::reserve()?;
        let number = port.number();
        self.ports.borrow_mut().push(port);
        Ok(number)
    }

    /// Path of a file in the sandbox, which need not exist.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens the log `NAME.log` for appending; creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn log(&self, name: &str) -> io::Result<fs::File> {
        let path = self.path(&format!("{name}.log"));
        fs::File::options().create(true).append(true).open(path)
    }

    /// Keeps the directory when the sandbox is dropped, and returns its path.
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Writes a file in the sandbox and returns its path.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn file(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// Sets the runtime directory and the working directory of a command to those of the sandbox.
    pub fn place<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env(RUNTIME_DIR, &self.runtime)
            .current_dir(self.directory.path())
    }

    /// Completes the command line of a target that listens on `port`: device, port, environment.
    #[must_use]
    pub fn target(&self, mut command: Command, port: u16) -> Command {
        self.place(&mut command)
            .args(["-d", &self.devices.host])
            .args(["--listen-port", &port.to_string()]);
        command
    }

    /// Machine of target number `index`; 0 without a network.
    fn machine_of_target(&self, index: usize) -> usize {
        let others = self
            .network
            .as_ref()
            .map_or(0, |network| network.machines() - 1);
        if others == 0 { 0 } else { 1 + index % others }
    }

    /// Address at which the service reaches target number `index`.
    pub fn address_of_target(&self, index: usize) -> String {
        match &self.network {
            Some(network) => network.address(self.machine_of_target(index)),
            None => "127.0.0.1".to_owned(),
        }
    }

    /// Runs the command of target number `index` on its machine; unchanged without a network.
    #[must_use]
    pub fn on_machine_of_target(&self, index: usize, command: Command) -> Command {
        self.on(self.machine_of_target(index), command)
    }

    /// Runs a command on the machine of service and initiator; unchanged without a network.
    #[must_use]
    pub fn on_machine_of_service(&self, command: Command) -> Command {
        self.on(0, command)
    }

    fn on(&self, machine: usize, command: Command) -> Command {
        match &self.network {
            Some(network) => network.place(machine, command),
            None => command,
        }
    }

    /// Completes the command line of a service that listens on a Comch channel and whose targets listen on `ports` of
    /// their machines: devices, channel, targets, environment.
    #[must_use]
    pub fn service(
        &self,
        mut command: Command,
        layout: Layout,
        ports: &[u16],
        channel: &str,
    ) -> Command {
        self.place(&mut command)
            .args(["-d", &self.devices.dpu, "-r", &self.devices.representor])
            .args(["--command-channel-name", channel]);
        for (index, (flag, port)) in layout.storage_flags().iter().zip(ports).enumerate() {
            let host = self.address_of_target(index);
            command.args([*flag, &format!("{host}:{port}")]);
        }
        self.on(0, command)
    }

    /// Completes the command line of an initiator for the service on a channel: device, channel, environment.
    #[must_use]
    pub fn initiator(&self, mut command: Command, channel: &str) -> Command {
        self.place(&mut command)
            .args(["-d", &self.devices.host])
            .args(["--command-channel-name", channel]);
        self.on(0, command)
    }

    /// Waits until initiators can find a service: until a server socket that is not in `before`, the
    /// [servers](Sandbox::servers) before the service's start, listens in the runtime directory. `interrupted` cancels
    /// the wait.
    ///
    /// # Errors
    ///
    /// The service has exited, does not listen within `limit`, or the wait was interrupted.
    pub fn wait_until_serving(
        &self,
        service: &Process,
        before: &[PathBuf],
        limit: Duration,
        interrupted: impl Fn() -> bool,
    ) -> Result<(), NotReady> {
        let deadline = Instant::now() + limit;
        while self.servers()?.iter().all(|path| before.contains(path)) {
            if Instant::now() >= deadline || service.has_ended() || interrupted() {
                return Err(service.not_ready(limit, interrupted));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Entries of the runtime directories. They should be empty once all processes have exited.
    ///
    /// # Errors
    ///
    /// The directories cannot be read.
    pub fn leftovers(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for runtime in self.runtimes() {
            found.extend(entries(&runtime)?);
        }
        Ok(found)
    }

    fn runtimes(&self) -> Vec<PathBuf> {
        match &self.network {
            Some(network) => (0..network.machines())
                .map(|n| network.runtime(n))
                .collect(),
            None => vec![self.runtime.clone()],
        }
    }

    /// Listening sockets in the runtime directory: Comch servers that clients can find.
    ///
    /// # Errors
    ///
    /// The kernel's table of Unix sockets, or the directory, cannot be read.
    pub fn servers(&self) -> io::Result<Vec<PathBuf>> {
        let process = match &self.network {
            Some(network) => network.holder(0).to_string(),
            None => "self".to_owned(),
        };
        let table = fs::read_to_string(format!("/proc/{process}/net/unix"))?;
        let mut entries = entries(&self.runtime)?;
        entries.retain(|path| accepts(&table, path));
        Ok(entries)
    }

    /// Running processes of this user that use a runtime directory of the sandbox, as paths in `/proc`.
    ///
    /// # Errors
    ///
    /// `/proc` cannot be read.
    pub fn processes(&self) -> io::Result<Vec<PathBuf>> {
        let expected = self.runtimes().into_iter().map(|runtime| {
            let name = format!("{RUNTIME_DIR}=").into_bytes();
            [&name[..], runtime.as_os_str().as_bytes()].concat()
        });
        let expected: Vec<_> = expected.collect();
        let mut found = entries("/proc".as_ref())?;
        found.retain(|path| {
            // A process may have exited since /proc was read.
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|variable| expected.iter().any(|expected| expected == variable))
        });
        Ok(found)
    }
}

/// Returns `true` if a socket with this file name accepts connections; a socket that is only bound refuses them. Fields
/// of the table are: address, count, protocol, flags, type, state, inode, and the path that was bound. softdoca binds
/// relative to a descriptor of the directory, so only the file name identifies the socket.
fn accepts(table: &str, path: &Path) -> bool {
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(3);
        let flags = words
            .next()
            .and_then(|word| u32::from_str_radix(word, 16).ok());
        let bound = words.nth(3).map(Path::new);
        flags.is_some_and(|flags| flags & ACCEPTS != 0)
            && bound.and_then(Path::file_name) == path.file_name()
    })
}

/// Paths of a directory's entries.
///
/// # Errors
///
/// The directory cannot be read.
pub fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    use super::*;

    #[test]
    fn only_listening_sockets_are_servers() {
        let sandbox = Sandbox::new().expect("a directory");
        let path = sandbox.runtime.join(format!("{}.sock", sandbox.channel()));
        let bound = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
            .expect("a socket");
        let address = SocketAddrUnix::new(&path).expect("an address");
        rustix::net::bind(&bound, &address).expect("bound");
        fs::write(sandbox.runtime.join("file"), "").expect("a file");
        assert_eq!(sandbox.leftovers().expect("a directory").len(), 2);
        assert!(sandbox.servers().expect("a table").is_empty());
        rustix::net::listen(&bound, 1).expect("listening");
        assert_eq!(sandbox.servers().expect("a table"), [path]);
    }

    #[test]
    fn sandboxes_have_distinct_channels_and_runtime_directories() {
        let (a, b) = (
            Sandbox::new().expect("one"),
            Sandbox::new().expect("another"),
        );
        assert_ne!(a.channel(), b.channel());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "touch \"$SOFTDOCA_RUNTIME_DIR/left\""]);
        assert!(a.place(&mut command).status().expect("a shell").success());
        assert_eq!(a.leftovers().expect("a directory").len(), 1);
        assert!(b.leftovers().expect("a directory").is_empty());
    }

    #[test]
    fn processes_are_found_by_their_runtime_directory() {
        let sandbox = Sandbox::new().expect("a directory");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo started >&2; kill -STOP $$"]);
        sandbox.place(&mut command);
        let mut process = Process::spawn("target", command).expect("a shell");
        process
            .wait_for("started", Duration::from_secs(10), |_| Some(()))
            .expect("a line");
        let expected = PathBuf::from(format!("/proc/{}", process.id()));
        assert_eq!(sandbox.processes().expect("/proc"), [expected]);
        drop(process);
        assert!(sandbox.processes().expect("/proc").is_empty());
    }

    #[test]
    fn waiting_for_a_service_that_exits_fails_at_once() {
        let sandbox = Sandbox::new().expect("a directory");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 3"]);
        let process = Process::spawn("service", command).expect("a shell");
        let waited = sandbox.wait_until_serving(&process, &[], Duration::from_secs(60), || false);
        let Err(NotReady::Exited(status)) = waited else {
            panic!("expected an exit, got {waited:?}");
        };
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn command_lines_name_devices_channel_and_targets() {
        let sandbox = Sandbox::new().expect("a directory");
        let words = |command: &Command| -> Vec<String> {
            let words = command.get_args();
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect()
        };
        let role = || Command::new("role");
        let service = sandbox.service(role(), Layout::Gga, &[1, 2, 3], "channel");
        assert_eq!(
            words(&service).join(" "),
            "-d 03:00.0 -r 3b:00.0 --command-channel-name channel --data-1-storage 127.0.0.1:1 \
             --data-2-storage 127.0.0.1:2 --data-p-storage 127.0.0.1:3"
        );
        let target = sandbox.target(role(), 7);
        assert_eq!(words(&target), ["-d", "3b:00.0", "--listen-port", "7"]);
        let initiator = sandbox.initiator(role(), "channel");
        assert_eq!(
            words(&initiator).join(" "),
            "-d 3b:00.0 --command-channel-name channel"
        );
    }
}
