//! How the parity is calculated.

use clap::ValueEnum;
use serde::Serialize;

/// How the factors of the parity are chosen. Who writes a block and who recovers it must choose alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatrixType {
    /// Factors from a Cauchy matrix
    Cauchy,
    /// Factors from a Vandermonde matrix: the parity is the exclusive or of the halves
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
