//! The disk as a file (nbdfuse), with a file system on it mounted: by the kernel over a loop device, or by fuse2fs.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use deployment::process::Signal;
use deployment::sandbox::Sandbox;
use libtest_mimic::Failed;

use crate::disk::{Disk, source_tree};
use crate::program::{Program, is_installed, run, wait_until};

/// Program that mounts a file system in a file of nbdfuse.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The kernel, with a loop device, which needs root.
    Loop,
    Fuse2fs,
}

static METHOD: LazyLock<Result<Method, String>> = LazyLock::new(|| {
    if fs::metadata("/dev/fuse").is_err() {
        return Err("no /dev/fuse".to_owned());
    }
    if loop_devices_work().is_ok() {
        return Ok(Method::Loop);
    }
    is_installed("fuse2fs")
        .then_some(Method::Fuse2fs)
        .ok_or_else(|| "no loop device and no fuse2fs".to_owned())
});

fn loop_devices_work() -> Result<(), Failed> {
    let sandbox = Sandbox::new()?;
    let [image, mount] = ["image", "mount"].map(|name| sandbox.path(name).display().to_string());
    fs::File::create(&image)?.set_len(4 << 20)?;
    fs::create_dir(&mount)?;
    run(&format!("mkfs.ext4 -q -F {image}"))?;
    run(&format!("mount -o loop {image} {mount}"))?;
    run(&format!("umount {mount}"))?;
    Ok(())
}

/// Mount points in a sandbox: `fuse`, of nbdfuse, and `mount`, of a file system. Dropping it unmounts both, and ends nbdfuse.
pub struct Mounts {
    directory: PathBuf,
    nbdfuse: Option<Program>,
}

impl Mounts {
    /// Method of mounting on this machine, or the reason why there is none.
    pub fn method() -> Result<Method, String> {
        METHOD.clone()
    }

    /// Makes the directories of the mount points.
    pub fn new(sandbox: &Sandbox) -> Result<Self, Failed> {
        let mounts = Self {
            directory: sandbox.path(""),
            nbdfuse: None,
        };
        for name in ["fuse", "mount"] {
            fs::create_dir_all(mounts.path(name))?;
        }
        Ok(mounts)
    }

    /// Attaches a disk.
    pub fn of(disk: &Disk) -> Result<Self, Failed> {
        let mut mounts = Self::new(&disk.deployment.sandbox)?;
        let file = mounts.path("fuse/disk");
        mounts.nbdfuse = Some(Program::start(&format!("nbdfuse {file} {}", disk.uri))?);
        mounts.wait_until_attached()?;
        Ok(mounts)
    }

    /// Waits until the file `fuse/disk` exists.
    pub fn wait_until_attached(&self) -> Result<(), Failed> {
        let file = self.path("fuse/disk");
        wait_until("nbdfuse to make its file", || {
            Ok(fs::metadata(&file).is_ok())
        })
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    pub fn make_file_system(&self) -> Result<(), Failed> {
        run(&format!("mkfs.ext4 -q -F {}", self.path("fuse/disk")))?;
        Ok(())
    }

    pub fn mount(&self) -> Result<(), Failed> {
        let (file, mount) = (self.path("fuse/disk"), self.path("mount"));
        run(&match Self::method()? {
            Method::Loop => format!("mount -o loop {file} {mount}"),
            Method::Fuse2fs => format!("fuse2fs {file} {mount} -o fakeroot,rw"),
        })?;
        self.expect_mounted()
    }

    pub fn expect_mounted(&self) -> Result<(), Failed> {
        if self.is_mounted("mount") {
            return Ok(());
        }
        Err("expected a mounted file system".into())
    }

    /// Unmounts the file system, waits until all of it is written, and checks it.
    pub fn unmount_and_check(&self) -> Result<(), Failed> {
        self.unmount("mount")?;
        // A process in another mount namespace may have a copy of the mount: the file system lives, and writes, as long as its loop device
        // exists. fuse2fs writes its cached data after it was unmounted.
        wait_until("the file system to be written", || Ok(!self.is_in_use()?))?;
        run(&format!("e2fsck -fn {}", self.path("fuse/disk")))?;
        Ok(())
    }

    /// Detaches the disk, which must not be mounted.
    pub fn detach(mut self) -> Result<(), Failed> {
        wait_until("nbdfuse to be unmounted", || {
            Ok(self.unmount("fuse").is_ok())
        })?;
        self.end_nbdfuse(Signal::TERM)
    }

    /// Ends nbdfuse, and with it the disk of the file system, as in a crash of the machine.
    pub fn crash(&mut self) -> Result<(), Failed> {
        self.end_nbdfuse(Signal::KILL)
    }

    /// nbdfuse goes on while another mount namespace has a copy of its mount. It has no cache, so no data is lost.
    fn end_nbdfuse(&mut self, signal: Signal) -> Result<(), Failed> {
        self.nbdfuse
            .take()
            .map_or(Ok(()), |nbdfuse| nbdfuse.end(signal))
    }

    /// Of root, and of a user who has mounted it with FUSE.
    fn unmount(&self, name: &str) -> Result<String, Failed> {
        let point = self.path(name);
        run(&format!("umount {point}"))
            .or_else(|failed| run(&format!("fusermount3 -u {point}")).map_err(|_| failed))
    }

    fn is_mounted(&self, name: &str) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.contains(&format!(" {} ", self.path(name)))
    }

    /// `true` while a loop device or fuse2fs uses the disk's file.
    fn is_in_use(&self) -> Result<bool, Failed> {
        let file = self.path("fuse/disk");
        let uses = |path: PathBuf, program: &str| {
            // Devices and processes may disappear meanwhile.
            let text = fs::read_to_string(path).unwrap_or_default();
            text.contains(&file) && text.contains(program)
        };
        for device in fs::read_dir("/sys/block")? {
            if uses(device?.path().join("loop/backing_file"), "") {
                return Ok(true);
            }
        }
        for process in fs::read_dir("/proc")? {
            if uses(process?.path().join("cmdline"), "fuse2fs\0") {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for name in ["mount", "fuse"] {
            let point = self.path(name);
            while self.is_mounted(name) {
                let lazily = ["umount -l", "fusermount3 -uz"];
                if lazily
                    .iter()
                    .all(|how| run(&format!("{how} {point}")).is_err())
                {
                    break;
                }
            }
        }
    }
}

pub fn mounted_file_system_keeps_a_source_tree(disk: &mut Disk) -> Result<(), Failed> {
    let tree = source_tree(&disk.deployment.sandbox)?;
    // mkfs.ext4 must not depend on zeros that it has not written.
    disk.fill(&disk.random(1)?)?;
    let mounts = Mounts::of(disk)?;
    mounts.make_file_system()?;
    mounts.mount()?;
    let copy = mounts.path("mount/tree");
    run(&format!("cp -r {tree} {copy}"))?;
    run(&format!("diff -r {tree} {copy}"))?;
    mounts.unmount_and_check()?;
    mounts.mount()?;
    run(&format!("diff -r {tree} {copy}"))?;
    mounts.unmount_and_check()?;
    mounts.detach()
}
