//! Coding matrices: they create redundancy from data, update it when data changes, and recover lost blocks.
//!
//! # Numbering
//! The blocks of a code are numbered consecutively: the `k` data blocks from 0, then the `m` redundancy blocks from
//! `k`.

use crate::engines;
use crate::error::{Error, Result};

/// Choice of the factors of a coding matrix.
///
/// `i` is the number of a data block, `j` that of a redundancy block counted from 0, and `+` addition in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixType {
    /// 1 / (i + (j+k)), where `j+k` is a sum of integers. Any `m` losses can be recovered.
    Cauchy,
    /// (i+1)^j, where `i+1` is a sum of integers. The first redundancy block is the exclusive or of the data. Some patterns
    /// of losses cannot be recovered.
    Vandermonde,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Computes redundancy blocks from data blocks.
    Coding,
    /// Computes new redundancy blocks from pairs of old and new data blocks and the old redundancy blocks.
    Update,
    /// Computes lost blocks from `k` others.
    Recover,
}

/// Factors that map input blocks to output blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    purpose: Purpose,
    inputs: usize,
    outputs: usize,
    /// The factor of input `i` for output `o` is at `i * outputs + o`.
    factors: Vec<u8>,
}

impl Matrix {
    /// Creates a coding matrix for `data` data blocks and `redundancy` redundancy blocks.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if either number is 0 or their sum exceeds the order of the field.
    pub fn coding(matrix_type: MatrixType, data: usize, redundancy: usize) -> Result<Matrix> {
        check_counts(data, redundancy)?;
        let mut factors = Vec::with_capacity(data * redundancy);
        for i in 0..data {
            for j in 0..redundancy {
                // Both numbers are below the order of the field.
                factors.push(match matrix_type {
                    MatrixType::Cauchy => engines::inverse((i ^ (j + data)) as u8)
                        .ok_or_else(|| Error::Unexpected.because("equal numbers of blocks"))?,
                    MatrixType::Vandermonde => engines::power((i + 1) as u8, j),
                });
            }
        }
        Ok(Matrix {
            purpose: Purpose::Coding,
            inputs: data,
            outputs: redundancy,
            factors,
        })
    }

    /// Creates a coding matrix from the caller's factors; the factor of data block `i` for redundancy block `j` is at
    /// `i * redundancy + j`.
    ///
    /// # Errors
    /// As [`coding`](Self::coding), and [`Error::InvalidValue`] unless there is one factor for each pair.
    pub fn from_factors(factors: Vec<u8>, data: usize, redundancy: usize) -> Result<Matrix> {
        check_counts(data, redundancy)?;
        if factors.len() != data * redundancy {
            return Err(Error::InvalidValue.because(format_args!(
                "expected {data} * {redundancy} factors, got {}",
                factors.len()
            )));
        }
        Ok(Matrix {
            purpose: Purpose::Coding,
            inputs: data,
            outputs: redundancy,
            factors,
        })
    }

    /// Creates the matrix that updates all redundancy blocks after the data blocks `changed` (ascending) have changed.
    ///
    /// Its inputs are the old and the new block for each changed block, then the old redundancy blocks.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if `self` is not a coding matrix, or `changed` is empty, not ascending, or includes a
    /// redundancy block.
    pub fn update(&self, changed: &[u32]) -> Result<Matrix> {
        self.expect_coding()?;
        let changed = check_indices(changed, self.inputs)?;
        let outputs = self.outputs;
        let inputs = 2 * changed.len() + outputs;
        let mut factors = Vec::with_capacity(inputs * outputs);
        for block in changed {
            // Addition is its own inverse, so the old block's contribution is removed by adding it again.
            let row = &self.factors[block * outputs..][..outputs];
            factors.extend_from_slice(row);
            factors.extend_from_slice(row);
        }
        for old in 0..outputs {
            factors.extend((0..outputs).map(|new| u8::from(old == new)));
        }
        Ok(Matrix {
            purpose: Purpose::Update,
            inputs,
            outputs,
            factors,
        })
    }

    /// Creates the matrix that recovers the blocks `missing` (ascending, data or redundancy), in that order.
    ///
    /// Its inputs are the first `k` available blocks, ascending.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if `self` is not a coding matrix; if `missing` is empty, not ascending, or contains more
    /// than `m` blocks or unknown blocks; and if this loss cannot be recovered, which is possible with
    /// [`MatrixType::Vandermonde`] and [`from_factors`](Self::from_factors).
    pub fn recover(&self, missing: &[u32]) -> Result<Matrix> {
        self.expect_coding()?;
        let (data, redundancy) = (self.inputs, self.outputs);
        let missing = check_indices(missing, data + redundancy)?;
        if missing.len() > redundancy {
            return Err(Error::InvalidValue.because(format_args!(
                "{} blocks are missing, {redundancy} redundancy blocks can recover only as many",
                missing.len()
            )));
        }
        let available: Vec<usize> = (0..data + redundancy)
            .filter(|block| missing.binary_search(block).is_err())
            .take(data)
            .collect();
        // Rows of the code express each available block by the data blocks. Their inverse expresses the data by the
        // available blocks.
        let rows = available
            .iter()
            .flat_map(|block| self.row(*block))
            .collect();
        let inverse = invert(rows, data).ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "the blocks {missing:?} cannot be recovered from {available:?}: the matrix is singular"
            ))
        })?;
        let outputs = missing.len();
        let mut factors = vec![0; data * outputs];
        for (output, block) in missing.iter().enumerate() {
            for (part, factor) in self.row(*block).into_iter().enumerate() {
                if factor == 0 {
                    continue;
                }
                for input in 0..data {
                    factors[input * outputs + output] ^=
                        engines::multiply(factor, inverse[part * data + input]);
                }
            }
        }
        Ok(Matrix {
            purpose: Purpose::Recover,
            inputs: data,
            outputs,
            factors,
        })
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The factor of an input block for an output block.
    ///
    /// # Panics
    /// If the input or output does not exist.
    pub fn factor(&self, input: usize, output: usize) -> u8 {
        assert!(output < self.outputs);
        self.factors[input * self.outputs + output]
    }

    /// The row that expresses a block of the code in terms of the data blocks.
    fn row(&self, block: usize) -> Vec<u8> {
        (0..self.inputs)
            .map(|part| match block.checked_sub(self.inputs) {
                None => u8::from(part == block),
                Some(redundancy) => self.factor(part, redundancy),
            })
            .collect()
    }

    fn expect_coding(&self) -> Result<()> {
        if self.purpose == Purpose::Coding {
            return Ok(());
        }
        Err(Error::InvalidValue.because(format_args!(
            "expected a coding matrix to derive another from, got one for {:?}",
            self.purpose
        )))
    }
}

fn check_counts(data: usize, redundancy: usize) -> Result<()> {
    let sum = data.checked_add(redundancy);
    if data == 0 || redundancy == 0 || sum.is_none_or(|sum| sum > engines::ORDER) {
        return Err(Error::InvalidValue.because(format_args!(
            "expected at least 1 data and 1 redundancy block and at most {} together, got {data} and {redundancy}",
            engines::ORDER
        )));
    }
    Ok(())
}

fn check_indices(indices: &[u32], limit: usize) -> Result<Vec<usize>> {
    let ascending = indices.is_sorted_by(|a, b| a < b);
    match indices.last() {
        Some(last) if ascending && (*last as usize) < limit => {
            Ok(indices.iter().map(|index| *index as usize).collect())
        }
        _ => Err(Error::InvalidValue.because(format_args!(
            "expected numbers of blocks, ascending and below {limit}, got {indices:?}"
        ))),
    }
}

/// Inverts a matrix of `n` rows by Gauss-Jordan elimination; `None` if it is singular.
fn invert(mut rows: Vec<u8>, n: usize) -> Option<Vec<u8>> {
    let mut inverse = vec![0; n * n];
    (0..n).for_each(|row| inverse[row * n + row] = 1);
    for column in 0..n {
        let pivot = (column..n).find(|row| rows[row * n + column] != 0)?;
        for matrix in [&mut rows, &mut inverse] {
            (0..n).for_each(|at| matrix.swap(pivot * n + at, column * n + at));
        }
        let scale = engines::inverse(rows[column * n + column])?;
        for matrix in [&mut rows, &mut inverse] {
            for value in &mut matrix[column * n..][..n] {
                *value = engines::multiply(scale, *value);
            }
        }
        for row in (0..n).filter(|row| *row != column) {
            let factor = rows[row * n + column];
            if factor == 0 {
                continue;
            }
            for matrix in [&mut rows, &mut inverse] {
                for at in 0..n {
                    matrix[row * n + at] ^= engines::multiply(factor, matrix[column * n + at]);
                }
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a matrix to blocks of one byte.
    fn apply(matrix: &Matrix, inputs: &[u8]) -> Vec<u8> {
        assert_eq!(inputs.len(), matrix.inputs());
        let product =
            |output, input: usize| engines::multiply(matrix.factor(input, output), inputs[input]);
        (0..matrix.outputs())
            .map(|output| (0..inputs.len()).fold(0, |sum, input| sum ^ product(output, input)))
            .collect()
    }

    fn code(matrix: &Matrix) -> Vec<u8> {
        let data: Vec<u8> = (0..matrix.inputs())
            .map(|block| (block * 29 + 3) as u8)
            .collect();
        let redundancy = apply(matrix, &data);
        [data, redundancy].concat()
    }

    fn subsets(limit: u32, most: usize) -> Vec<Vec<u32>> {
        (1u32..1 << limit)
            .map(|set| {
                (0..limit)
                    .filter(|block| set >> block & 1 == 1)
                    .collect::<Vec<u32>>()
            })
            .filter(|subset| subset.len() <= most)
            .collect()
    }

    /// Recovers `missing` and checks the result; `false` if the loss is reported as unrecoverable.
    fn recovers(matrix: &Matrix, missing: &[u32]) -> bool {
        let code = code(matrix);
        let Ok(recover) = matrix.recover(missing) else {
            return false;
        };
        let available: Vec<u8> = (0u32..)
            .zip(&code)
            .filter(|(block, _)| !missing.contains(block))
            .map(|(_, byte)| *byte)
            .take(matrix.inputs())
            .collect();
        let expected: Vec<u8> = missing.iter().map(|block| code[*block as usize]).collect();
        assert_eq!(apply(&recover, &available), expected, "{missing:?}");
        true
    }

    #[test]
    fn factors_are_the_published_ones() {
        let cauchy = Matrix::coding(MatrixType::Cauchy, 2, 1).unwrap();
        // 1/(0+2) and 1/(1+2) in the field of 0x11d.
        assert_eq!((cauchy.factor(0, 0), cauchy.factor(1, 0)), (142, 244));
        let vandermonde = Matrix::coding(MatrixType::Vandermonde, 3, 3).unwrap();
        let factors: Vec<u8> = (0..9)
            .map(|index| vandermonde.factor(index / 3, index % 3))
            .collect();
        assert_eq!(factors, [1, 1, 1, 1, 2, 4, 1, 3, 5]);
    }

    #[test]
    fn cauchy_recovers_every_loss() {
        for (data, redundancy) in [(1, 1), (2, 1), (1, 4), (4, 2), (5, 4), (6, 6)] {
            let matrix = Matrix::coding(MatrixType::Cauchy, data, redundancy).unwrap();
            for missing in subsets((data + redundancy) as u32, redundancy) {
                assert!(
                    recovers(&matrix, &missing),
                    "{data}+{redundancy} without {missing:?}"
                );
            }
        }
    }

    #[test]
    fn large_codes_work() {
        for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
            let matrix = Matrix::coding(matrix_type, 128, 32).unwrap();
            assert!(recovers(&matrix, &[127]));
        }
        let matrix = Matrix::coding(MatrixType::Cauchy, 128, 128).unwrap();
        let half: Vec<u32> = (64..192).collect();
        assert!(recovers(&matrix, &half));
    }

    #[test]
    fn vandermonde_recovers_one_loss_and_reports_unrecoverable_ones() {
        let matrix = Matrix::coding(MatrixType::Vandermonde, 2, 1).unwrap();
        assert!([0, 1, 2].iter().all(|block| recovers(&matrix, &[*block])));
        let matrix = Matrix::coding(MatrixType::Vandermonde, 10, 4).unwrap();
        let (good, bad): (Vec<_>, Vec<_>) = subsets(14, 4)
            .into_iter()
            .partition(|missing| recovers(&matrix, missing));
        assert!(
            !bad.is_empty() && good.len() > 10 * bad.len(),
            "{} and {}",
            good.len(),
            bad.len()
        );
        assert!(good.iter().filter(|missing| missing.len() == 1).count() == 14);
    }

    #[test]
    fn a_singular_loss_of_a_code_of_factors_is_refused() {
        // Both redundancy blocks are identical sums.
        let matrix = Matrix::from_factors(vec![1; 6], 3, 2).unwrap();
        assert_eq!(matrix.recover(&[0, 1]), Err(Error::InvalidValue));
        assert!(recovers(&matrix, &[0, 3]));
    }

    #[test]
    fn updates_agree_with_full_encoding() {
        for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
            let matrix = Matrix::coding(matrix_type, 5, 3).unwrap();
            let old = code(&matrix);
            for changed in subsets(5, 5) {
                let mut data = old[..5].to_vec();
                let mut inputs = Vec::new();
                for block in &changed {
                    let new = data[*block as usize].wrapping_mul(7) ^ 0x55;
                    inputs.extend([data[*block as usize], new]);
                    data[*block as usize] = new;
                }
                inputs.extend_from_slice(&old[5..]);
                let update = matrix.update(&changed).unwrap();
                assert_eq!(update.purpose, Purpose::Update);
                assert_eq!(apply(&update, &inputs), apply(&matrix, &data));
            }
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (data, redundancy) in [(0, 1), (1, 0), (200, 57), (usize::MAX, 1), (1, usize::MAX)] {
            assert_eq!(
                Matrix::coding(MatrixType::Cauchy, data, redundancy),
                Err(Error::InvalidValue)
            );
            assert_eq!(
                Matrix::from_factors(vec![1], data, redundancy),
                Err(Error::InvalidValue)
            );
        }
        assert_eq!(
            Matrix::from_factors(vec![1; 5], 3, 2),
            Err(Error::InvalidValue)
        );
        let matrix = Matrix::coding(MatrixType::Cauchy, 4, 2).unwrap();
        for missing in [&[][..], &[6], &[1, 0], &[1, 1], &[0, 1, 2], &[u32::MAX]] {
            assert_eq!(
                matrix.recover(missing),
                Err(Error::InvalidValue),
                "{missing:?}"
            );
        }
        for changed in [&[][..], &[4], &[1, 0], &[1, 1]] {
            assert_eq!(
                matrix.update(changed),
                Err(Error::InvalidValue),
                "{changed:?}"
            );
        }
        let recover = matrix.recover(&[1]).unwrap();
        assert_eq!(recover.recover(&[1]), Err(Error::InvalidValue));
        assert_eq!(recover.update(&[1]), Err(Error::InvalidValue));
    }
}
