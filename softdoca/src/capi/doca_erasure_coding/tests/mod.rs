//! Erasure coding through the C functions.

mod arguments;
mod results;

use std::ptr::{null, null_mut};

use doca_abi::{
    DOCA_CTX_STATE_RUNNING, DOCA_EC_MATRIX_TYPE_CAUCHY, DOCA_EC_MATRIX_TYPE_VANDERMONDE, doca_data,
    doca_ec_matrix_type,
};

use super::*;
use crate::buffer::Buf;
use crate::capi::doca_ctx::*;
use crate::capi::doca_pe::*;
use crate::capi::testing::*;
use crate::error::Error;
use crate::memory::{ExportKind, Permissions};

const TYPES: [doca_ec_matrix_type; 2] =
    [DOCA_EC_MATRIX_TYPE_CAUCHY, DOCA_EC_MATRIX_TYPE_VANDERMONDE];
const NONE: doca_data = doca_data { u64: 0 };

fn start() -> Instance<doca_ec> {
    Instance::start(doca_ec_create, doca_ec_destroy, |ec| {
        macro_rules! configure {
            ($($set_conf:ident: $task:ty),*) => { $(
                ok($set_conf(ec, Some(done::<$task>), Some(done::<$task>), 8));
            )* };
        }
        // SAFETY: a live instance.
        unsafe {
            configure!(
                doca_ec_task_galois_mul_set_conf: doca_ec_task_galois_mul,
                doca_ec_task_create_set_conf: doca_ec_task_create,
                doca_ec_task_update_set_conf: doca_ec_task_update,
                doca_ec_task_recover_set_conf: doca_ec_task_recover
            );
        }
    })
}

/// A matrix that is destroyed with its owner.
struct Owned(*mut doca_ec_matrix);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: live, for the last time.
        ok(unsafe { doca_ec_matrix_destroy(self.0) });
    }
}

type Result = std::result::Result<Owned, u32>;

fn matrix(make: impl FnOnce(*mut *mut doca_ec_matrix) -> u32) -> Result {
    let mut matrix = null_mut();
    match make(&mut matrix) {
        0 => Ok(Owned(matrix)),
        error => Err(error),
    }
}

fn coding(
    ec: &Instance<doca_ec>,
    matrix_type: doca_ec_matrix_type,
    data: usize,
    redundancy: usize,
) -> Result {
    // SAFETY: a live instance and a valid out-parameter.
    matrix(|out| unsafe { doca_ec_matrix_create(ec.handle, matrix_type, data, redundancy, out) })
}

fn recovery(ec: &Instance<doca_ec>, coding: &Owned, missing: &mut [u32]) -> Result {
    let (indices, count) = (missing.as_mut_ptr(), missing.len());
    // SAFETY: live handles, the slice, and a valid out-parameter.
    matrix(|out| unsafe { doca_ec_matrix_create_recover(ec.handle, coding.0, indices, count, out) })
}

fn updating(ec: &Instance<doca_ec>, coding: &Owned, changed: &mut [u32]) -> Result {
    let (indices, count) = (changed.as_mut_ptr(), changed.len());
    // SAFETY: as above.
    matrix(|out| unsafe { doca_ec_matrix_create_update(ec.handle, coding.0, indices, count, out) })
}

macro_rules! allocate {
    ($name:ident, $allocate_init:ident, $task:ty) => {
        fn $name(ec: &Instance<doca_ec>, matrix: &Owned, from: &Buf, to: &Buf) -> *mut $task {
            // SAFETY: live handles and a valid out-parameter.
            ec.task(|task| unsafe {
                $allocate_init(ec.handle, matrix.0, c(from), c(to), NONE, task)
            })
        }
    };
}
allocate!(
    create,
    doca_ec_task_create_allocate_init,
    doca_ec_task_create
);
allocate!(
    recover,
    doca_ec_task_recover_allocate_init,
    doca_ec_task_recover
);
allocate!(
    update,
    doca_ec_task_update_allocate_init,
    doca_ec_task_update
);
allocate!(
    galois_mul,
    doca_ec_task_galois_mul_allocate_init,
    doca_ec_task_galois_mul
);

/// Product in the field of 0x11d, by shifting and adding.
fn multiply(a: u8, b: u8) -> u8 {
    (0..8).rev().fold(0, |product: u8, bit| {
        let carry = if product & 0x80 != 0 { 0x1d } else { 0 };
        (product << 1) ^ carry ^ if b >> bit & 1 == 1 { a } else { 0 }
    })
}

/// The published factors, searched for and multiplied out.
fn factor(matrix_type: doca_ec_matrix_type, data: usize, i: usize, j: usize) -> u8 {
    if matrix_type == DOCA_EC_MATRIX_TYPE_CAUCHY {
        let sum = (i ^ (j + data)) as u8;
        (1..=255)
            .find(|candidate| multiply(*candidate, sum) == 1)
            .expect("sums are not 0")
    } else {
        (0..j).fold(1, |power, _| multiply(power, (i + 1) as u8))
    }
}

fn redundancy(
    matrix_type: doca_ec_matrix_type,
    data: &[u8],
    block: usize,
    count: usize,
) -> Vec<u8> {
    let blocks = data.len() / block;
    let byte = |j: usize, at: usize| {
        let product = |i: usize| multiply(factor(matrix_type, blocks, i, j), data[i * block + at]);
        (0..blocks).map(product).fold(0, |a, b| a ^ b)
    };
    (0..count)
        .flat_map(|j| (0..block).map(move |at| (j, at)))
        .map(|(j, at)| byte(j, at))
        .collect()
}
