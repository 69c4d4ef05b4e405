//! What the initiator sees of the targets.

use super::*;

fn targets(total_size: u64, block_size: u32) -> [StorageDetails; 3] {
    [0; 3].map(|_| StorageDetails {
        total_size,
        block_size,
    })
}

#[test]
fn flushes_are_announced_when_all_targets_have_them() {
    use wire::control::FEATURE_FLUSH;
    for (targets, expected) in [
        (&[FEATURE_FLUSH; 3][..], FEATURE_FLUSH),
        (&[FEATURE_FLUSH; 2], FEATURE_FLUSH),
        (&[FEATURE_FLUSH, 0, FEATURE_FLUSH], 0),
        (&[0; 3], 0),
    ] {
        let features = Striped::default().features(targets) & Striped::FEATURES;
        assert_eq!(features, expected, "{targets:?}");
    }
}

#[test]
fn blocks_are_twice_as_large_and_as_many() {
    let seen = Striped::default().present(&targets(1 << 20, 2048));
    let expected = StorageDetails {
        total_size: 2 << 20,
        block_size: 4096,
    };
    assert_eq!(seen, Ok(expected));
}

#[test]
fn a_logical_block_size_hides_what_is_stored() {
    let layout = Striped {
        logical_block_size: Some(4096),
    };
    let seen = layout.present(&targets(2112 * 100, 2112));
    let expected = StorageDetails {
        total_size: 4096 * 100,
        block_size: 4096,
    };
    assert_eq!(seen, Ok(expected));
    let failure = layout
        .present(&targets(2048 * 100, 2048))
        .expect_err("too small");
    assert!(
        failure.message.contains("at least 2112 bytes, 2048 came"),
        "{failure}"
    );
}

#[test]
fn half_blocks_that_cannot_be_encoded_are_refused() {
    for wrong in [0, 100, 1 << 31] {
        let failure = Striped::default()
            .present(&targets(1 << 40, wrong))
            .expect_err("refused");
        assert_eq!(failure.code, ErrorCode::NOT_SUPPORTED);
        assert!(failure.message.contains("a multiple of 64"), "{failure}");
    }
}

#[test]
fn a_capacity_that_cannot_be_doubled_is_refused() {
    let failure = Striped::default()
        .present(&targets(!2047, 2048))
        .expect_err("too much");
    assert!(failure.message.contains("capacity"), "{failure}");
}
