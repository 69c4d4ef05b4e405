//! Raw deflate (RFC 1951), without zlib or gzip headers: compression and decompression.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::error::{Error, Result};
use std::fmt;

/// Result of a task.
#[derive(Clone, Debug)]
pub struct Deflated {
    /// Bytes passed to the sink.
    pub len: usize,
    /// Checksums of the uncompressed data, in either direction.
    pub checksums: DeflateChecksums,
}

/// Bytes passed to the sink at a time.
const PIECE: usize = 64 << 10;

/// Compresses and decompresses; working memory is kept for reuse.
#[derive(Debug, Default)]
pub struct Codec {
    compress: Option<Compress>,
    decompress: Option<Decompress>,
    piece: Vec<u8>,
}

impl Codec {
    /// Compresses and passes the result to `sink` in pieces, at most `room` bytes.
    ///
    /// # Errors
    /// [`Error::IoFailed`] if the result exceeds `room`; the sink's errors. The sink may have received data by then.
    pub fn compress(
        &mut self,
        source: &[u8],
        room: usize,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Deflated> {
        let compress = self
            .compress
            .get_or_insert_with(|| Compress::new(Compression::default(), false));
        compress.reset();
        self.piece.resize(PIECE, 0);
        let (mut taken, mut len) = (0, 0);
        loop {
            let (before_in, before_out) = (compress.total_in(), compress.total_out());
            let status = compress
                .compress(&source[taken..], &mut self.piece, FlushCompress::Finish)
                .map_err(|error| Error::IoFailed.because(format_args!("deflate: {error}")))?;
            taken += (compress.total_in() - before_in) as usize;
            let made = (compress.total_out() - before_out) as usize;
            hand_over(&mut sink, &self.piece[..made], &mut len, room)?;
            match status {
                Status::StreamEnd => break,
                Status::Ok | Status::BufError if made > 0 => {}
                Status::Ok | Status::BufError => {
                    return Err(
                        Error::Unexpected.because("deflate: the compressor makes no progress")
                    );
                }
            }
        }
        let mut checksums = DeflateChecksums::default();
        checksums.update(source);
        Ok(Deflated { len, checksums })
    }

    /// Decompresses and passes the data to `sink` in pieces, at most `room` bytes.
    ///
    /// # Errors
    /// [`Error::IoFailed`] if the source is malformed, truncated, continues after its end, or decompresses to more than
    /// `room` bytes; the sink's errors. The sink may have received data by then.
    pub fn decompress(
        &mut self,
        source: &[u8],
        room: usize,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Deflated> {
        let decompress = self
            .decompress
            .get_or_insert_with(|| Decompress::new(false));
        decompress.reset(false);
        self.piece.resize(PIECE, 0);
        let mut checksums = DeflateChecksums::default();
        let (mut taken, mut len) = (0, 0);
        loop {
            let (before_in, before_out) = (decompress.total_in(), decompress.total_out());
            let status = decompress
                .decompress(&source[taken..], &mut self.piece, FlushDecompress::None)
                .map_err(|error| {
                    Error::IoFailed.because(format_args!("deflate: byte {taken}: {error}"))
                })?;
            let progress = decompress.total_in() - before_in;
            taken += progress as usize;
            let made = (decompress.total_out() - before_out) as usize;
            hand_over(&mut sink, &self.piece[..made], &mut len, room)?;
            checksums.update(&self.piece[..made]);
            match status {
                Status::StreamEnd if taken == source.len() => break,
                Status::StreamEnd => {
                    return Err(Error::IoFailed.because(format_args!(
                        "deflate: the data ends at byte {taken}, the source has {}",
                        source.len()
                    )));
                }
                Status::Ok | Status::BufError if made > 0 || progress > 0 => {}
                Status::Ok | Status::BufError => {
                    return Err(Error::IoFailed.because("deflate: the source is truncated"));
                }
            }
        }
        Ok(Deflated { len, checksums })
    }
}

fn hand_over(
    sink: &mut impl FnMut(&[u8]) -> Result<()>,
    data: &[u8],
    len: &mut usize,
    room: usize,
) -> Result<()> {
    if data.len() > room - *len {
        return Err(Error::IoFailed.because(format_args!(
            "deflate: the result is longer than the destination's {room} bytes"
        )));
    }
    if !data.is_empty() {
        sink(data)?;
        *len += data.len();
    }
    Ok(())
}

/// Running checksums of the uncompressed side of a deflate task.
#[derive(Clone)]
pub struct DeflateChecksums {
    crc32: crc32fast::Hasher,
    adler32: simd_adler32::Adler32,
}

impl Default for DeflateChecksums {
    fn default() -> Self {
        Self {
            crc32: crc32fast::Hasher::new(),
            adler32: simd_adler32::Adler32::new(),
        }
    }
}

impl fmt::Debug for DeflateChecksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeflateChecksums")
            .field("crc32", &self.crc32())
            .field("adler32", &self.adler32())
            .finish()
    }
}

impl DeflateChecksums {
    pub fn update(&mut self, data: &[u8]) {
        self.crc32.update(data);
        self.adler32.write(data);
    }

    /// CRC-32 as in gzip (reflected polynomial 0xedb88320).
    pub fn crc32(&self) -> u32 {
        self.crc32.clone().finalize()
    }

    /// Adler-32 as in zlib.
    pub fn adler32(&self) -> u32 {
        self.adler32.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use proptest::prelude::*;

    use super::*;

    type Direction =
        fn(&mut Codec, &[u8], usize, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Deflated>;
    const COMPRESS: Direction = |codec, source, room, sink| codec.compress(source, room, sink);
    const DECOMPRESS: Direction = |codec, source, room, sink| codec.decompress(source, room, sink);

    fn run(
        codec: &mut Codec,
        direction: Direction,
        source: &[u8],
        room: usize,
    ) -> Result<(Vec<u8>, Deflated)> {
        let mut output = Vec::new();
        let done = direction(codec, source, room, &mut |piece| {
            output.extend_from_slice(piece);
            Ok(())
        })?;
        assert_eq!(done.len, output.len());
        Ok((output, done))
    }

    fn samples() -> Vec<Vec<u8>> {
        let mixed = |at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8;
        vec![
            Vec::new(),
            vec![7],
            b"a line\n".repeat(30_000),
            (0..300_000).map(mixed).collect(),
        ]
    }

    #[test]
    fn decompression_restores_data_and_checksums() {
        let mut codec = Codec::default();
        for data in samples() {
            let (compressed, done) = run(&mut codec, COMPRESS, &data, usize::MAX).unwrap();
            assert_eq!(done.checksums.crc32(), crc32fast::hash(&data));
            let adler32 = simd_adler32::adler32(&data.as_slice());
            assert_eq!(done.checksums.adler32(), adler32);
            let (output, done) = run(&mut codec, DECOMPRESS, &compressed, data.len()).unwrap();
            assert!(output == data);
            assert_eq!(
                (done.checksums.crc32(), done.checksums.adler32()),
                (crc32fast::hash(&data), adler32)
            );
        }
    }

    #[test]
    fn the_format_is_compatible_with_flate2() {
        for data in samples() {
            let (compressed, _) = run(&mut Codec::default(), COMPRESS, &data, usize::MAX).unwrap();
            let mut output = Vec::new();
            flate2::read::DeflateDecoder::new(&compressed[..])
                .read_to_end(&mut output)
                .unwrap();
            assert!(output == data);
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&data).unwrap();
            let source = encoder.finish().unwrap();
            assert!(
                run(&mut Codec::default(), DECOMPRESS, &source, data.len())
                    .unwrap()
                    .0
                    == data
            );
        }
        // A handwritten stored block: final, length 3 and its complement, the bytes.
        let stored = [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
        assert_eq!(
            run(&mut Codec::default(), DECOMPRESS, &stored, 3)
                .unwrap()
                .0,
            b"abc"
        );
    }

    #[test]
    fn results_that_do_not_fit_are_refused() {
        let mut codec = Codec::default();
        for data in samples().into_iter().skip(1) {
            let (compressed, _) = run(&mut codec, COMPRESS, &data, usize::MAX).unwrap();
            for (direction, source, len) in [
                (COMPRESS, &data, compressed.len()),
                (DECOMPRESS, &compressed, data.len()),
            ] {
                assert!(run(&mut codec, direction, source, len).is_ok());
                for room in [0, len / 2, len - 1] {
                    let refused = run(&mut codec, direction, source, room).map(|_| ());
                    assert_eq!(refused, Err(Error::IoFailed), "{len} in {room}");
                }
            }
        }
    }

    #[test]
    fn malformed_sources_are_refused() {
        let mut codec = Codec::default();
        let (compressed, _) =
            run(&mut codec, COMPRESS, &b"a line\n".repeat(100), usize::MAX).unwrap();
        for len in 0..compressed.len() {
            assert!(
                run(&mut codec, DECOMPRESS, &compressed[..len], 10_000).is_err(),
                "{len}"
            );
        }
        let longer = [&compressed[..], &[0]].concat();
        assert_eq!(
            run(&mut codec, DECOMPRESS, &longer, 10_000).map(|_| ()),
            Err(Error::IoFailed)
        );
        // Block type 3 does not exist.
        assert_eq!(
            run(&mut codec, DECOMPRESS, &[7, 0, 0], 10_000).map(|_| ()),
            Err(Error::IoFailed)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_sources_stay_within_the_limit(
            source in proptest::collection::vec(any::<u8>(), 0..200),
            room in 0usize..500,
        ) {
            if let Ok((data, _)) = run(&mut Codec::default(), DECOMPRESS, &source, room) {
                prop_assert!(data.len() <= room);
            }
        }
    }

    /// Check values from the specifications of the algorithms and from the tests of zlib.
    #[test]
    fn known_values() {
        let digits = b"123456789";
        let mut deflate = DeflateChecksums::default();
        assert_eq!((deflate.crc32(), deflate.adler32()), (0, 1));
        digits.chunks(4).for_each(|part| deflate.update(part));
        assert_eq!(
            (deflate.crc32(), deflate.adler32()),
            (0xcbf4_3926, 0x091e_01de)
        );
    }
}
