//! File of a page. It is checked for being writable before the measurements.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Result;

/// Destination of a page. An existing file is kept until a page is complete, and is then replaced atomically.
#[derive(Debug)]
pub(super) struct PageFile {
    path: PathBuf,
    /// The destination if it is a device or a pipe, which cannot be replaced.
    device: Option<File>,
}

impl PageFile {
    /// Checks that a page can be written to `path`.
    pub(super) fn at(path: &Path) -> Result<Self> {
        Self::check(path).map_err(|error| format!("--report {}: {error}", path.display()).into())
    }

    fn check(path: &Path) -> Result<Self> {
        let mut page = Self {
            // A link's target is replaced, and not the link.
            path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            device: None,
        };
        match page.path.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                return Err("expected a file, got a directory".into());
            }
            Ok(metadata) if !metadata.is_file() => {
                page.device = Some(OpenOptions::new().write(true).open(&page.path)?);
            }
            Ok(_) => {
                OpenOptions::new().write(true).open(&page.path)?;
                page.temporary()?;
            }
            Err(_) => drop(page.temporary()?),
        }
        Ok(page)
    }

    /// Replaces the page.
    pub(super) fn write(&self, page: &str) -> Result<()> {
        let wrong = |error| format!("--report {}: {error}", self.path.display());
        match &self.device {
            Some(device) => {
                let mut device: &File = device;
                device.write_all(page.as_bytes()).map_err(wrong)?;
            }
            None => {
                let mut file = self.temporary().map_err(wrong)?;
                file.write_all(page.as_bytes()).map_err(wrong)?;
                file.persist(&self.path)
                    .map_err(|error| wrong(error.error))?;
            }
        }
        Ok(())
    }

    /// Creates a temporary file in the same directory.
    fn temporary(&self) -> std::io::Result<NamedTempFile> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        tempfile::Builder::new()
            .prefix(".bench")
            .suffix(".html")
            // Permissions of a new file: the umask applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_replaces_the_earlier_one_only_when_it_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("page.html");
        std::fs::write(&path, "earlier").expect("written");
        let page = PageFile::at(&path).expect("a place");
        assert_eq!(std::fs::read_to_string(&path).expect("a page"), "earlier");
        page.write("new").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("a page"), "new");
        let files = directory.path().read_dir().expect("a directory").count();
        assert_eq!(files, 1, "nothing else is left there");
    }

    #[test]
    fn unusable_places_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(PageFile::at(directory.path()).is_err());
        assert!(PageFile::at(&directory.path().join("missing/page.html")).is_err());
        let device = PageFile::at(Path::new("/dev/null")).expect("a device");
        device.write("page").expect("written");
        assert!(!Path::new("/dev/null").metadata().expect("there").is_file());
    }
}
