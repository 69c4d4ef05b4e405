//! Files of the conversion: the input, read block by block, and the three output files, which are renamed to their
//! final names together once they are complete.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use control::Failure;
use role_formats::stored_block::Geometry;
use tempfile::NamedTempFile;
use wire::sbc;

use crate::io_failure;

/// Size of a read from the file in bytes, if blocks are smaller.
const READ_AHEAD: usize = 1 << 20;

/// An input file, split into blocks, the last of which is padded with zeros.
#[derive(Debug)]
pub(crate) struct Input {
    name: String,
    reader: BufReader<File>,
    /// Bytes not yet read.
    left: u64,
    block: Vec<u8>,
    block_count: u32,
}

impl Input {
    /// Opens the file, and checks that its half blocks fit into a `.sbc` file.
    pub(crate) fn open(path: &Path, geometry: Geometry) -> Result<Self, Failure> {
        let name = format!("--original-input-data {}", path.display());
        let failed = |error| io_failure(&name, &error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::invalid(format!("{name}: expected a regular file")));
        }
        let block_count =
            block_count(metadata.len(), geometry).map_err(|failure| failure.context(&name))?;
        Ok(Self {
            name,
            reader: BufReader::with_capacity(READ_AHEAD, file),
            left: metadata.len(),
            block: vec![0; geometry.logical_block_size as usize],
            block_count,
        })
    }

    /// Number of blocks, at least 1.
    pub(crate) fn block_count(&self) -> u32 {
        self.block_count
    }

    /// Returns the next block, of logical block size. May be called [`block_count`](Self::block_count) times.
    pub(crate) fn next_block(&mut self) -> Result<&[u8], Failure> {
        let length =
            usize::try_from(self.left).map_or(self.block.len(), |left| left.min(self.block.len()));
        self.reader
            .read_exact(&mut self.block[..length])
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Failure::unexpected(format!(
                    "{}: the file became shorter while it was read; run the generator again while no other process writes the file",
                    self.name
                )),
                _ => io_failure(&self.name, &error),
            })?;
        self.block[length..].fill(0);
        self.left -= length as u64;
        Ok(&self.block)
    }
}

fn block_count(length: u64, geometry: Geometry) -> Result<u32, Failure> {
    if length == 0 {
        return Err(Failure::invalid(
            "expected content for at least one block, the file is empty",
        ));
    }
    let block_size = geometry.logical_block_size;
    let blocks = length.div_ceil(u64::from(block_size));
    // Each file has half of each stored block.
    let largest = sbc::MAX_CONTENT / u64::from(geometry.half_block_size());
    match u32::try_from(blocks) {
        Ok(count) if blocks <= largest => Ok(count),
        _ => Err(Failure::invalid(format!(
            "expected at most {largest} blocks of {block_size} bytes, since a .sbc file holds at most {} bytes of content, \
             found {blocks}; split the file, or store its first part only",
            sbc::MAX_CONTENT
        ))),
    }
}

/// Size of a write to a file in bytes.
const BUFFER: usize = 256 << 10;

/// A file to create: the flag that names it, and its path.
type Named<'a> = (&'static str, &'a Path);

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
    /// Creates temporary files beside the final paths, with `header`. The paths must differ from `input` and from each
    /// other.
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

    /// Moves the files to their final paths. All of them are durable before the first one is moved.
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
/// need not exist; files that are not regular (such as devices, which a rename would remove) are refused.
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
    use std::io::Write as _;

    use super::*;

    fn blocks(length: u64, block_size: u32) -> Result<u32, Failure> {
        block_count(length, Geometry::compatible(block_size))
    }

    #[test]
    fn last_block_is_padded_with_zeros() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[9; 300]).expect("written");
        let mut input = Input::open(file.path(), Geometry::compatible(256)).expect("opened");
        assert_eq!(input.block_count(), 2);
        assert_eq!(input.next_block().expect("full"), [9; 256]);
        let mut expected = [0; 256];
        expected[..44].fill(9);
        assert_eq!(input.next_block().expect("filled up"), expected);
    }

    #[test]
    fn shrinking_file_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[9; 512]).expect("written");
        let mut input = Input::open(file.path(), Geometry::compatible(256)).expect("opened");
        file.as_file().set_len(300).expect("shrunk");
        input.next_block().expect("the first is whole");
        let failure = input.next_block().expect_err("the second is not");
        // An error of the system has another code.
        assert_eq!(failure.code, doca::ErrorCode::UNEXPECTED, "{failure}");
        let path = file.path().display().to_string();
        assert!(failure.message.contains(&path), "{failure}");
    }

    #[test]
    fn set_has_at_least_one_block_and_at_most_2_gib_per_file() {
        assert_eq!(blocks(1, 4096), Ok(1));
        assert_eq!(blocks(4096, 4096), Ok(1));
        assert_eq!(blocks(4097, 4096), Ok(2));
        assert_eq!(blocks(4 << 30, 4096), Ok(1 << 20));
        assert_eq!(blocks(4 << 30, 128), Ok(1 << 25));
        for wrong in [0, (4 << 30) + 1, u64::MAX] {
            let failure = blocks(wrong, 4096).expect_err("refused");
            assert!(failure.message.starts_with("expected"), "{failure}");
        }
        // A partial block does not fit.
        assert_eq!(blocks(4 << 30, 384), blocks((4 << 30) + 1, 384));
    }

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
            ("a", "a", ["--b ", "--a"]),
            ("in", "b", ["--a ", "--in"]),
            ("a", "link", ["--b ", "--in"]),
        ] {
            let failure = place.create(first, second).expect_err("refused");
            assert!(failure.message.starts_with(flags[0]), "{failure}");
            assert!(failure.message.contains(flags[1]), "{failure}");
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
        assert_eq!(failure.code, doca::ErrorCode::INVALID_VALUE, "{failure}");
        assert!(failure.message.contains("/dev/null"), "{failure}");
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
