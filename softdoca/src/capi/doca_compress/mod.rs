//! `doca_compress.h`: compression and decompression.

mod instance;
mod tasks;
#[cfg(test)]
mod tests;

use doca_abi::{
    doca_compress, doca_compress_task_compress_deflate, doca_compress_task_decompress_deflate,
    doca_compress_task_decompress_lz4_block, doca_compress_task_decompress_lz4_stream,
};

pub use instance::*;
pub use tasks::*;

use super::{Handle, Keeper};
use crate::compress::Work;
use crate::progress::{Ctx, TaskOf};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_compress {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
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
    doca_compress_task_compress_deflate,
    doca_compress_task_decompress_deflate,
    doca_compress_task_decompress_lz4_stream,
    doca_compress_task_decompress_lz4_block
);

doca_abi::check_definitions!(doca_compress_functions, crate::capi::doca_compress);
