//! The DOCA library that a program loads: roles are compared only if they load the same one.

use std::io;
use std::path::PathBuf;

use deployment::implementation::{Implementation, Role};

use super::Error;

/// Roles with a counterpart in the reference.
const ROLES: [Role; 4] = [
    Role::Initiator,
    Role::ZeroCopy,
    Role::GgaOffload,
    Role::Target,
];
/// Prefixes of the file names of the DOCA library that every program loads: softdoca's only one, and NVIDIA's core library.
const NAMES: [&str; 2] = ["libsoftdoca.so", "libdoca_common.so"];

/// Reason why the roles of two implementations are not comparable; `None` if each pair loads the same shared library.
///
/// # Errors
///
/// There is no such program, or it cannot be started.
pub fn no_twins(ours: &Implementation, theirs: &Implementation) -> Result<Option<String>, Error> {
    for role in ROLES {
        let (own, their) = (library(ours, role)?, library(theirs, role)?);
        if own.is_some() && own == their {
            continue;
        }
        let text = |library: Option<PathBuf>| {
            library.map_or_else(
                || "a DOCA that is linked into it".to_owned(),
                |path| path.display().to_string(),
            )
        };
        return Ok(Some(format!(
            "each of our roles in place of its C++ twin: expected both to run on the same shared DOCA library, but our {role} has {}, and \
             the C++ one {}; build ours with RUSTFLAGS=\"--cfg doca_sdk\" and name them with --impl, and the library with --library-path",
            text(own),
            text(their)
        )));
    }
    Ok(None)
}

/// Shared library that the dynamic loader resolves for this role; `None` if it needs none.
fn library(implementation: &Implementation, role: Role) -> Result<Option<PathBuf>, Error> {
    // The loader prints the resolved libraries instead of starting the program; a static program prints its help.
    let output = implementation
        .command(role)?
        .arg("--help")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()?;
    match loaded(&String::from_utf8_lossy(&output.stdout)) {
        Some(path) => Ok(Some(std::fs::canonicalize(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?)),
        None => Ok(None),
    }
}

/// Parses lines of the form `name => path (address)` or `name => not found`.
fn loaded(text: &str) -> Option<PathBuf> {
    NAMES.iter().find_map(|name| {
        text.lines().find_map(|line| {
            let (library, path) = line.trim().split_once(" => ")?;
            let path = path.rsplit_once(" (").map_or(path, |(path, _)| path);
            library.starts_with(name).then(|| path.into())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_output_is_parsed() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibdoca_common.so.2 => /opt/a b/libdoca_common.so.2 (0x2)\n\tlibc.so.6 => /lib/libc.so.6 (0x3)\n";
        assert_eq!(loaded(text), Some("/opt/a b/libdoca_common.so.2".into()));
        let missing = "\tlibsoftdoca.so.3 => not found\n";
        assert_eq!(loaded(missing), Some("not found".into()));
        assert_eq!(loaded("\tlibc.so.6 => /lib/libc.so.6 (0x3)\n"), None);
        assert_eq!(loaded("Usage: doca_storage_target_rdma"), None);
    }

    #[test]
    fn programs_with_a_linked_doca_are_not_comparable() {
        // Programs without a DOCA library, as ours are by default.
        let directory = tempfile::tempdir().expect("a directory");
        for role in ROLES {
            let path = directory.path().join(role.program());
            std::os::unix::fs::symlink("/bin/true", path).expect("a link");
        }
        let ours = Implementation::in_directory("rust", directory.path()).expect("programs");
        let reason = no_twins(&ours, &ours).expect("started").expect("a reason");
        assert!(reason.contains("linked into it"), "{reason}");
    }
}
