//! The device's erasure coding matrix.

use doca::EcMatrixType;
use role_formats::stored_block::MatrixType;

/// The device's name of a matrix type.
#[must_use]
pub fn of_device(matrix: MatrixType) -> EcMatrixType {
    match matrix {
        MatrixType::Cauchy => EcMatrixType::Cauchy,
        MatrixType::Vandermonde => EcMatrixType::Vandermonde,
    }
}
