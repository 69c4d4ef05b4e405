//! Finds the samples' programs in common build layouts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::scenario::Side;

/// Maximum depth of the search below a directory: `<samples>/<library>/<sample>/<build>/`, and a little more.
const DEPTH: usize = 6;

/// Programs found below some directories.
///
/// A program is called `doca_<sample>`, as meson builds it, or `<library>_<sample>` if all are in one directory. It
/// counts as built for a DPU or a host if its name begins with `dpu_` or `host_`, or a directory of its path has
/// that word in its name; otherwise it counts for both.
#[derive(Debug, Default)]
pub struct Binaries {
    /// By name without the prefix of the side; among equals, the first one found is preferred.
    found: BTreeMap<String, Vec<Binary>>,
}

#[derive(Debug)]
struct Binary {
    path: PathBuf,
    side: Side,
}

impl Binaries {
    /// Searches the directories.
    ///
    /// # Errors
    ///
    /// One of them cannot be read. Unreadable directories below them are skipped.
    pub fn below(roots: &[impl AsRef<Path>]) -> io::Result<Self> {
        let mut binaries = Self::default();
        for root in roots {
            let root = root.as_ref();
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", root.display()))
            };
            let root = fs::canonicalize(root).map_err(named)?;
            let side = root.file_name().map_or(Side::Any, side_of_directory);
            binaries.walk(&root, side, DEPTH).map_err(named)?;
        }
        Ok(binaries)
    }

    /// Best program of a sample for a side.
    pub fn find(&self, library: &str, sample: &str, side: Side) -> Option<&Path> {
        // If the side matters, a program for the other side is not used: the sample would only report an error.
        let rank = |binary: &Binary| match (side, binary.side) {
            (wanted, built) if wanted == built => Some(0),
            (Side::Any, Side::Host) | (Side::Host | Side::Dpu, Side::Any) => Some(1),
            (Side::Any, _) => Some(2),
            _ => None,
        };
        [format!("doca_{sample}"), format!("{library}_{sample}")]
            .iter()
            .filter_map(|name| self.found.get(name))
            .flatten()
            .filter_map(|binary| Some((rank(binary)?, binary)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, binary)| binary.path.as_path())
    }

    fn walk(&mut self, directory: &Path, side: Side, depth: usize) -> io::Result<()> {
        let mut entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() && depth > 0 {
                let below = match side_of_directory(&name) {
                    Side::Any => side,
                    marked => marked,
                };
                // An unreadable directory of another user must not end the search.
                let _ = self.walk(&path, below, depth - 1);
            } else if let Some(name) = name.to_str()
                && is_program(&path, kind)
            {
                self.add(name, path, side);
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, path: PathBuf, side: Side) {
        let (name, side) = if let Some(name) = name.strip_prefix("dpu_") {
            (name, Side::Dpu)
        } else if let Some(name) = name.strip_prefix("host_") {
            (name, Side::Host)
        } else {
            (name, side)
        };
        if name.starts_with("doca_") {
            let binary = Binary { path, side };
            self.found.entry(name.to_owned()).or_default().push(binary);
        }
    }
}

/// Side for which a directory's programs are built, by its name: `build-dpu`, `host`.
fn side_of_directory(name: &OsStr) -> Side {
    let name = name.to_string_lossy();
    // The name of a sample's own directory does not indicate the side: doca_dma/dma_copy_dpu.
    if name.starts_with("dma_copy_") {
        return Side::Any;
    }
    let mut words = name.split(['-', '_', '.']);
    words
        .find_map(|word| match word.to_ascii_lowercase().as_str() {
            "dpu" => Some(Side::Dpu),
            "host" => Some(Side::Host),
            _ => None,
        })
        .unwrap_or(Side::Any)
}

/// Returns `true` for an executable file, or a link to one.
fn is_program(path: &Path, kind: FileType) -> bool {
    (kind.is_file() || kind.is_symlink())
        && fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        fs::write(&path, "").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    }

    fn found<'b>(binaries: &'b Binaries, root: &Path, sample: &str, side: Side) -> Option<&'b str> {
        let path = binaries.find("doca_dma", sample, side)?;
        path.strip_prefix(root).ok()?.to_str()
    }

    #[test]
    fn layouts_of_builds_are_known() {
        let root = tempfile::tempdir().expect("a directory");
        let root = fs::canonicalize(root.path()).expect("a path");
        program(&root, "doca_dma_dma_local_copy");
        program(&root, "dpu_doca_dma_dma_local_copy");
        program(&root, "build-dpu/samples/doca_dma_copy_dpu");
        program(&root, "doca_dma/dma_copy_host/build/doca_dma_copy_host");
        fs::write(root.join("doca_dma_no_program"), "").expect("a file");
        let binaries = Binaries::below(&[&root]).expect("a search");

        let local = |side| found(&binaries, &root, "dma_local_copy", side);
        assert_eq!(local(Side::Dpu), Some("dpu_doca_dma_dma_local_copy"));
        assert_eq!(local(Side::Host), Some("doca_dma_dma_local_copy"));
        assert_eq!(local(Side::Any), Some("doca_dma_dma_local_copy"));

        let dpu = |side| found(&binaries, &root, "dma_copy_dpu", side);
        assert_eq!(dpu(Side::Dpu), Some("build-dpu/samples/doca_dma_copy_dpu"));
        assert_eq!(dpu(Side::Host), None, "built for the other side");
        assert!(dpu(Side::Any).is_some());

        let host = "doca_dma/dma_copy_host/build/doca_dma_copy_host";
        assert_eq!(
            found(&binaries, &root, "dma_copy_host", Side::Host),
            Some(host)
        );
        assert_eq!(found(&binaries, &root, "no_program", Side::Any), None);
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Binaries::below(&["/nowhere/at/all"]).expect_err("nothing to search");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
