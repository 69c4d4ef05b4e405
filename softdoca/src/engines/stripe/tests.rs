use super::*;
use crate::engines::galois;
use crate::engines::matrix::MatrixType;

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 151 + at / 251) as u8).collect()
}

/// Cuts memory into extents of the given lengths; the last takes the rest.
fn cut(memory: &mut [u8], lengths: &[usize]) -> Vec<Extent> {
    let (mut start, mut left) = (memory.as_mut_ptr(), memory.len());
    let mut extents = Vec::new();
    for len in lengths.iter().copied().chain([usize::MAX]) {
        let len = len.min(left);
        extents.push(Extent { start, len });
        start = start.wrapping_add(len);
        left -= len;
    }
    extents
}

fn expected(matrix: &Matrix, source: &[u8], block: usize) -> Vec<u8> {
    let byte = |output, at: usize| {
        (0..matrix.inputs()).fold(0, |sum, input| {
            sum ^ galois::multiply(matrix.factor(input, output), source[input * block + at])
        })
    };
    (0..matrix.outputs())
        .flat_map(|output| (0..block).map(move |at| (output, at)))
        .map(|(output, at)| byte(output, at))
        .collect()
}

fn check(matrix: &Matrix, block: usize, source_cuts: &[usize], destination_cuts: &[usize]) {
    let mut source = data(matrix.inputs() * block);
    let expected = expected(matrix, &source, block);
    let mut destination = vec![0; matrix.outputs() * block];
    let from = cut(&mut source, source_cuts);
    let to = cut(&mut destination, destination_cuts);
    let coder = Coder::new(matrix);
    let mut striper = Striper::default();
    for kernel in Kernel::available() {
        to.iter().for_each(|extent| {
            // SAFETY: an extent of `destination`.
            unsafe { extent.start.write_bytes(0x77, extent.len) };
        });
        // SAFETY: the extents are those of the two vectors, which are of the right lengths.
        unsafe { striper.apply(kernel, &coder, &from, &to, block) };
        assert!(
            destination == expected,
            "{} with {block} bytes",
            kernel.name()
        );
    }
}

#[test]
fn blocks_are_coded_whatever_the_shape_of_the_code() {
    for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
        for (data, redundancy) in [(1, 1), (2, 1), (3, 2), (4, 4), (10, 5), (3, 9)] {
            let matrix = Matrix::coding(matrix_type, data, redundancy).unwrap();
            for block in [0, 1, 64, 192, 1000] {
                check(&matrix, block, &[], &[]);
            }
        }
    }
}

#[test]
fn scattered_memory_is_the_same_as_whole_memory() {
    let matrix = Matrix::coding(MatrixType::Cauchy, 3, 2).unwrap();
    for (source, destination) in [
        (&[1usize, 0, 63, 500][..], &[][..]),
        (&[], &[7, 7, 0, 7, 700]),
        (&[100; 9], &[64; 11]),
        (&[320], &[320]),
        (&[960, 0], &[640, 0]),
    ] {
        check(&matrix, 320, source, destination);
    }
}

#[test]
fn large_blocks_are_done_in_pieces() {
    let matrix = Matrix::coding(MatrixType::Vandermonde, 2, 6).unwrap();
    check(&matrix, WORKING_SET + 65, &[], &[]);
}

#[test]
fn recovering_gives_back_what_was_coded() {
    let (block, mut stripe) = (4096, data(6 * 4096));
    let matrix = Matrix::coding(MatrixType::Cauchy, 4, 2).unwrap();
    let (whole, mut striper) = (cut(&mut stripe, &[4 * block]), Striper::default());
    // SAFETY: the extents are the stripe's.
    unsafe {
        striper.apply(
            Kernel::best(),
            &Coder::new(&matrix),
            &whole[..1],
            &whole[1..],
            block,
        );
    }
    let mut available = [&stripe[block..2 * block], &stripe[3 * block..]].concat();
    let mut recovered = vec![0; 2 * block];
    let recover = Coder::new(&matrix.recover(&[0, 2]).unwrap());
    let (from, to) = (cut(&mut available, &[]), cut(&mut recovered, &[]));
    // SAFETY: the extents are those of the two vectors.
    unsafe { striper.apply(Kernel::best(), &recover, &from, &to, block) };
    assert!(recovered[..block] == stripe[..block]);
    assert!(recovered[block..] == stripe[2 * block..3 * block]);
}

#[test]
#[should_panic(expected = "needed")]
fn a_short_destination_is_refused() {
    let matrix = Matrix::coding(MatrixType::Cauchy, 2, 1).unwrap();
    let (mut source, mut destination) = (data(128), vec![0; 63]);
    let (from, to) = (cut(&mut source, &[]), cut(&mut destination, &[]));
    // SAFETY: it panics before it touches anything.
    unsafe {
        Striper::default().apply(Kernel::portable(), &Coder::new(&matrix), &from, &to, 64);
    }
}
