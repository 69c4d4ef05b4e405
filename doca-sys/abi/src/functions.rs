//! The table of functions, its uses, and types that represent the tables of this crate as values.
//!
//! The table is a set of macros, one per header, that pass their declarations to another macro; see
//! [`doca_functions!`](crate::doca_functions).

mod accelerators;
mod comch;
mod core;
mod crypto;
mod dev;
mod earlier;
mod memory;
mod rdma;
mod sync_event;

use crate::{Earlier, Release};

/// Passes every header's function declarations to the macro `$callback`, one call per header.
///
/// `$callback` gets `[$arguments] header "doca_x.h";` and then any number of `#[doc = "…"] fn name(param: type, …) ->
/// type;`, where the `->` part is absent for `void`. The types are names of this crate, so the expansion of the
/// callback needs `use doca_abi::*` in scope.
///
/// ```
/// macro_rules! count {
///     ([$total:ident] header $header:literal; $($(#[$doc:meta])* fn $name:ident($($p:ident: $t:ty),*) $(-> $r:ty)?;)*) => {
///         $( $total += 1; let _ = stringify!($name); )*
///     };
/// }
/// let mut total = 0;
/// doca_abi::doca_functions!(count, total);
/// assert!(total > 100);
/// ```
#[macro_export]
macro_rules! doca_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $crate::doca_error_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_version_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_log_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_dev_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_mmap_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_buf_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_buf_inventory_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_buf_pool_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_buf_array_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_clock_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_ctx_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_pe_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_comch_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_comch_consumer_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_comch_producer_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_sync_event_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_rdma_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_rdma_bridge_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_dma_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_compress_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_erasure_coding_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_sha_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_aes_gcm_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_graph_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_mmap_advise_functions!($($callback)::+ $(, $($arguments)*)?);
        $crate::doca_argp_functions!($($callback)::+ $(, $($arguments)*)?);
    };
}

/// Checks at compile time that a module defines every function of the API with exactly the declared type.
///
/// `check_definitions!(path)` fails to compile unless `path::name` exists and is an `unsafe extern "C" fn` of that type
/// for every function. With a header's macro in front only that header is checked:
/// `check_definitions!(doca_buf_functions, crate::capi::buf)`.
///
/// ```
/// mod capi {
///     use std::ffi::c_char;
///     pub unsafe extern "C" fn doca_version() -> *const c_char { c"3.3.0".as_ptr() }
///     pub unsafe extern "C" fn doca_version_runtime() -> *const c_char { c"3.3.0".as_ptr() }
/// }
/// doca_abi::check_definitions!(doca_version_functions, capi);
/// ```
///
/// ```compile_fail
/// mod capi {
///     use std::ffi::c_char;
///     pub unsafe extern "C" fn doca_version() -> *const c_char { c"3.3.0".as_ptr() }
///     // Wrong: it takes no argument.
///     pub unsafe extern "C" fn doca_version_runtime(_: u32) -> *const c_char { c"3.3.0".as_ptr() }
/// }
/// doca_abi::check_definitions!(doca_version_functions, capi);
/// ```
#[macro_export]
macro_rules! check_definitions {
    ($table:ident, $definitions:path) => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::*;
            use $definitions as definitions;
            $crate::$table!($crate::__check_definitions);
        };
    };
    ($definitions:path) => {
        $crate::check_definitions!(doca_functions, $definitions);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __check_definitions {
    ([] header $header:literal; $(
        $(#[$doc:meta])*
        fn $name:ident($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;
    )*) => {
        $(const _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = definitions::$name;)*
    };
}

macro_rules! header {
    ([] header $header:literal; $(
        $(#[doc = $doc:literal])*
        fn $name:ident($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;
    )*) => {
        Header {
            name: $header,
            functions: &[$(
                FunctionDecl {
                    header: $header,
                    name: stringify!($name),
                    doc: concat!($($doc, "\n"),*),
                    params: &[$(Parameter { name: stringify!($param), ty: Type(stringify!($ty)) }),*],
                    ret: [$(Some(Type(stringify!($ret))),)? None][0],
                },
            )*],
        }
    };
}

/// All headers with their functions, in an order in which C can include them.
pub const fn headers() -> &'static [Header] {
    const HEADERS: &[Header] = &[
        crate::doca_error_functions!(header),
        crate::doca_version_functions!(header),
        crate::doca_log_functions!(header),
        crate::doca_dev_functions!(header),
        crate::doca_mmap_functions!(header),
        crate::doca_buf_functions!(header),
        crate::doca_buf_inventory_functions!(header),
        crate::doca_buf_pool_functions!(header),
        crate::doca_buf_array_functions!(header),
        crate::doca_clock_functions!(header),
        crate::doca_ctx_functions!(header),
        crate::doca_pe_functions!(header),
        crate::doca_comch_functions!(header),
        crate::doca_comch_consumer_functions!(header),
        crate::doca_comch_producer_functions!(header),
        crate::doca_sync_event_functions!(header),
        crate::doca_rdma_functions!(header),
        crate::doca_rdma_bridge_functions!(header),
        crate::doca_dma_functions!(header),
        crate::doca_compress_functions!(header),
        crate::doca_erasure_coding_functions!(header),
        crate::doca_sha_functions!(header),
        crate::doca_aes_gcm_functions!(header),
        crate::doca_graph_functions!(header),
        crate::doca_mmap_advise_functions!(header),
        crate::doca_argp_functions!(header),
    ];
    HEADERS
}

macro_rules! earlier {
    ([] $(header $header:literal since $since:ident until $until:ident { $(
        $(#[doc = $doc:literal])?
        fn $name:ident $(as $symbol:ident)? ($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
            $(= $target:ident $(($($argument:expr),* $(,)?))? $(as $cast:ty)?)?;
    )* })*) => {
        &[$($(
            Earlier {
                since: Release::$since,
                until: Release::$until,
                decl: EarlierFunction {
                    function: FunctionDecl {
                        header: $header,
                        name: stringify!($name),
                        doc: concat!($($doc)?),
                        params: &[$(Parameter { name: stringify!($param), ty: Type(stringify!($ty)) }),*],
                        ret: [$(Some(Type(stringify!($ret))),)? None][0],
                    },
                    symbol: [$(stringify!($symbol),)? stringify!($name)][0],
                    current: [$(Some(stringify!($target)),)? None][0],
                },
            },
        )*)*]
    };
}

/// Functions of earlier releases: see [`doca_earlier_functions!`](crate::doca_earlier_functions).
pub const EARLIER_FUNCTIONS: &[Earlier<EarlierFunction>] = crate::doca_earlier_functions!(earlier);

/// Functions that NVIDIA's headers define inline: its libraries lack these symbols, softdoca's has them.
pub const INLINE_IN_SDK: &[&str] = &[
    "doca_version",
    "doca_buf_inventory_buf_get_by_addr",
    "doca_buf_inventory_buf_get_by_data",
    "doca_buf_inventory_buf_reuse_by_addr",
    "doca_buf_inventory_buf_reuse_by_data",
];

/// A type of the API: a name and the pointers around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type(pub(crate) &'static str);

/// Constness of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointer {
    /// `*const`
    Const,
    /// `*mut`
    Mut,
}

impl Type {
    /// The name inside all pointers, e.g. `"doca_buf"` or `"u32"`.
    pub fn base(self) -> &'static str {
        self.0.rsplit([' ', '*']).next().unwrap_or(self.0)
    }

    /// The pointers, outermost first: `*mut *const c_void` has `Mut`, then `Const`.
    pub fn pointers(self) -> impl Iterator<Item = Pointer> {
        // The spacing of tokens is up to the compiler.
        self.0.split('*').skip(1).map(|pointer| {
            if pointer.trim_start().starts_with("const") {
                Pointer::Const
            } else {
                Pointer::Mut
            }
        })
    }
}

/// A parameter of a function or callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Name, as in the declaration.
    pub name: &'static str,
    /// Type as in the declaration, with its pointers.
    pub ty: Type,
}

/// A function of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionDecl {
    /// Header that declares it, e.g. `"doca_buf.h"`.
    pub header: &'static str,
    /// Name, e.g. `"doca_buf_get_len"`.
    pub name: &'static str,
    /// Documentation, as in a doc comment: lines may start with a space.
    pub doc: &'static str,
    /// Parameters in order.
    pub params: &'static [Parameter],
    /// Type of the result; `None` for `void`.
    pub ret: Option<Type>,
}

/// A function of releases before the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierFunction {
    /// Declaration of the function, without documentation.
    pub function: FunctionDecl,
    /// The symbol that the library exports: the name, or another symbol if a current function has this name.
    pub symbol: &'static str,
    /// The current function that it calls; `None` if softdoca defines it.
    pub current: Option<&'static str>,
}

/// A header and the functions it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// File name, e.g. `"doca_buf.h"`.
    pub name: &'static str,
    /// Functions in the order of the table.
    pub functions: &'static [FunctionDecl],
}

/// An enum of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnumDecl {
    /// Header that defines it.
    pub header: &'static str,
    /// Name of the Rust type, which is the C tag, or the C typedef when [`tag`](Self::tag) differs.
    pub name: &'static str,
    /// C tag: `enum <tag>`.
    pub tag: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    /// Values in ascending order of definition.
    pub values: &'static [EnumValue],
}

/// One value of an enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnumValue {
    /// Name of the constant.
    pub name: &'static str,
    /// Numeric value of the constant.
    pub value: u32,
    /// One line that explains the value. For `doca_error_t`, this is the description of the error.
    pub doc: &'static str,
}

/// A type that C programs know only by pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleDecl {
    /// Header that declares it first.
    pub header: &'static str,
    /// Name, which is the C tag: `struct <name>`.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
}

/// A type of callback function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackDecl {
    /// Header that declares it.
    pub header: &'static str,
    /// Name of the typedef, a pointer to function.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    /// Parameters in order.
    pub params: &'static [Parameter],
    /// Type of the result; `None` for `void`.
    pub ret: Option<Type>,
}

/// A constant that C programs know as a macro.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantDecl {
    /// Header that defines it.
    pub header: &'static str,
    /// Name of the macro.
    pub name: &'static str,
    /// Numeric value of the constant.
    pub value: u64,
    /// One line of documentation.
    pub doc: &'static str,
}
