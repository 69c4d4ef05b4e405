//! Erasure coding with the engine of softdoca, and with ISA-L.

use std::hint::black_box;
use std::time::Duration;

use softdoca::engines::galois::Multiplier;
use softdoca::engines::matrix::{Matrix, MatrixType};
use softdoca::engines::region::Kernel;
use yardstick::isal::IsaL;

use super::{ErasureCoding, speed};

/// The matrices of two halves and one parity: coding, and recovery of the first half.
fn matrices(matrix_type: MatrixType) -> [Matrix; 2] {
    let coding = Matrix::coding(matrix_type, 2, 1).expect("a matrix of three blocks");
    let recovery = coding
        .recover(&[0])
        .expect("one lost block can be made anew");
    [coding, recovery]
}

fn factors(matrix: &Matrix) -> Vec<u8> {
    (0..matrix.inputs())
        .map(|input| matrix.factor(input, 0))
        .collect()
}

/// Ours, with the best kernel of this CPU; Vandermonde's is a sum.
pub(crate) fn ours(half: usize, matrix_type: MatrixType, time: Duration) -> ErasureCoding {
    let kernel = Kernel::best();
    let (a, b) = (vec![0x35_u8; half], vec![0xc6_u8; half]);
    let mut result = vec![0; half];
    let [create, recover] = matrices(matrix_type).map(|matrix| {
        let factors = factors(&matrix);
        let multipliers: Vec<_> = factors.iter().map(|&f| Multiplier::new(f)).collect();
        speed(half * 2, time, || {
            let sources = [black_box(&a).as_ptr(), b.as_ptr()];
            // SAFETY: all three have `half` bytes, and nobody else uses them.
            unsafe {
                if factors == [1, 1] {
                    kernel.sum(result.as_mut_ptr(), &sources, half);
                } else {
                    kernel.products(&[result.as_mut_ptr()], &sources, &multipliers, half);
                }
            }
            black_box(&mut result);
        })
    });
    ErasureCoding { create, recover }
}

/// ISA-L's, with the same coefficients.
pub(crate) fn isal(
    library: &IsaL,
    half: usize,
    matrix_type: MatrixType,
    time: Duration,
) -> ErasureCoding {
    let (a, b) = (vec![0x35_u8; half], vec![0xc6_u8; half]);
    let mut result = vec![0; half];
    let [create, recover] = matrices(matrix_type).map(|matrix| {
        let mut coder = library.coder(2, &factors(&matrix));
        speed(half * 2, time, || {
            coder.code(&[black_box(&a), &b], &mut [&mut result]);
            black_box(&mut result);
        })
    });
    ErasureCoding { create, recover }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_matrices_have_a_speed() {
        let time = Duration::from_micros(100);
        for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
            let speeds = ours(4096, matrix_type, time);
            assert!(speeds.create.bandwidth > 1e6 && speeds.recover.bandwidth > 1e6);
        }
    }
}
