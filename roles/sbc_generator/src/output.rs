//! The three output files, which appear together once they are complete.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use role_common::Failure;
use tempfile::NamedTempFile;
use wire::sbc;

use crate::io_failure;

/// Size of a write to a file in bytes.
const BUFFER: usize = 256 << 10;

/// A file to create: the flag that names it, and its path.
pub(crate) type Named<'a> = (&'static str, &'a Path);

/// A set of `.sbc` files with blocks of equal size and number. If it is dropped before it is complete, no file
/// remains.
#[derive(Debug)]
pub(crate) struct FileSet<const N: usize> {
    files: [SbcFile; N],
}

#[derive(Debug)]
struct SbcFile {
    name: String,
    path: PathBuf,
    writer: BufWriter<NamedTempFile>,
}

impl<const N: usize> FileSet<N> {
    /// Creates temporary files beside the final paths, with `header`. None of the paths may be `input` or one of the others.
    pub(crate) fn create(
        files: [Named<'_>; N],
        input: Named<'_>,
        header: sbc::Header,
    ) -> Result<Self, Failure> {
        let mut known = vec![(input.0, resolve(input)?)];
        for file in files {
            let path = resolve(file)?;
            if let Some((other, _)) = known.iter().find(|(_, other)| *other == path) {
                return Err(Failure::invalid(format!(
                    "{} and {other}: expected different files, both are {}",
                    file.0,
                    path.display()
                )));
            }
            known.push((file.0, path));
        }
        let mut begun = Vec::with_capacity(N);
        for ((flag, path), (_, resolved)) in files.into_iter().zip(known.into_iter().skip(1)) {
            begun.push(SbcFile::create(
                format!("{flag} {}", path.display()),
                resolved,
                header,
            )?);
        }
        Ok(Self {
            files: begun.try_into().expect("one for each"),
        })
    }

    /// Appends a block to each file.
    pub(crate) fn append(&mut self, blocks: [&[u8]; N]) -> Result<(), Failure> {
        for (file, block) in self.files.iter_mut().zip(blocks) {
            let written = file.writer.write_all(block);
            written.map_err(|error| io_failure(&file.name, &error))?;
        }
        Ok(())
    }

    /// Moves the files to their final paths. All of them are durable before the first appears.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let mut complete = Vec::with_capacity(N);
        for SbcFile { name, path, writer } in self.files {
            let synced = writer
                .into_inner()
                .map_err(io::IntoInnerError::into_error)
                .and_then(|file| file.as_file().sync_all().map(|()| file));
            let file = synced.map_err(|error| io_failure(&name, &error))?;
            complete.push((name, path, file));
        }
        for (name, path, file) in complete {
            file.persist(path)
                .map_err(|error| io_failure(&name, &error.error))?;
        }
        Ok(())
    }
}

impl SbcFile {
    fn create(name: String, path: PathBuf, header: sbc::Header) -> Result<Self, Failure> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let file = tempfile::Builder::new()
            .prefix(".sbc-")
            .suffix(".partial")
            // Permissions of a new file: the umask applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)
            .map_err(|error| io_failure(&name, &error))?;
        let mut writer = BufWriter::with_capacity(BUFFER, file);
        writer
            .write_all(&header.emit())
            .map_err(|error| io_failure(&name, &error))?;
        Ok(Self { name, path, writer })
    }
}

/// Resolves links, so that a link's target is replaced and not the link, and equal files have equal paths. The file
/// need not exist; anything but a regular file (such as a device, which a rename would remove) is refused.
fn resolve((flag, path): Named<'_>) -> Result<PathBuf, Failure> {
    let name = || format!("{flag} {}", path.display());
    match fs::canonicalize(path) {
        Ok(resolved) if resolved.is_file() => Ok(resolved),
        Ok(_) => Err(Failure::invalid(format!(
            "{}: expected a regular file, or a name for a new one",
            name()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = path.file_name().ok_or_else(|| {
                Failure::invalid(format!("{}: expected the name of a file", name()))
            })?;
            let directory = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            fs::canonicalize(directory)
                .map(|directory| directory.join(file))
                .map_err(|error| io_failure(name(), &error))
        }
        Err(error) => Err(io_failure(name(), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: sbc::Header = sbc::Header {
        block_size: 4,
        block_count: 1,
    };

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().expect("a directory"));
            fs::write(place.path("in"), b"content").expect("written");
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn create(&self, first: &str, second: &str) -> Result<FileSet<2>, Failure> {
            FileSet::create(
                [("--a", &self.path(first)), ("--b", &self.path(second))],
                ("--in", &self.path("in")),
                HEADER,
            )
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(self.0.path())
                .expect("readable")
                .map(|entry| {
                    entry
                        .expect("entry")
                        .file_name()
                        .into_string()
                        .expect("text")
                })
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn files_appear_together_and_replace_old_ones() {
        let place = Place::new();
        fs::write(place.path("b"), b"old").expect("written");
        let mut set = place.create("a", "b").expect("begun");
        set.append([b"1234", b"5678"]).expect("written");
        assert!(!place.path("a").exists());
        assert_eq!(fs::read(place.path("b")).expect("old"), b"old");
        set.finish().expect("finished");
        let header = [
            0xDE, 0xAD, 0xF0, 0x0D, 0x13, 0x37, 0xFA, 0xDE, 0, 0, 0, 4, 0, 0, 0, 1,
        ];
        for (name, content) in [("a", b"1234"), ("b", b"5678")] {
            let bytes = fs::read(place.path(name)).expect("there");
            assert_eq!(bytes, [&header[..], content].concat());
        }
        assert_eq!(place.names(), ["a", "b", "in"]);
    }

    #[test]
    fn unfinished_set_leaves_no_files() {
        let place = Place::new();
        let mut set = place.create("a", "b").expect("begun");
        set.append([b"1234", b"5678"]).expect("written");
        assert_eq!(place.names().len(), 3);
        drop(set);
        assert_eq!(place.names(), ["in"]);
    }

    #[test]
    fn output_paths_must_differ_from_each_other_and_the_input() {
        let place = Place::new();
        std::os::unix::fs::symlink(place.path("in"), place.path("link")).expect("a link");
        for (first, second, flags) in [
            ("a", "a", "--b and --a"),
            ("in", "b", "--a and --in"),
            ("a", "link", "--b and --in"),
        ] {
            let failure = place.create(first, second).expect_err("refused");
            assert!(failure.message.starts_with(flags), "{failure}");
        }
        assert_eq!(place.names(), ["in", "link"]);
    }

    #[test]
    fn invalid_output_paths_are_refused() {
        let place = Place::new();
        for wrong in ["missing/a", ".", "in/a"] {
            let failure = place.create(wrong, "b").expect_err("refused");
            assert!(failure.message.starts_with("--a "), "{failure}");
        }
        let device = FileSet::create(
            [("--a", Path::new("/dev/null"))],
            ("--in", &place.path("in")),
            HEADER,
        );
        let failure = device.expect_err("a device");
        assert!(failure.message.contains("regular file"), "{failure}");
        assert_eq!(place.names(), ["in"]);
    }

    #[test]
    fn symbolic_link_is_kept_and_its_target_replaced() {
        let place = Place::new();
        fs::write(place.path("real"), b"old").expect("written");
        std::os::unix::fs::symlink("real", place.path("link")).expect("a link");
        let mut set = place.create("link", "b").expect("begun");
        set.append([b"1234", b"5678"]).expect("written");
        set.finish().expect("finished");
        assert!(place.path("link").is_symlink());
        assert_eq!(fs::read(place.path("real")).expect("there")[16..], *b"1234");
    }
}
