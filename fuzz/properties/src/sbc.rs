//! Initial content of a target: `.sbc` files, and plain files.

use arbitrary::{Arbitrary, Result, Unstructured};
use role_target::content::{Content, Geometry};
use wire::sbc::{HEADER_SIZE, Header, MAGIC, MAX_CONTENT};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// A file, and the flags of the target that reads it.
#[derive(Debug, Clone)]
pub struct Input {
    block_size: u32,
    block_count: u32,
    file: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
struct Parts {
    header: Option<(u32, u32)>,
    content: Vec<u8>,
    /// Number of repetitions of the content, so that its length can match the header.
    repeat: u8,
    damage: Vec<Damage>,
}

/// The encoding is one byte for the kind and one for each flag, followed by the bytes of the file, so that a file can
/// be used as an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = u.int_in_range(0..=3)?;
        let (block_size, block_count) = if kind & 1 == 0 {
            // Small enough for a file of that size.
            (u.arbitrary::<u8>()?.into(), u.arbitrary::<u8>()?.into())
        } else {
            u.arbitrary()?
        };
        let file = if kind < 2 {
            rest(u)?
        } else {
            let parts: Parts = u.arbitrary()?;
            parts.file()
        };
        Ok(Self {
            block_size,
            block_count,
            file,
        })
    }
}

impl Parts {
    fn file(&self) -> Vec<u8> {
        let repeat = self.repeat % 16;
        let content = self.content.repeat(repeat.into());
        let mut file = Vec::new();
        if let Some((block_size, block_count)) = self.header {
            // Half of the headers match the content.
            let header = match block_size % 4 {
                0 | 1 => Header {
                    block_size: repeat.into(),
                    block_count: u32::try_from(self.content.len()).unwrap_or(u32::MAX),
                },
                2 => Header {
                    block_size: block_size >> 29,
                    block_count: block_count >> 29,
                },
                _ => Header {
                    block_size,
                    block_count,
                },
            };
            file.extend(header.emit());
        }
        file.extend(content);
        spoil(&mut file, &self.damage);
        file
    }
}

/// A file is refused, or its whole content is passed on once and in order; memory is bounded by the file's size,
/// regardless of its header.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    header(&input.file);
    let counting = Counting::of(".sbc file or plain content");
    let flags = Geometry {
        block_size: input.block_size,
        block_count: input.block_count,
    };
    let expected = content(&input.file, flags);
    harness::with_file(&input.file, |path| {
        // Names and messages are short; a piece is no longer than the content.
        let limit = 4096 + 8 * path.as_os_str().len() + input.file.len();
        let mut at = 0;
        let came = harness::within_memory(limit, "loading content", || {
            let content = Content::open(Some(path), flags).ok()?;
            let geometry = content.geometry;
            let copied = content.copy_to(|offset, piece| {
                let (expected, _) = expected.as_ref().expect("content that is to be refused");
                assert_eq!(offset, at, "pieces come in order");
                let place = at as usize;
                assert_eq!(piece, &expected[place..place + piece.len()]);
                at += piece.len() as u64;
            });
            copied.ok().map(|()| geometry)
        });
        assert_eq!(came, expected.as_ref().map(|(_, geometry)| *geometry));
        assert_eq!(at, expected.map_or(0, |(content, _)| content.len() as u64));
    });
    counting.done(expected.is_some());
}

/// The content of a file, according to the file format.
fn content(file: &[u8], flags: Geometry) -> Option<(&[u8], Geometry)> {
    let whole = |geometry: Geometry| {
        let size = u128::from(geometry.block_size) * u128::from(geometry.block_count);
        usize::try_from(size).ok().filter(|size| *size != 0)
    };
    let Some(rest) = file.strip_prefix(&MAGIC.to_be_bytes()) else {
        let size = whole(flags)?;
        return (file.len() == size).then_some((file, flags));
    };
    let (block_size, rest) = rest.split_first_chunk()?;
    let (block_count, rest) = rest.split_first_chunk()?;
    let geometry = Geometry {
        block_size: u32::from_be_bytes(*block_size),
        block_count: u32::from_be_bytes(*block_count),
    };
    let size = whole(geometry)?;
    let accepted = size as u64 <= MAX_CONTENT;
    Some((rest.get(..size).filter(|_| accepted)?, geometry))
}

fn header(file: &[u8]) {
    let counting = Counting::of(".sbc header");
    let header = harness::within_memory(0, "reading a header", || Header::parse(file));
    if let Ok(header) = &header {
        assert_eq!(header.emit(), file[..HEADER_SIZE]);
        assert!(header.content_size() <= MAX_CONTENT);
        assert_ne!(header.block_size, 0);
    }
    counting.done(header.is_ok());
}
