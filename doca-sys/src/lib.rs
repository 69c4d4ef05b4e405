//! Raw declarations of the DOCA C API.
//!
//! Types and functions come from the table in [`doca_abi`]. The implementation is chosen at compile time: softdoca,
//! linked as a crate, or with `RUSTFLAGS="--cfg doca_sdk"` the libraries that pkg-config finds. The declarations are
//! the same for both.
//!
//! These functions follow C's rules; use the `doca` crate for a safe interface.

#![allow(non_camel_case_types, reason = "the names are those of the C API")]

// Nothing of the crate is named: it is linked for its `doca_*` symbols.
#[cfg(not(doca_sdk))]
use softdoca as _;

pub use doca_abi::*;

mod inline;

#[allow(
    dead_code,
    reason = "the functions that `inline` defines hide those of the table"
)]
mod table {
    use doca_abi::*;

    macro_rules! declare {
        ([] header $header:literal; $($(#[doc = $doc:literal])* fn $name:ident($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
            // SAFETY: the signatures are those of the C API; softdoca is checked against the same table when it is compiled.
            unsafe extern "C" {
                $(
                    $(#[doc = $doc])*
                    ///
                    /// # Safety
                    ///
                    /// Pointers must be valid for the function's accesses; handles must be live, and used only by
                    /// threads that may use them.
                    pub fn $name($($param: $ty),*) $(-> $ret)?;
                )*
            }
        };
    }
    doca_abi::doca_functions!(declare);
}

pub use inline::{
    doca_buf_inventory_buf_get_by_addr, doca_buf_inventory_buf_get_by_data,
    doca_buf_inventory_buf_reuse_by_addr, doca_buf_inventory_buf_reuse_by_data, doca_version,
};
// Named imports hide those of a glob: the functions above take the place of the table's.
pub use table::*;
