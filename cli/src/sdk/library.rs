//! Default shared library for installation.

use std::env::{self, consts::DLL_PREFIX, consts::DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;

use role_common::errln;

use tempfile::TempDir;

use super::Result;

/// Package of the library.
const PACKAGE: &str = "softdoca-shared";

/// Sources of the library and its dependencies in this workspace, as a compressed archive.
const SOURCES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softdoca.tar.gz"));

/// A shared library to install.
pub(super) struct Library {
    path: PathBuf,
    /// Temporary build directory, if it is not needed afterwards.
    _directory: Option<TempDir>,
}

impl Library {
    pub(super) fn named(path: PathBuf) -> Self {
        Self {
            path,
            _directory: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the library of a release, next to the executable or in the `lib` directory beside it. Otherwise cargo
/// builds it, in a checkout or from the embedded sources.
pub(super) fn find() -> Result<Library> {
    let executable = env::current_exe()?;
    let released = ["", "../lib"].map(|directory| {
        executable
            .with_file_name(directory)
            .join(softdoca_sdk::SONAME)
    });
    if let Some(released) = released.into_iter().find(|path| path.is_file()) {
        return Ok(Library::named(released));
    }
    let directory = env::current_dir()?;
    if let Some(checkout) = checkout(&directory).or_else(|| checkout(&executable)) {
        return build(checkout).map(Library::named);
    }
    let directory = tempfile::tempdir()?;
    unpack(directory.path())?;
    Ok(Library {
        path: build(directory.path())?,
        _directory: Some(directory),
    })
}

fn unpack(directory: &Path) -> std::io::Result<()> {
    tar::Archive::new(GzDecoder::new(SOURCES)).unpack(directory)
}

/// Checkout that contains a path.
fn checkout(path: &Path) -> Option<&Path> {
    path.ancestors()
        .find(|directory| directory.join("softdoca/shared/Cargo.toml").is_file())
}

/// Builds the library, and gets its path from cargo.
fn build(checkout: &Path) -> Result<PathBuf> {
    errln!("building {PACKAGE} in {}", checkout.display());
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--package", PACKAGE])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(checkout)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo, which has to build {PACKAGE}: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo could not build {PACKAGE}: {}", output.status).into());
    }
    artifact(&output.stdout)
        .ok_or_else(|| format!("cargo built {PACKAGE}, but names no shared library").into())
}

/// Shared library named in cargo's messages.
fn artifact(messages: &[u8]) -> Option<PathBuf> {
    let wanted = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", PACKAGE.replace('-', "_"));
    serde_json::Deserializer::from_slice(messages)
        .into_iter::<serde_json::Value>()
        .map_while(std::result::Result::ok)
        .filter(|message| message["reason"] == "compiler-artifact")
        .flat_map(|message| {
            message["filenames"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(PathBuf::from))
                .collect::<Vec<_>>()
        })
        .find(|path| path.file_name().is_some_and(|name| *name == *wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_path_is_read_from_cargo_messages() {
        let messages = br#"{"reason":"compiler-artifact","filenames":["/t/libsoftdoca.rlib"]}
            {"reason":"build-script-executed","filenames":["/other/libsoftdoca_shared.so"]}
            {"reason":"compiler-artifact","filenames":["/t/x.d","/t/libsoftdoca_shared.so"]}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(
            artifact(messages),
            Some(PathBuf::from("/t/libsoftdoca_shared.so"))
        );
        assert_eq!(artifact(b"{}"), None);
        assert_eq!(artifact(b"no json"), None);
    }

    #[test]
    fn bundled_sources_are_a_workspace_of_the_library_only() {
        let directory = tempfile::tempdir().expect("a directory");
        unpack(directory.path()).expect("unpacked");
        assert_eq!(checkout(directory.path()), Some(directory.path()));
        let metadata = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(directory.path())
            .output()
            .expect("cargo runs");
        let said = String::from_utf8_lossy(&metadata.stderr);
        assert!(metadata.status.success(), "{said}");
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
        let mut names: Vec<_> = metadata["packages"]
            .as_array()
            .expect("packages")
            .iter()
            .map(|package| package["name"].as_str().expect("a name"))
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["doca-abi", "softdoca", "softdoca-net", PACKAGE]);
    }

    #[test]
    fn checkout_is_detected() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sdk");
        assert_eq!(
            checkout(&here),
            Path::new(env!("CARGO_MANIFEST_DIR")).parent()
        );
        assert_eq!(checkout(Path::new("/")), None);
    }
}
