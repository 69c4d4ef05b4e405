use super::*;

const BLOCK_SIZES: [u32; 6] = [512, 513, 1000, 4096, 4100, 10_000];

fn validator(content: Content, block_size: u32, blocks: usize) -> Validator {
    let region = MemoryRegion::new(block_size as usize * blocks).expect("memory");
    Validator::new(content, region, block_size)
}

fn extent(block_size: u32, local: u64, first: u64, blocks: u32, pass: u32) -> Extent {
    let size = u64::from(block_size);
    Extent {
        local_offset: local * size,
        storage_offset: first * size,
        size: blocks * block_size,
        pass,
    }
}

fn pattern() -> Content {
    Content::Pattern(Pattern::new(77))
}

#[test]
fn filled_memory_verifies() {
    for size in BLOCK_SIZES {
        let mut validator = validator(pattern(), size, 8);
        let place = extent(size, 3, 100, 4, 1);
        validator.fill(place).expect("inside");
        assert_eq!(
            validator.verify(place).expect("inside"),
            None,
            "block size {size}"
        );
    }
}

#[test]
fn flipped_byte_is_reported_with_its_position() {
    for size in BLOCK_SIZES {
        let mut validator = validator(pattern(), size, 4);
        let place = extent(size, 0, 50, 4, 2);
        validator.fill(place).expect("inside");
        let total = u64::from(size) * 4;
        let spots = [
            0,
            1,
            7,
            u64::from(size) - 1,
            u64::from(size),
            u64::from(size) * 3 + 5,
            total - 1,
        ];
        for spot in spots {
            let mut byte = [0];
            validator
                .region
                .read(spot as usize, &mut byte)
                .expect("inside");
            validator
                .region
                .write(spot as usize, &[byte[0] ^ 0x10])
                .expect("inside");
            let found = validator
                .verify(place)
                .expect("inside")
                .expect("a mismatch");
            let expected = Mismatch {
                block: 50 + spot / u64::from(size),
                offset: spot % u64::from(size),
                storage_offset: 50 * u64::from(size) + spot,
                expected: byte[0],
                actual: byte[0] ^ 0x10,
                pass: Some(2),
            };
            assert_eq!(found, expected, "block size {size}");
            validator
                .region
                .write(spot as usize, &byte)
                .expect("inside");
        }
    }
}

#[test]
fn poison_differs_in_every_byte() {
    let plain: Arc<[u8]> = (0..40_000u32).map(|at| (at / 3) as u8).collect();
    for content in [pattern(), Content::Plain(plain)] {
        for size in [512, 1000, 4100] {
            let mut validator = validator(content.clone(), size, 2);
            let place = extent(size, 0, 6, 2, 1);
            validator.fill(place).expect("inside");
            let mut expected = vec![0; size as usize * 2];
            validator.region.read(0, &mut expected).expect("inside");
            validator.poison(place).expect("inside");
            let mut poison = vec![0; size as usize * 2];
            validator.region.read(0, &mut poison).expect("inside");
            assert!(
                poison
                    .iter()
                    .zip(&expected)
                    .all(|(poison, expected)| poison != expected)
            );
        }
    }
}

#[test]
fn data_of_previous_pass_or_other_block_is_detected() {
    let mut validator = validator(pattern(), 4096, 2);
    validator.fill(extent(4096, 0, 5, 1, 1)).expect("inside");
    let replayed = validator
        .verify(extent(4096, 0, 5, 1, 2))
        .expect("inside")
        .expect("a replayed pass");
    assert_eq!((replayed.block, replayed.pass), (5, Some(2)));
    let swapped = validator
        .verify(extent(4096, 0, 6, 1, 1))
        .expect("inside")
        .expect("a swapped block");
    assert_eq!(swapped.block, 6);
}

#[test]
fn plain_content_is_compared_at_its_storage_offset() {
    let plain: Arc<[u8]> = (0..4096u32).map(|at| (at % 251) as u8).collect();
    let mut validator = validator(Content::Plain(plain.clone()), 512, 2);
    let place = extent(512, 1, 3, 1, 0);
    validator
        .region
        .write(512, &plain[3 * 512..4 * 512])
        .expect("inside");
    assert_eq!(validator.verify(place).expect("inside"), None);
    let elsewhere = validator
        .verify(extent(512, 1, 4, 1, 0))
        .expect("inside")
        .expect("another block");
    assert_eq!(
        (elsewhere.block, elsewhere.pass, elsewhere.expected),
        (4, None, plain[4 * 512])
    );
}
