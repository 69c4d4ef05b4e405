//! `doca_erasure_coding.h`: matrices, and tasks that apply them.

mod instance;
mod matrix;
mod tasks;
#[cfg(test)]
mod tests;

use doca_abi::{
    doca_ec, doca_ec_matrix, doca_ec_task_create, doca_ec_task_galois_mul, doca_ec_task_recover,
    doca_ec_task_update,
};

pub use instance::*;
pub use matrix::*;
pub use tasks::*;

use super::{Handle, Keeper};
use crate::erasure_coding::{CodingMatrix, Work};
use crate::progress::{Ctx, TaskOf};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_ec {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: matrices are given out by `give`.
unsafe impl Handle for doca_ec_matrix {
    type Engine = CodingMatrix;

    const KEEPER: Keeper = Keeper::Arc;
}

macro_rules! task_handles {
    ($($task:ty),*) => {
        $(
            // SAFETY: tasks of this kind are given out as pointers to what `TaskPool::allocate` made of this body.
            unsafe impl Handle for $task {
                type Engine = TaskOf<Work>;
            }
        )*
    };
}

task_handles!(
    doca_ec_task_galois_mul,
    doca_ec_task_create,
    doca_ec_task_update,
    doca_ec_task_recover
);

doca_abi::check_definitions!(
    doca_erasure_coding_functions,
    crate::capi::doca_erasure_coding
);
