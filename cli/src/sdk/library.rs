//! Where the shared library comes from when no file is named.

use std::env::{self, consts::DLL_PREFIX, consts::DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use role_common::errln;

use super::Result;

/// Package of the library.
const PACKAGE: &str = "softdoca-shared";

/// The library in a release: beside the executable. In a checkout, cargo builds it.
pub(super) fn find() -> Result<PathBuf> {
    let executable = env::current_exe()?;
    let released = executable.with_file_name(softdoca_sdk::SONAME);
    if released.is_file() {
        return Ok(released);
    }
    let directory = env::current_dir()?;
    let checkout = checkout(&directory)
        .or_else(|| checkout(&executable))
        .ok_or_else(|| {
            format!(
                "there is no {} beside {}, and neither {} nor the executable is in a checkout where cargo could build it; \
                 name the file with --library",
                softdoca_sdk::SONAME,
                executable.display(),
                directory.display()
            )
        })?;
    build(checkout)
}

/// The checkout around a path.
fn checkout(path: &Path) -> Option<&Path> {
    path.ancestors()
        .find(|directory| directory.join("softdoca/shared/Cargo.toml").is_file())
}

/// Builds the library and asks cargo where it is.
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

/// The shared library that cargo's messages name.
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
    fn the_library_is_found_in_cargos_messages() {
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
    fn this_is_a_checkout() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sdk");
        assert_eq!(
            checkout(&here),
            Path::new(env!("CARGO_MANIFEST_DIR")).parent()
        );
        assert_eq!(checkout(Path::new("/")), None);
    }
}
