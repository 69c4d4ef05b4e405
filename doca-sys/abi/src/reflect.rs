//! Types that represent the tables of this crate as values.

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

    /// The pointers, outermost first: `*mut *const c_void` has `Mut`, `Const`.
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
    /// Type.
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
    /// Its value.
    pub value: u32,
    /// One line that explains it. For `doca_error_t` this is the description of the error.
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
    /// Its value.
    pub value: u64,
    /// One line of documentation.
    pub doc: &'static str,
}
