//! The volume layout: a file system image is written through the NBD server, which is restarted before the image is
//! read back and checked.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::implementation::Layout;
use deployment::process::{Failure, Signal};
use deployment::{Deployment, Part};

use super::sessions::Sessions;

/// Size of the storage in bytes: the smallest ext4 with a journal uses half of it.
const SIZE: usize = 16 << 20;
const BLOCK_SIZE: usize = 4096;

/// Size of a request in bytes.
const REQUEST: usize = 256 * 1024;

/// Time for a process to become ready, or to exit.
const READY: Duration = Duration::from_secs(20);

/// Timeout of a reply.
const REPLY: Duration = Duration::from_secs(60);

/// Image that is written to the storage and read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// A file system with the demo's data, made by mkfs.ext4.
    Ext4,
    /// A pattern, if mkfs.ext4 is not installed.
    Pattern,
}

impl Image {
    /// Name in the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4 through NBD, reopen, check",
            Self::Pattern => "pattern through NBD, reopen, compare",
        }
    }

    /// The best image available on this machine.
    pub fn available() -> Self {
        if find("mkfs.ext4").is_some() {
            Self::Ext4
        } else {
            Self::Pattern
        }
    }
}

/// Finds a program in the usual directories of file system tools, which may not be in PATH.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

fn failure(what: impl Into<String>) -> Failure {
    Failure::new("demo", what)
}

/// Runs the session; `content` is a file stored in the file system.
pub fn run(sessions: &mut Sessions<'_>, image: Image, content: &Path) -> Result<(), Failure> {
    let directory = sessions.roles.sandbox.path("volume");
    std::fs::create_dir(&directory)?;
    let io = |what: &'static str| move |error: std::io::Error| failure(format!("{what}: {error}"));
    let written = match image {
        Image::Ext4 => make_file_system(content, &directory)?,
        Image::Pattern => contents::noise(1, SIZE),
    };
    let socket = directory.join("disk");
    set_commands(sessions, &socket)?;
    let roles = &mut sessions.roles;
    roles.start_all()?;
    let mut client = Client::connect(&socket).map_err(io("connect to the NBD server"))?;
    client
        .write_everything(&written)
        .map_err(io("write through NBD"))?;
    drop(client);
    end(roles, Part::FrontEnd)?;
    roles.start(Part::FrontEnd)?;
    let mut client = Client::connect(&socket).map_err(io("connect to the NBD server"))?;
    let read = client.read_everything().map_err(io("read through NBD"))?;
    drop(client);
    for part in [Part::FrontEnd, Part::Service, Part::Target(0)] {
        end(roles, part)?;
    }
    if let Some(at) = std::iter::zip(&written, &read).position(|(written, read)| written != read) {
        return Err(failure(format!("byte {at} differs from the data written")));
    }
    match (image, find("e2fsck")) {
        (Image::Ext4, Some(e2fsck)) => {
            let copy = directory.join("copy.ext4");
            std::fs::write(&copy, &read).map_err(io("write the copy"))?;
            tool(Command::new(e2fsck).arg("-fn").arg(copy))
        }
        _ => Ok(()),
    }
}

/// Creates an image that contains the file, without privileges.
fn make_file_system(content: &Path, directory: &Path) -> Result<Vec<u8>, Failure> {
    let make = || -> std::io::Result<(PathBuf, PathBuf)> {
        let tree = directory.join("tree");
        std::fs::create_dir(&tree)?;
        let mut bytes = Vec::new();
        // Half of the image: the rest is file system metadata.
        std::fs::File::open(content)?
            .take(SIZE as u64 / 2)
            .read_to_end(&mut bytes)?;
        std::fs::write(tree.join("content"), bytes)?;
        let image = directory.join("image.ext4");
        std::fs::File::create(&image)?.set_len(SIZE as u64)?;
        Ok((tree, image))
    };
    let (tree, image) = make().map_err(|error| failure(format!("make a file system: {error}")))?;
    let mkfs = find("mkfs.ext4").ok_or_else(|| failure("mkfs.ext4 is gone"))?;
    tool(
        Command::new(mkfs)
            .args(["-q", "-F", "-d"])
            .arg(tree)
            .arg(&image),
    )?;
    std::fs::read(&image).map_err(|error| failure(format!("read the image: {error}")))
}

fn tool(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| failure(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure {
        role: "demo",
        what: format!("{name}: {}", output.status),
        stderr: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    })
}

/// Sets the command lines of a target in memory, its service, and an NBD server.
fn set_commands(sessions: &mut Sessions<'_>, socket: &Path) -> Result<(), Failure> {
    sessions.roles.reset(Layout::ZeroCopy)?;
    let parts = [
        (Part::FrontEnd, "nbd"),
        (Part::Target(0), "target"),
        (Part::Service, "zero-copy"),
    ];
    for (index, (part, role)) in parts.into_iter().enumerate() {
        let mut command = sessions.role(role, false);
        command.args(["--output", "json", "--cpu", &sessions.cpu(index)]);
        match part {
            Part::FrontEnd => command.arg("--socket").arg(socket),
            _ => command.args(["--sessions", "forever"]),
        };
        if let Part::Target(_) = part {
            let blocks = SIZE / BLOCK_SIZE;
            command
                .args(["--block-size", &BLOCK_SIZE.to_string()])
                .args(["--block-count", &blocks.to_string()]);
        }
        sessions.roles.set_command(part, command);
    }
    Ok(())
}

/// Stops a process cleanly.
fn end(roles: &mut Deployment, part: Part) -> Result<(), Failure> {
    let process = roles.take(part)?;
    process.signal(Signal::TERM);
    process.finish(Instant::now() + READY, || false).map(drop)
}

/// A sequential NBD client with simple replies.
struct Client {
    stream: UnixStream,
    has_flush: bool,
}

impl Client {
    fn connect(socket: &Path) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY))?;
        stream.set_write_timeout(Some(REPLY))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        // Fixed newstyle, no zeroes; then the default export.
        stream.write_all(&3_u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        if export[..8] != (SIZE as u64).to_be_bytes() {
            return Err(std::io::Error::other(format!(
                "expected an export of {SIZE} bytes"
            )));
        }
        let has_flush = export[9] & 1 << 2 != 0;
        Ok(Self { stream, has_flush })
    }

    fn request(&mut self, command: u16, offset: usize, len: usize) -> std::io::Result<()> {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend([0; 2]);
        request.extend(command.to_be_bytes());
        request.extend([0; 8]);
        request.extend((offset as u64).to_be_bytes());
        request.extend((len as u32).to_be_bytes());
        self.stream.write_all(&request)
    }

    fn reply(&mut self) -> std::io::Result<()> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        if reply[..8] == [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0] {
            return Ok(());
        }
        Err(std::io::Error::other(format!(
            "the server replied {reply:02x?}"
        )))
    }

    fn write_everything(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        for (index, piece) in bytes.chunks(REQUEST).enumerate() {
            self.request(1, index * REQUEST, piece.len())?;
            self.stream.write_all(piece)?;
            self.reply()?;
        }
        if self.has_flush {
            self.request(3, 0, 0)?;
            self.reply()?;
        }
        self.request(2, 0, 0)
    }

    fn read_everything(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; SIZE];
        for (index, piece) in bytes.chunks_mut(REQUEST).enumerate() {
            self.request(0, index * REQUEST, piece.len())?;
            self.reply()?;
            self.stream.read_exact(piece)?;
        }
        self.request(2, 0, 0)?;
        Ok(bytes)
    }
}
