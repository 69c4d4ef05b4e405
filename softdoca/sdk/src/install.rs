//! Laying out a prefix.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{MODULES, SONAME, Side, headers};

/// Why an installation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library cannot be read.
    #[error("cannot read the library {path}: {source}")]
    Library {
        /// Where it was looked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "{path} is no shared library (an ELF file): expected what cargo makes of the package softdoca-shared"
    )]
    NoLibrary {
        /// The file.
        path: PathBuf,
    },
    /// A file or directory of the prefix cannot be made.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The library.
    pub library: PathBuf,
    /// Number of headers.
    pub headers: usize,
    /// Number of packages, each for host and DPU.
    pub packages: usize,
}

/// Installs the shared library, its names, the headers and the pkg-config files under `prefix`.
///
/// An older installation is replaced file by file, each at once: running programs keep the library that they have loaded.
pub fn install(library: &Path, prefix: &Path) -> Result<Installed, Error> {
    let binary = fs::read(library).map_err(|source| Error::Library {
        path: library.to_owned(),
        source,
    })?;
    if !binary.starts_with(b"\x7fELF") {
        return Err(Error::NoLibrary {
            path: library.to_owned(),
        });
    }

    let libraries = prefix.join("lib");
    let installed = libraries.join(SONAME);
    write(&installed, &binary, 0o755)?;
    link(SONAME, &libraries.join("libsoftdoca.so"))?;
    for module in MODULES {
        link(SONAME, &libraries.join(format!("lib{}.so", module.library)))?;
        for side in Side::ALL {
            let directory = prefix.join(side.package_directory());
            write(
                &directory.join(format!("{}.pc", module.package)),
                module.file(side).as_bytes(),
                0o644,
            )?;
        }
    }

    let headers = headers();
    for header in &headers {
        write(
            &prefix.join("include").join(header.name),
            header.text.as_bytes(),
            0o644,
        )?;
    }
    Ok(Installed {
        library: installed,
        headers: headers.len(),
        packages: MODULES.len(),
    })
}

/// Writes a file under another name and renames it, so that nobody sees a half.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode))
        .map_err(|errno| failed(errno.into()))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Makes a symbolic link, in place of what has its name.
fn link(target: &str, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::os::unix::fs::symlink(target, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_installation_replaces_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        let prefix = directory.path().join("a prefix");
        fs::write(&library, b"\x7fELF first").unwrap();
        install(&library, &prefix).unwrap();
        fs::write(&library, b"\x7fELF second").unwrap();
        let installed = install(&library, &prefix).unwrap();

        for name in [
            "libsoftdoca.so",
            "libdoca_common.so",
            "libdoca_erasure_coding.so",
        ] {
            assert_eq!(
                fs::read(prefix.join("lib").join(name)).unwrap(),
                b"\x7fELF second",
                "{name}"
            );
        }
        assert_eq!(installed.library, prefix.join("lib").join(SONAME));
        assert_eq!(
            fs::read_dir(prefix.join("include")).unwrap().count(),
            installed.headers
        );
        assert_eq!(
            fs::read_dir(prefix.join("lib/pkgconfig-dpu"))
                .unwrap()
                .count(),
            installed.packages
        );
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("library.so");
        let prefix = directory.path().join("prefix");
        assert!(matches!(
            install(&library, &prefix),
            Err(Error::Library { .. })
        ));
        fs::write(&library, b"!<arch>").unwrap();
        assert!(matches!(
            install(&library, &prefix),
            Err(Error::NoLibrary { .. })
        ));
        assert!(!prefix.exists());
        fs::write(&library, b"\x7fELF").unwrap();
        fs::write(&prefix, b"a file").unwrap();
        assert!(matches!(
            install(&library, &prefix),
            Err(Error::Write { .. })
        ));
    }
}
