//! Applying a matrix to whole blocks.

use super::galois::Multiplier;
use super::matrix::Matrix;
use super::region::{Kernel, MOST_OUTPUTS};

/// Bytes of sources that are worked on at a time when they are passed over more than once: about what a second-level cache
/// holds beside other things.
const WORKING_SET: usize = 128 * 1024;
/// Pieces are whole vectors of every kernel.
const PIECE_ALIGNMENT: usize = 64;

/// A matrix, compiled to what the kernels take.
#[derive(Clone, Debug)]
pub struct Coder {
    inputs: usize,
    outputs: usize,
    passes: Vec<Pass>,
}

/// One pass over all sources.
#[derive(Clone, Debug)]
enum Pass {
    /// This output is the sum of all sources.
    Sum(usize),
    /// Outputs from `first` on; how many, the multipliers say, which are ordered as the kernels want them.
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

    /// Number of blocks that go in.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of blocks that come out.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Makes `len` bytes of every output of as many of every source.
    ///
    /// # Panics
    /// When the pointers are not as many as the matrix has inputs and outputs.
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
                // SAFETY: the caller's promise; `blocks` has been moved on by what is done.
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

/// A run of memory.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Its first byte.
    pub start: *mut u8,
    /// Its length in bytes.
    pub len: usize,
}

/// Where every block is at the moment.
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

/// Place of a block's next byte in a list of extents.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    extent: usize,
    offset: usize,
}

impl Cursor {
    /// The byte `offset` bytes into the list; within it.
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

    /// Bytes from here to the extent's end.
    fn contiguous(self, extents: &[Extent]) -> usize {
        extents[self.extent].len - self.offset
    }

    /// Goes on by at most [`contiguous`](Self::contiguous) bytes.
    fn advance(&mut self, extents: &[Extent], len: usize) {
        self.offset += len;
        while self.extent < extents.len() && self.offset >= extents[self.extent].len {
            self.offset -= extents[self.extent].len;
            self.extent += 1;
        }
    }
}

/// Applies coders to blocks that lie one after the other in scattered memory; keeps its working memory for the next time.
#[derive(Debug, Default)]
pub struct Striper {
    sources: Vec<Cursor>,
    outputs: Vec<Cursor>,
    pointers: Pointers,
}

impl Striper {
    /// Makes all of a matrix's output blocks of its input blocks, each of `block` bytes.
    ///
    /// # Panics
    /// When `source` has less than [`Coder::inputs`] blocks or `destination` has room for less than [`Coder::outputs`].
    ///
    /// # Safety
    /// The source extents can be read and those of the destination written, in the way of [`Kernel::products`].
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
            // A piece of each block that no extent's end cuts.
            let piece = sources.chain(outputs).fold(left, usize::min);
            // SAFETY: `piece` bytes from each pointer on are in an extent, for which the caller vouches.
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
mod tests;
