//! Initial data of the storage: a `.sbc` file, a plain file, or zeros.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use control::Failure;
use doca::ErrorCode;
use wire::control::StorageDetails;
use wire::sbc;

/// Bytes copied from a file at a time.
const PIECE: usize = 1 << 20;

/// Size and number of the storage's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes per block, at least 1.
    pub block_size: u32,
    /// Number of blocks, at least 1.
    pub block_count: u32,
}

impl Geometry {
    /// Capacity in bytes.
    #[must_use]
    pub fn capacity(self) -> u64 {
        u64::from(self.block_size) * u64::from(self.block_count)
    }

    /// The geometry as in a response to a query.
    #[must_use]
    pub fn details(self) -> StorageDetails {
        StorageDetails {
            total_size: self.capacity(),
            block_size: self.block_size,
        }
    }
}

/// Initial data as selected by the flags, not yet read.
#[derive(Debug)]
pub struct Content {
    /// Geometry of the file, if it contains one, otherwise of the flags.
    pub geometry: Geometry,
    source: Option<Source>,
}

#[derive(Debug)]
struct Source {
    file: File,
    name: String,
}

impl Content {
    /// Determines the format of the file, if there is one, and checks it against `flags`, the geometry of the flags.
    ///
    /// # Errors
    ///
    /// The file cannot be read, has an invalid header, or does not match the geometry.
    pub fn open(file: Option<&Path>, flags: Geometry) -> Result<Self, Failure> {
        let Some(path) = file else {
            return Ok(Self {
                geometry: not_empty(flags, "--block-size and --block-count")?,
                source: None,
            });
        };
        let name = format!("--binary-content {}", path.display());
        let failed = |error: io::Error| io_failure(&name, &error);
        // Checked before opening, because opening a pipe blocks until it has a writer.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Failure::invalid(format!("{name}: expected a regular file")));
        }
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut start = Vec::with_capacity(sbc::HEADER_SIZE);
        (&mut file)
            .take(sbc::HEADER_SIZE as u64)
            .read_to_end(&mut start)
            .map_err(failed)?;
        let (header_size, geometry) = if start.starts_with(&sbc::MAGIC.to_be_bytes()) {
            let header =
                sbc::Header::parse(&start).map_err(|error| Failure::from(error).context(&name))?;
            let geometry = Geometry {
                block_size: header.block_size,
                block_count: header.block_count,
            };
            (sbc::HEADER_SIZE as u64, not_empty(geometry, &name)?)
        } else {
            (0, not_empty(flags, "--block-size and --block-count")?)
        };

        let came = metadata.len() - header_size.min(metadata.len());
        let expected = geometry.capacity();
        let Geometry {
            block_size,
            block_count,
        } = geometry;
        if came < expected || (came > expected && header_size == 0) {
            return Err(Failure::invalid(format!(
                "{name}: expected {expected} bytes of content for {block_count} blocks of {block_size} bytes, found {came}"
            )));
        }
        if came > expected {
            tracing::warn!(
                "{name}: {} bytes after the last block are ignored",
                came - expected
            );
        }
        file.seek(SeekFrom::Start(header_size)).map_err(failed)?;
        Ok(Self {
            geometry,
            source: Some(Source { file, name }),
        })
    }

    /// Passes the data to `write`, in pieces with their offsets. Without a file there are no pieces: the blocks are
    /// zeros.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has shrunk. Some pieces may already have been passed.
    pub fn copy_to(self, mut write: impl FnMut(u64, &[u8])) -> Result<(), Failure> {
        let Some(Source { mut file, name }) = self.source else {
            return Ok(());
        };
        let capacity = self.geometry.capacity();
        let mut piece = vec![0; PIECE.min(usize::try_from(capacity).unwrap_or(PIECE))];
        let mut offset = 0;
        while offset < capacity {
            let length = usize::try_from(capacity - offset)
                .map_or(piece.len(), |left| left.min(piece.len()));
            file.read_exact(&mut piece[..length])
                .map_err(|error| io_failure(&name, &error))?;
            write(offset, &piece[..length]);
            offset += length as u64;
        }
        Ok(())
    }
}

fn not_empty(geometry: Geometry, from: &str) -> Result<Geometry, Failure> {
    if geometry.capacity() == 0 {
        let Geometry {
            block_size,
            block_count,
        } = geometry;
        return Err(Failure::invalid(format!(
            "{from}: expected at least one block of at least one byte, found {block_count} blocks of {block_size} bytes"
        )));
    }
    Ok(geometry)
}

pub(crate) fn io_failure(name: &str, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::NOT_FOUND,
        io::ErrorKind::PermissionDenied => ErrorCode::NOT_PERMITTED,
        _ => ErrorCode::IO_FAILED,
    };
    Failure::new(code, format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const FLAGS: Geometry = Geometry {
        block_size: 4,
        block_count: 3,
    };

    fn open(bytes: &[u8]) -> Result<Content, Failure> {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(bytes).expect("written");
        Content::open(Some(file.path()), FLAGS)
    }

    fn read(content: Content) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(content.geometry.capacity()).expect("small")];
        let copied = content.copy_to(|offset, piece| {
            let offset = usize::try_from(offset).expect("small");
            bytes[offset..offset + piece.len()].copy_from_slice(piece);
        });
        copied.expect("read");
        bytes
    }

    fn sbc(block_size: u32, block_count: u32, content: &[u8]) -> Vec<u8> {
        [
            &sbc::Header {
                block_size,
                block_count,
            }
            .emit(),
            content,
        ]
        .concat()
    }

    #[test]
    fn without_a_file_flags_set_the_geometry_and_blocks_are_zero() {
        let content = Content::open(None, FLAGS).expect("content");
        assert_eq!(content.geometry, FLAGS);
        assert_eq!(read(content), [0; 12]);
        let empty = Geometry {
            block_size: 0,
            ..FLAGS
        };
        assert!(
            Content::open(None, empty)
                .expect_err("empty")
                .message
                .contains("--block-size")
        );
    }

    #[test]
    fn sbc_file_sets_the_geometry() {
        let content = open(&sbc(2, 2, b"abcd")).expect("content");
        assert_eq!(
            content.geometry,
            Geometry {
                block_size: 2,
                block_count: 2
            }
        );
        assert_eq!(read(content), b"abcd");
        assert_eq!(
            read(open(&sbc(2, 2, b"abcdefg")).expect("content")),
            b"abcd",
            "as the reference, ignore more"
        );
    }

    #[test]
    fn plain_file_must_have_the_exact_size() {
        assert_eq!(
            read(open(b"0123456789ab").expect("content")),
            b"0123456789ab"
        );
        for wrong in [&b""[..], b"0123456789a", b"0123456789abc"] {
            let failure = open(wrong).expect_err("size");
            for size in [12, wrong.len()] {
                assert!(failure.message.contains(&size.to_string()), "{failure}");
            }
        }
    }

    #[test]
    fn large_file_is_copied_in_pieces() {
        let bytes: Vec<u8> = (0..3 * PIECE as u32 + 5).map(|n| (n % 251) as u8).collect();
        let block_count = u32::try_from(bytes.len()).expect("small");
        assert_eq!(
            read(open(&sbc(1, block_count, &bytes)).expect("content")),
            bytes
        );
    }

    #[test]
    fn broken_sbc_files_are_refused() {
        let cut = &sbc(2, 2, b"abc");
        assert!(open(cut).expect_err("cut").message.contains(" 4 bytes"));
        assert!(
            open(&cut[..10])
                .expect_err("cut header")
                .message
                .contains("sbc")
        );
        assert!(open(&sbc(0, 7, b"")).is_err());
        let huge = open(&sbc(u32::MAX, u32::MAX, b"")).expect_err("over the limit");
        assert!(huge.message.contains("2147483648"), "{huge}");
    }

    #[test]
    fn pipe_is_refused_without_blocking() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let (sender, receiver) = std::sync::mpsc::channel();
        let opened = path.clone();
        std::thread::spawn(move || sender.send(Content::open(Some(&opened), FLAGS)));
        let content = receiver.recv_timeout(std::time::Duration::from_secs(10));
        let failure = content.expect("an answer").expect_err("a pipe");
        assert_eq!(failure.code, ErrorCode::INVALID_VALUE);
        let path = path.display().to_string();
        assert!(failure.message.contains(&path), "{failure}");
    }

    #[test]
    fn error_for_a_missing_file_has_its_path() {
        let failure = Content::open(Some(Path::new("/no/such/file")), FLAGS).expect_err("missing");
        assert_eq!(failure.code, ErrorCode::NOT_FOUND);
        assert!(failure.message.contains("/no/such/file"), "{failure}");
        assert!(Content::open(Some(Path::new("/")), FLAGS).is_err());
    }
}
