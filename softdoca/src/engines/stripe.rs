//! Application of a matrix to whole blocks.

use super::Multiplier;
use super::matrix::Matrix;
use super::region::{Kernel, MOST_OUTPUTS};

/// Bytes of sources processed at a time if they are passed over more than once: about the part of a second-level cache
/// that is available.
const WORKING_SET: usize = 128 * 1024;
/// Pieces are a multiple of the vector size of every kernel.
const PIECE_ALIGNMENT: usize = 64;

/// A matrix, compiled to kernel calls.
#[derive(Clone, Debug)]
pub struct Coder {
    inputs: usize,
    outputs: usize,
    passes: Vec<Pass>,
}

/// One pass over all sources.
#[derive(Clone, Debug)]
enum Pass {
    /// The index of an output that is the sum of all sources.
    Sum(usize),
    /// A range of outputs starting at `first`, one for each row of the multipliers, which are in kernel order.
    Products {
        first: usize,
        count: usize,
        multipliers: Vec<Multiplier>,
    },
}

impl Coder {
    /// Compiles a matrix.
    pub fn new(matrix: &Matrix) -> Coder {
        let (inputs, outputs) = (matrix.inputs(), matrix.outputs());
        let is_sum = |output| (0..inputs).all(|input| matrix.factor(input, output) == 1);
        let mut passes = Vec::new();
        let mut first = 0;
        while first < outputs {
            if is_sum(first) {
                passes.push(Pass::Sum(first));
                first += 1;
                continue;
            }
            let count = (first..outputs)
                .take(MOST_OUTPUTS)
                .take_while(|output| !is_sum(*output))
                .count();
            let factors = (0..inputs)
                .flat_map(|input| (first..first + count).map(move |output| (input, output)))
                .map(|(input, output)| Multiplier::new(matrix.factor(input, output)));
            passes.push(Pass::Products {
                first,
                count,
                multipliers: factors.collect(),
            });
            first += count;
        }
        Coder {
            inputs,
            outputs,
            passes,
        }
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Computes `len` bytes of every output from `len` bytes of every source.
    ///
    /// # Panics
    /// If the number of pointers differs from the matrix's inputs and outputs.
    ///
    /// # Safety
    /// As [`Kernel::products`].
    unsafe fn run(&self, kernel: &Kernel, blocks: &mut Pointers, len: usize) {
        assert!(blocks.sources.len() == self.inputs && blocks.outputs.len() == self.outputs);
        let piece = if self.passes.len() > 1 {
            (WORKING_SET / self.inputs).next_multiple_of(PIECE_ALIGNMENT)
        } else {
            len
        };
        let mut left = len;
        while left > 0 {
            let piece = piece.min(left);
            for pass in &self.passes {
                // SAFETY: guaranteed by the caller; `blocks` was advanced by the bytes processed so far.
                unsafe {
                    match pass {
                        Pass::Sum(output) => {
                            kernel.sum(blocks.outputs[*output], &blocks.sources, piece);
                        }
                        Pass::Products {
                            first,
                            count,
                            multipliers,
                        } => {
                            let outputs = &blocks.outputs[*first..first + count];
                            kernel.products(outputs, &blocks.sources, multipliers, piece);
                        }
                    }
                }
            }
            blocks.advance(piece);
            left -= piece;
        }
    }
}

/// A contiguous range of memory.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub start: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// Current position in every block.
#[derive(Debug, Default)]
struct Pointers {
    sources: Vec<*const u8>,
    outputs: Vec<*mut u8>,
}

impl Pointers {
    fn advance(&mut self, len: usize) {
        for source in &mut self.sources {
            *source = source.wrapping_add(len);
        }
        for output in &mut self.outputs {
            *output = output.wrapping_add(len);
        }
    }
}

/// Position of a block's next byte in a list of extents.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    extent: usize,
    offset: usize,
}

impl Cursor {
    /// The position `offset` bytes into the list, which must be within it.
    fn at(extents: &[Extent], mut offset: usize) -> Cursor {
        let mut extent = 0;
        while offset >= extents[extent].len {
            offset -= extents[extent].len;
            extent += 1;
        }
        Cursor { extent, offset }
    }

    fn pointer(self, extents: &[Extent]) -> *mut u8 {
        extents[self.extent].start.wrapping_add(self.offset)
    }

    /// Bytes from here to the end of the extent.
    fn contiguous(self, extents: &[Extent]) -> usize {
        extents[self.extent].len - self.offset
    }

    /// Advances by at most [`contiguous`](Self::contiguous) bytes.
    fn advance(&mut self, extents: &[Extent], len: usize) {
        self.offset += len;
        while self.extent < extents.len() && self.offset >= extents[self.extent].len {
            self.offset -= extents[self.extent].len;
            self.extent += 1;
        }
    }
}

/// Applies coders to consecutive blocks in scattered memory; working memory is kept for reuse.
#[derive(Debug, Default)]
pub struct Striper {
    sources: Vec<Cursor>,
    outputs: Vec<Cursor>,
    pointers: Pointers,
}

impl Striper {
    /// Computes all output blocks of a matrix from its input blocks, each of `block` bytes.
    ///
    /// # Panics
    /// If `source` has fewer than [`Coder::inputs`] blocks or `destination` is too small for [`Coder::outputs`].
    ///
    /// # Safety
    /// The source extents can be read and the destination extents written, in the way of [`Kernel::products`].
    pub unsafe fn apply(
        &mut self,
        kernel: &Kernel,
        coder: &Coder,
        source: &[Extent],
        destination: &[Extent],
        block: usize,
    ) {
        let total = |extents: &[Extent]| extents.iter().map(|extent| extent.len).sum::<usize>();
        let needed = |blocks: usize| blocks.saturating_mul(block);
        assert!(
            total(source) >= needed(coder.inputs) && total(destination) >= needed(coder.outputs)
        );
        if block == 0 {
            return;
        }
        place(&mut self.sources, source, coder.inputs, block);
        place(&mut self.outputs, destination, coder.outputs, block);
        let mut left = block;
        while left > 0 {
            let pointers = &mut self.pointers;
            pointers.sources.clear();
            pointers.sources.extend(
                self.sources
                    .iter()
                    .map(|at| at.pointer(source).cast_const()),
            );
            pointers.outputs.clear();
            pointers
                .outputs
                .extend(self.outputs.iter().map(|at| at.pointer(destination)));
            let sources = self.sources.iter().map(|at| at.contiguous(source));
            let outputs = self.outputs.iter().map(|at| at.contiguous(destination));
            // The longest piece of each block that crosses no extent boundary.
            let piece = sources.chain(outputs).fold(left, usize::min);
            // SAFETY: `piece` bytes from each pointer are within an extent, guaranteed by the caller.
            unsafe { coder.run(kernel, pointers, piece) };
            self.sources
                .iter_mut()
                .for_each(|at| at.advance(source, piece));
            self.outputs
                .iter_mut()
                .for_each(|at| at.advance(destination, piece));
            left -= piece;
        }
    }
}

fn place(cursors: &mut Vec<Cursor>, extents: &[Extent], blocks: usize, block: usize) {
    cursors.clear();
    cursors.extend((0..blocks).map(|index| Cursor::at(extents, index * block)));
}

#[cfg(test)]
mod tests {
    use super::super::matrix::MatrixType;
    use super::*;
    use crate::engines;

    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 151 + at / 251) as u8).collect()
    }

    /// Splits memory into extents of the given lengths; the last extent contains the remaining bytes.
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
                sum ^ engines::multiply(matrix.factor(input, output), source[input * block + at])
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
            // SAFETY: the extents are the two vectors, which have the right lengths.
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
    fn large_blocks_are_processed_in_pieces() {
        let matrix = Matrix::coding(MatrixType::Vandermonde, 2, 6).unwrap();
        check(&matrix, WORKING_SET + 65, &[], &[]);
    }

    #[test]
    fn recovery_restores_the_coded_blocks() {
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
        // SAFETY: the extents are the two vectors.
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
}
