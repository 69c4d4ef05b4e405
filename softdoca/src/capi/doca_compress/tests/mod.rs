//! Compression through the C functions.

mod arguments;
mod results;
mod turns;

use std::io::Write as _;
use std::ptr::{null, null_mut};

use doca_abi::{DOCA_CTX_STATE_RUNNING, doca_data};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use super::*;
use crate::buffer::Buf;
use crate::capi::doca_pe::*;
use crate::capi::testing::*;
use crate::error::Error;
use crate::memory::{ExportKind, Permissions};

const NONE: doca_data = doca_data { u64: 0 };

fn start() -> Instance<doca_compress> {
    Instance::start(doca_compress_create, doca_compress_destroy, |compress| {
        macro_rules! configure {
            ($($set_conf:ident: $task:ty),*) => { $(
                ok($set_conf(compress, Some(done::<$task>), Some(done::<$task>), 8));
            )* };
        }
        // SAFETY: a live instance.
        unsafe {
            configure!(
                doca_compress_task_compress_deflate_set_conf: doca_compress_task_compress_deflate,
                doca_compress_task_decompress_deflate_set_conf: doca_compress_task_decompress_deflate,
                doca_compress_task_decompress_lz4_stream_set_conf: doca_compress_task_decompress_lz4_stream,
                doca_compress_task_decompress_lz4_block_set_conf: doca_compress_task_decompress_lz4_block
            );
        }
    })
}

macro_rules! allocate {
    ($name:ident, $alloc_init:ident, $task:ty $(, $flag:ident)*) => {
        fn $name(compress: &Instance<doca_compress>, $($flag: u8,)* from: &Buf, to: &Buf) -> *mut $task {
            // SAFETY: live handles and a valid out-parameter.
            compress.task(|task| unsafe { $alloc_init(compress.handle, $($flag,)* c(from), c(to), NONE, task) })
        }
    };
}
allocate!(
    deflate,
    doca_compress_task_compress_deflate_alloc_init,
    doca_compress_task_compress_deflate
);
allocate!(
    inflate,
    doca_compress_task_decompress_deflate_alloc_init,
    doca_compress_task_decompress_deflate
);
allocate!(
    lz4_block,
    doca_compress_task_decompress_lz4_block_alloc_init,
    doca_compress_task_decompress_lz4_block
);
allocate!(
    lz4_stream,
    doca_compress_task_decompress_lz4_stream_alloc_init,
    doca_compress_task_decompress_lz4_stream,
    checksums,
    independent
);

/// Text with repetitions, and noise, which is stored as it is.
fn content(len: usize) -> Vec<u8> {
    let text = (0u32..).flat_map(|line| format!("line {line}\n").into_bytes());
    let noise =
        (0u32..).map(|at| (at.wrapping_mul(2_654_435_761).rotate_left(at % 31) >> 13) as u8);
    text.take(len / 2)
        .chain(noise.take(len - len / 2))
        .collect()
}

/// An LZ4 frame with a checksum of its content, as the command `lz4` writes it.
fn frame(content: &[u8], checksums: bool, independent: bool) -> Vec<u8> {
    let mode = if independent {
        BlockMode::Independent
    } else {
        BlockMode::Linked
    };
    let info = FrameInfo::new()
        .block_mode(mode)
        .block_size(BlockSize::Max64KB)
        .block_checksums(checksums)
        .content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// Bytes of a frame before and after its blocks.
const FRAME: (usize, usize) = (7, 8);
