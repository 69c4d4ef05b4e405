//! Choice of the erasure coding matrix.

use clap::ValueEnum;
use serde::Serialize;

/// Type of the erasure coding matrix. A block must be recovered with the type it was written with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatrixType {
    /// Cauchy matrix
    Cauchy,
    /// Vandermonde matrix: the parity is the XOR of the halves
    #[default]
    Vandermonde,
}

impl From<MatrixType> for doca::EcMatrixType {
    fn from(matrix: MatrixType) -> Self {
        match matrix {
            MatrixType::Cauchy => Self::Cauchy,
            MatrixType::Vandermonde => Self::Vandermonde,
        }
    }
}
