//! Initial data of the storage, made from a real file.

use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use role_common::stored_block::{Checksum, Encoder, Geometry, Place};
use role_common::superblock::SetId;

use super::{Error, Options};

/// Smallest storage worth measuring, in bytes.
const SMALLEST_STORAGE: u64 = 1 << 20;
/// Minimum number of I/Os per worker.
const IOS_PER_WORKER: u64 = 8;
/// The same for gga deployments with large I/Os, which compress all data in every session.
const LARGE_IOS_PER_WORKER: u64 = 2;
/// Total size in bytes of one I/O per worker from which on I/Os count as large.
const LARGE_IOS: u64 = 4 << 20;
/// Maximum size of a `.sbc` file's data, and so of the demo's storage.
const LARGEST_STORAGE: u64 = 2 << 30;

/// Default for `--content`: a real file of about 100 KB, embedded in the program.
const BUNDLED: &[u8] = include_bytes!("../../../Cargo.lock");
const BUNDLED_NAME: &str = "the bundled text";

/// File with the data of the storage.
#[derive(Debug)]
pub struct Content {
    /// Name of the source file, or of the embedded one.
    pub source: PathBuf,
    /// Size of the source in bytes.
    pub source_len: u64,
    /// File loaded by target and initiator: the source, repeated and padded to whole I/Os.
    pub path: PathBuf,
    /// Size of the storage in bytes.
    pub capacity: u64,
    /// `true` if each block fits in a stored block of the same size. Checked for gga deployments only.
    pub compresses: bool,
}

impl Content {
    /// Writes the storage's data into `directory`.
    ///
    /// A short source is repeated, each copy after a distinct line, so that no two blocks are equal.
    pub fn prepare(options: &Options, directory: &Path) -> Result<Self, Error> {
        let (source, bytes) = match &options.content {
            None => (PathBuf::from(BUNDLED_NAME), BUNDLED.to_vec()),
            Some(source) => {
                let mut bytes = Vec::new();
                std::fs::File::open(source)
                    .and_then(|file| file.take(LARGEST_STORAGE + 1).read_to_end(&mut bytes))
                    .map_err(Error::io(format!("--content {}", source.display())))?;
                (source.clone(), bytes)
            }
        };
        if bytes.is_empty() {
            return Err(Error::Options(format!(
                "--content {}: expected a file with content, it is empty",
                source.display()
            )));
        }

        let io_size = u64::from(options.block_size) * u64::from(options.blocks_per_io);
        let source_len = bytes.len() as u64;
        let one_each = io_size * u64::from(options.workers);
        let for_workers = match one_each * IOS_PER_WORKER {
            large if large > LARGE_IOS && options.layout.has_gga() => {
                one_each * LARGE_IOS_PER_WORKER
            }
            enough => enough,
        };
        let at_least = source_len.max(SMALLEST_STORAGE).max(for_workers);
        let capacity = at_least.next_multiple_of(io_size);
        if capacity > LARGEST_STORAGE {
            return Err(Error::Options(format!(
                "{} bytes of content in I/Os of {io_size} bytes for {} workers need a storage of {capacity} bytes; \
                 at most {LARGEST_STORAGE} are supported: use a smaller file, smaller blocks or fewer workers",
                source_len, options.workers
            )));
        }
        let path = directory.join("content.bin");
        write_repeated(&path, &bytes, capacity)
            .map_err(Error::io(format!("write {}", path.display())))?;
        let compresses = !options.layout.has_gga()
            || compresses(&path, options.block_size)
                .map_err(Error::io(format!("read {}", path.display())))?;
        Ok(Self {
            source,
            source_len,
            path,
            capacity,
            compresses,
        })
    }
}

/// Returns `true` if each block of the file, whose size is a multiple of the block size, fits in a stored block of the
/// same size.
fn compresses(path: &Path, block_size: u32) -> std::io::Result<bool> {
    let mut file = std::fs::File::open(path)?;
    let mut block = vec![0; block_size as usize];
    let mut encoder = Encoder::new(Geometry::compatible(block_size), Checksum::Off);
    let blocks = file.metadata()?.len() / u64::from(block_size);
    for _ in 0..blocks {
        file.read_exact(&mut block)?;
        // The size does not depend on the place.
        let place = Place {
            set: SetId::NONE,
            stripe: 0,
        };
        if encoder.encode(&block, place).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_repeated(path: &Path, source: &[u8], capacity: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let mut left = capacity;
    let mut write = |bytes: &[u8]| {
        let part = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        left -= part.len() as u64;
        file.write_all(part).map(|()| left)
    };
    let mut copies = 1u64;
    while write(source)? > 0 {
        copies += 1;
        write(format!("\n==== copy {copies} ====\n").as_bytes())?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_repeated_to_whole_ios_with_distinct_blocks() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("source");
        std::fs::write(&source, [7; 4096]).expect("a file");
        let options = Options {
            content: Some(source),
            blocks_per_io: 3,
            ..Options::default()
        };
        let content = Content::prepare(&options, directory.path()).expect("content");
        let bytes = std::fs::read(&content.path).expect("the file");
        assert_eq!(bytes.len() as u64, content.capacity);
        assert_eq!(content.capacity % (3 * 4096), 0);
        assert!(content.capacity >= SMALLEST_STORAGE);
        assert_eq!(bytes[..4096], [7; 4096]);
        let blocks: std::collections::HashSet<&[u8]> = bytes.chunks(4096).collect();
        assert_eq!(blocks.len(), bytes.len() / 4096);
    }

    #[test]
    fn missing_empty_and_oversized_content_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let empty = directory.path().join("empty");
        std::fs::write(&empty, []).expect("a file");
        let prepare = |options: Options| {
            Content::prepare(&options, directory.path())
                .expect_err("refused")
                .to_string()
        };
        let with = |content: &Path| Options {
            content: Some(content.to_owned()),
            ..Options::default()
        };
        assert!(prepare(with(&empty)).contains("it is empty"));
        assert!(prepare(with(Path::new("/no/such/file"))).contains("/no/such/file"));
        let huge = Options {
            block_size: 64 << 20,
            blocks_per_io: 255,
            ..Options::default()
        };
        assert!(prepare(huge).contains("at most"));
    }

    #[test]
    fn single_incompressible_block_is_detected() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("content");
        let mut bytes = vec![b' '; 3 * 1024];
        std::fs::write(&path, &bytes).expect("a file");
        assert!(compresses(&path, 1024).expect("read"));
        let mut word = 1u32;
        for byte in &mut bytes[2048..] {
            word = word.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            *byte = (word >> 24) as u8;
        }
        std::fs::write(&path, &bytes).expect("a file");
        assert!(!compresses(&path, 1024).expect("read"));
    }
}
