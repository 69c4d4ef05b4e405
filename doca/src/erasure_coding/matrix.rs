use std::ptr::NonNull;
use std::rc::Rc;

use doca_sys as sys;

use crate::Result;
use crate::context::Context;
use crate::device::non_null;
use crate::error::call;

/// How the factors of a coding matrix are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EcMatrixType {
    /// Any losses can be recovered, as many as there are redundancy blocks.
    Cauchy,
    /// The first redundancy block is the exclusive or of the data. Some patterns of losses cannot be recovered.
    Vandermonde,
}

impl EcMatrixType {
    pub(super) fn to_raw(self) -> sys::doca_ec_matrix_type {
        match self {
            Self::Cauchy => sys::DOCA_EC_MATRIX_TYPE_CAUCHY,
            Self::Vandermonde => sys::DOCA_EC_MATRIX_TYPE_VANDERMONDE,
        }
    }
}

/// Factors by which blocks are made of other blocks; made by an [`ErasureCoding`](crate::ErasureCoding) instance.
///
/// It may be dropped before the tasks that were made with it, and before or after its instance: that is destroyed with the last of its
/// matrices.
#[derive(Debug)]
pub struct EcMatrix {
    matrix: NonNull<sys::doca_ec_matrix>,
    // Dropped after the matrix was destroyed.
    _instance: Rc<Context<sys::doca_ec>>,
}

impl EcMatrix {
    pub(super) fn new(
        operation: &'static str,
        matrix: *mut sys::doca_ec_matrix,
        instance: &Rc<Context<sys::doca_ec>>,
    ) -> Result<Self> {
        non_null(operation, matrix).map(|matrix| Self {
            matrix,
            _instance: Rc::clone(instance),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::doca_ec_matrix {
        self.matrix.as_ptr()
    }
}

impl Drop for EcMatrix {
    fn drop(&mut self) {
        // SAFETY: created by a function of the C API and destroyed once.
        if let Err(error) = unsafe { call!(doca_ec_matrix_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "a matrix stays");
        }
    }
}
