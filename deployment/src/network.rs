//! Simulated machines: network namespaces with a boot id and a runtime directory each, connected by veth pairs.
//!
//! [`Network::new`] connects machine 0 to each of the others: machine `n` has the address `10.91.n.2`, and machine 0
//! `10.91.n.1` at the other end of that veth pair. The namespaces belong to a separate user namespace, so no privileges
//! are needed if the kernel permits unprivileged user namespaces. They are removed when the value is dropped, or when
//! the process that created them exits.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// softdoca's environment variables for networks.
const ADDRESS: &str = "SOFTDOCA_ADDRESS";
const KEY_FILE: &str = "SOFTDOCA_KEY_FILE";
const RUNTIME_DIR: &str = "SOFTDOCA_RUNTIME_DIR";
/// Setting of a network namespace that enables forwarding between its interfaces.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// Maximum number of machines: softdoca supports at most four addresses, and machine 0 has one for each of the others.
pub const MOST_MACHINES: usize = 5;

/// Network namespaces cannot be created or changed.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot make network namespaces: {0}\nNeeded are unshare, nsenter and mount (package util-linux), ip (package iproute2), a kernel with \
     veth devices, and permission to make user namespaces: `sysctl kernel.unprivileged_userns_clone=1` or \
     `kernel.apparmor_restrict_unprivileged_userns=0` where the system has these; in a container --cap-add SYS_ADMIN \
     --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)]
pub struct Unavailable(String);

impl Unavailable {
    fn because(error: impl ToString) -> Self {
        Self(error.to_string())
    }
}

type Result<T> = std::result::Result<T, Unavailable>;

#[derive(Debug)]
pub struct Network {
    directory: TempDir,
    /// Processes that hold the namespaces.
    holders: Vec<Child>,
    key: PathBuf,
    /// Last octet of the address of each machine other than the first.
    hosts: Vec<u8>,
}

impl Network {
    /// Creates `machines` machines, with a veth pair between machine 0 and each of the others.
    ///
    /// # Errors
    ///
    /// The system does not permit network namespaces, a program is missing, or there are more than [`MOST_MACHINES`].
    pub fn new(machines: usize) -> Result<Self> {
        let network = Self::without_cables(machines)?;
        for index in 1..machines {
            let process = network.holder(index).to_string();
            let (near, far) = (near(index), far(index));
            network.run(
                0,
                &[
                    "ip", "link", "add", &near, "type", "veth", "peer", "name", &far, "netns",
                    &process,
                ],
            )?;
            network.set_up(index)?;
        }
        Ok(network)
    }

    /// Creates `machines` machines that are not connected.
    ///
    /// # Errors
    ///
    /// As [`Network::new`].
    pub fn without_cables(machines: usize) -> Result<Self> {
        if !(1..=MOST_MACHINES).contains(&machines) {
            return Err(Unavailable(format!(
                "expected 1 to {MOST_MACHINES} machines, got {machines}"
            )));
        }
        let directory = tempfile::Builder::new()
            .prefix("doca-storage-")
            .tempdir()
            .map_err(Unavailable::because)?;
        let key = directory.path().join("key");
        fs::write(&key, "a key of the deployment, 0123456789")
            .and_then(|()| fs::set_permissions(&key, fs::Permissions::from_mode(0o600)))
            .map_err(Unavailable::because)?;
        let mut network = Self {
            directory,
            holders: Vec::new(),
            key,
            hosts: vec![2; machines],
        };
        network.hold(Command::new("unshare").args(["-Urnm", "sh", "-c"]), 0)?;
        for index in 1..machines {
            let mut command = network.entering(0, Command::new("unshare"));
            command.args(["-nm", "sh", "-c"]);
            network.hold(&mut command, index)?;
        }
        Ok(network)
    }

    /// Replaces the address of a machine, as a restart with another configuration does.
    ///
    /// # Errors
    ///
    /// The machine is not connected.
    pub fn change_address(&mut self, machine: usize) -> Result<()> {
        let device = far(machine);
        let with_prefix = |address: String| format!("{address}/24");
        let old = with_prefix(self.address(machine));
        self.run(machine, &["ip", "address", "del", &old, "dev", &device])?;
        self.hosts[machine] = 2 + (self.hosts[machine] - 1) % 200;
        let new = with_prefix(self.address(machine));
        self.run(machine, &["ip", "address", "add", &new, "dev", &device])?;
        Ok(())
    }

    /// Assigns the addresses of both ends of the veth pair of machine `index`.
    ///
    /// # Errors
    ///
    /// The devices do not exist.
    pub fn set_up(&self, index: usize) -> Result<()> {
        let ends = [
            (0, near(index), format!("10.91.{index}.1/24")),
            (index, far(index), format!("{}/24", self.address(index))),
        ];
        for (machine, device, address) in ends {
            self.run(machine, &["ip", "address", "add", &address, "dev", &device])?;
            self.run(machine, &["ip", "link", "set", &device, "up"])?;
        }
        Ok(())
    }

    /// Starts the process that holds a machine, with its own boot id and hosts file.
    fn hold(&mut self, command: &mut Command, index: usize) -> Result<()> {
        let path = |name: &str| self.directory.path().join(format!("{name}{index}"));
        let (boot, hosts) = (path("boot"), path("hosts"));
        let id = format!("{index:08x}-0000-4000-8000-{:012x}\n", std::process::id());
        fs::write(&boot, id)
            .and_then(|()| fs::write(&hosts, "127.0.0.1 localhost\n"))
            .and_then(|()| {
                fs::DirBuilder::new()
                    .mode(0o700)
                    .create(self.runtime(index))
            })
            .map_err(Unavailable::because)?;
        // A machine with several interfaces must not forward packets between the other machines.
        let script = format!(
            "mount --bind {} /proc/sys/kernel/random/boot_id && mount --bind {} /etc/hosts && ip link set lo up && \
             {{ read forwards < {FORWARDING}; test \"$forwards\" = 0 || echo 0 > {FORWARDING}; }} && echo ready && exec cat",
            boot.display(),
            hosts.display()
        );
        // The holder exits when this process does, which closes the pipe.
        let mut child = command
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Unavailable(format!("unshare: {error}")))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(Unavailable::because)?;
        }
        if line.trim() != "ready" {
            drop(child.stdin.take());
            let output = child.wait_with_output().map_err(Unavailable::because)?;
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(Unavailable(error.trim().to_owned()));
        }
        self.holders.push(child);
        Ok(())
    }

    pub fn machines(&self) -> usize {
        self.holders.len()
    }

    /// Id of a process that runs in the machine for its lifetime.
    pub fn holder(&self, machine: usize) -> u32 {
        self.holders[machine].id()
    }

    /// Runs a command in the namespaces of a machine; the environment is unchanged.
    fn entering(&self, machine: usize, command: Command) -> Command {
        let process = self.holder(machine).to_string();
        let words = ["-t", &process, "-U", "-n", "-m", "--preserve-credentials"];
        let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let mut command = crate::wrap("nsenter", words.into_iter().chain(["--"]), &command);
        if command.get_current_dir().is_none() {
            command.current_dir(directory);
        }
        command
    }

    /// Runs a command on a machine: in its network, with its boot id and runtime directory, and the key and the
    /// addresses for softdoca.
    #[must_use]
    pub fn place(&self, machine: usize, command: Command) -> Command {
        let mut command = self.entering(machine, command);
        command
            .env(RUNTIME_DIR, self.runtime(machine))
            .env(ADDRESS, self.addresses(machine).join(","))
            .env(KEY_FILE, &self.key);
        command
    }

    /// Runs a command on a machine and returns its standard output.
    ///
    /// # Errors
    ///
    /// The command cannot be started, or fails.
    pub fn run(&self, machine: usize, words: &[&str]) -> Result<String> {
        let [program, arguments @ ..] = words else {
            return Err(Unavailable("no command".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        let output = self
            .entering(machine, command)
            .output()
            .map_err(|error| Unavailable(format!("nsenter: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(Unavailable(format!("{words:?}: {}", error.trim())))
    }

    /// Runtime directory of a machine.
    pub fn runtime(&self, machine: usize) -> PathBuf {
        self.directory.path().join(format!("run{machine}"))
    }

    /// File with the key that all machines share.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Address at which machine 0 reaches a machine; for machine 0, its loopback address.
    pub fn address(&self, machine: usize) -> String {
        match machine {
            0 => "127.0.0.1".to_owned(),
            index => format!("10.91.{index}.{}", self.hosts[index]),
        }
    }

    /// Addresses of a machine on its veth interfaces.
    pub fn addresses(&self, machine: usize) -> Vec<String> {
        match machine {
            0 => (1..self.machines())
                .map(|index| format!("10.91.{index}.1"))
                .collect(),
            index => vec![self.address(index)],
        }
    }

    /// Sets the host names and their addresses in the hosts file of a machine.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn name(&self, machine: usize, names: &[(&str, &str)]) -> std::io::Result<()> {
        let mut text = "127.0.0.1 localhost\n".to_owned();
        for (name, address) in names {
            text.push_str(&format!("{address} {name}\n"));
        }
        // Overwritten in place, because the file is bind-mounted in the machine.
        fs::write(self.directory.path().join(format!("hosts{machine}")), text)
    }

    /// Listening sockets of a machine, TCP and UDP, IPv4 and IPv6, as `address:port`.
    ///
    /// # Errors
    ///
    /// The kernel's tables cannot be read.
    pub fn listeners(&self, machine: usize) -> std::io::Result<Vec<String>> {
        crate::port::listeners(Path::new(&format!("/proc/{}/net", self.holder(machine))))
    }
}

/// Name of machine 0's interface to a machine.
pub fn near(machine: usize) -> String {
    format!("near{machine}")
}

/// Name of a machine's interface to machine 0.
pub fn far(machine: usize) -> String {
    format!("far{machine}")
}

impl Drop for Network {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            // Fails only if the process has exited.
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
