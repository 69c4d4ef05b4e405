//! Erasure coding by Intel's ISA-L, a common baseline, loaded if it is installed.

use std::ffi::{c_int, c_uchar};
use std::ptr;

use libloading::Library;

/// File names of the library, in order of preference.
const NAMES: [&str; 2] = ["libisal.so.2", "libisal.so"];
/// Size of ISA-L's table for one coefficient in bytes.
const TABLE: usize = 32;

type InitTables = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
type EncodeData =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);

/// ISA-L is not installed.
#[derive(Debug, thiserror::Error)]
#[error("ISA-L cannot be used ({0}); Debian's package is libisal2")]
pub struct NotInstalled(#[from] libloading::Error);

/// The library, loaded.
pub struct IsaL {
    init_tables: InitTables,
    encode_data: EncodeData,
    // Keeps the library loaded: the functions point into it.
    _library: Library,
}

impl IsaL {
    /// Loads the library.
    ///
    /// # Errors
    ///
    /// It is not installed.
    pub fn load() -> Result<Self, NotInstalled> {
        // SAFETY: ISA-L's initialisation only inspects the CPU.
        let library = unsafe { Library::new(NAMES[0]).or_else(|_| Library::new(NAMES[1])) }?;
        // SAFETY: the types are those of erasure_code.h; the pointers are used only as long as the library is loaded.
        let (init_tables, encode_data) = unsafe {
            (
                *library.get::<InitTables>(b"ec_init_tables\0")?,
                *library.get::<EncodeData>(b"ec_encode_data\0")?,
            )
        };
        Ok(Self {
            init_tables,
            encode_data,
            _library: library,
        })
    }

    /// Prepares rows of coefficients, each with one coefficient per source.
    ///
    /// # Panics
    ///
    /// If the number of coefficients is 0, or not a multiple of `sources`.
    pub fn coder(&self, sources: usize, coefficients: &[u8]) -> Coder<'_> {
        assert!(sources > 0 && !coefficients.is_empty());
        assert!(coefficients.len().is_multiple_of(sources) && coefficients.len() < 256);
        let rows = coefficients.len() / sources;
        let mut tables = vec![0; TABLE * coefficients.len()];
        let mut coefficients = coefficients.to_vec();
        // SAFETY: reads `sources * rows` coefficients and writes 32 bytes for each; the buffers have these sizes.
        unsafe {
            (self.init_tables)(
                sources as c_int,
                rows as c_int,
                coefficients.as_mut_ptr(),
                tables.as_mut_ptr(),
            );
        }
        Coder {
            library: self,
            sources,
            rows,
            tables,
        }
    }
}

/// Tables for one set of coefficients.
pub struct Coder<'a> {
    library: &'a IsaL,
    sources: usize,
    rows: usize,
    tables: Vec<u8>,
}

impl Coder<'_> {
    /// Computes one block per row from the source blocks.
    ///
    /// # Panics
    ///
    /// If the numbers of blocks do not match the sources and rows, or the blocks differ in length.
    pub fn code(&mut self, sources: &[&[u8]], results: &mut [&mut [u8]]) {
        assert!(sources.len() == self.sources && results.len() == self.rows);
        let len = sources[0].len();
        assert!(sources.iter().all(|block| block.len() == len));
        assert!(results.iter().all(|block| block.len() == len));
        let mut from = [ptr::null_mut(); 256];
        let mut to = [ptr::null_mut(); 256];
        for (pointer, block) in from.iter_mut().zip(sources) {
            *pointer = block.as_ptr().cast_mut();
        }
        for (pointer, block) in to.iter_mut().zip(results.iter_mut()) {
            *pointer = block.as_mut_ptr();
        }
        // SAFETY: all blocks have `len` bytes, their number matches the tables, and sources are only read.
        unsafe {
            (self.library.encode_data)(
                c_int::try_from(len).expect("blocks below 2 GiB"),
                self.sources as c_int,
                self.rows as c_int,
                self.tables.as_mut_ptr(),
                from.as_mut_ptr(),
                to.as_mut_ptr(),
            );
        }
    }
}
