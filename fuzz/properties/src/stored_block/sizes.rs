//! Sizes of stored blocks.

use role_common::stored_block::{
    Checksum, Encoder, Geometry, OVERHEAD, STORED_ALIGNMENT, Verdict, inspect, logical_block_size,
};

use super::PLACE;
use super::judgement::decompress;

/// The sizes that are chosen are enough, and not too much; the flag accepts the same.
pub(super) fn property(stored: u32, logical: u32, text: &str) {
    match Geometry::for_logical(logical) {
        Some(geometry) => {
            assert!(geometry.holds_any_content());
            assert!(geometry.stored_block_size.is_multiple_of(STORED_ALIGNMENT));
            let smaller = Geometry {
                stored_block_size: geometry.stored_block_size - STORED_ALIGNMENT,
                ..geometry
            };
            assert!(!smaller.holds_any_content(), "{geometry:?} is too large");
            assert_eq!(geometry.half_block_size() * 2, geometry.stored_block_size);
        }
        None => assert!(u64::from(logical) + OVERHEAD as u64 > u64::from(u32::MAX) - (1 << 19)),
    }
    for text in [text, &logical.to_string()] {
        if let Ok(accepted) = logical_block_size(text) {
            assert_ne!(accepted, 0);
            assert!(Geometry::for_logical(accepted).is_some());
            assert_eq!(text.parse(), Ok(accepted));
        }
    }
    let refused = logical_block_size(&logical.to_string()).is_err();
    assert_eq!(
        refused,
        logical == 0 || Geometry::for_logical(logical).is_none()
    );

    // Nobody chooses such sizes. That they are odd is no reason to write behind the end of something.
    let geometry = Geometry {
        stored_block_size: stored % 4096,
        logical_block_size: logical % 4096 + 1,
    };
    let content = vec![0x5a; geometry.logical_block_size as usize];
    match Encoder::new(geometry, Checksum::Crc32c).encode(&content, PLACE) {
        Ok(stored) => {
            let (header, verdict) = inspect(stored, geometry, PLACE).expect("as it was made");
            assert_eq!(verdict, Verdict::Bound);
            assert_eq!(decompress(stored, header, content.len()), Some(content));
        }
        Err(refused) => assert!(!refused.to_string().is_empty() && !geometry.holds_any_content()),
    }
}
