//! Declarations in C.

use std::collections::BTreeSet;

use doca_abi::{
    CALLBACKS, CallbackDecl, ENUMS, EnumDecl, FUNCTION_TYPEDEFS, FunctionDecl, HANDLES, Parameter,
    Pointer, Type,
};

use super::Definitions;

/// What a name of the table is in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A type of the language or of its library, under C's name.
    Plain(&'static str),
    /// `enum tag`
    Enum(&'static str),
    /// An opaque structure.
    Handle(&'static str),
    /// A structure that is defined in a part.
    Struct(&'static str),
    /// A union that is defined in a part.
    Union(&'static str),
    /// A typedef.
    Typedef(&'static str),
    /// A typedef of a function, which is used by pointer.
    Function(&'static str),
}

/// Meaning and home of every name.
pub(super) struct Names {
    definitions: Definitions,
}

impl Names {
    pub(super) fn of_the_table() -> Self {
        let mut definitions = Definitions::new();
        definitions.extend(ENUMS.iter().map(|decl| (decl.name, decl.header)));
        definitions.extend(CALLBACKS.iter().map(|decl| (decl.name, decl.header)));
        for name in [
            "doca_data",
            "doca_gather_list",
            "doca_be16_t",
            "doca_be32_t",
            "doca_be64_t",
            "doca_event_handle_t",
            "doca_notification_handle_t",
        ] {
            definitions.insert(name, "doca_types.h");
        }
        definitions.insert("doca_rdma_gid", "doca_rdma.h");
        definitions.insert("doca_clock_timespec_t", "doca_clock.h");
        Self { definitions }
    }

    /// The header that defines a type; `None` for types of the language and opaque ones.
    pub(super) fn home(&self, ty: Type) -> Option<&'static str> {
        self.definitions.get(ty.base()).copied()
    }

    fn kind(&self, name: &'static str) -> Kind {
        match name {
            "c_void" => Kind::Plain("void"),
            "c_char" => Kind::Plain("char"),
            "c_int" => Kind::Plain("int"),
            "u8" => Kind::Plain("uint8_t"),
            "u16" => Kind::Plain("uint16_t"),
            "u32" => Kind::Plain("uint32_t"),
            "u64" => Kind::Plain("uint64_t"),
            "i32" => Kind::Plain("int32_t"),
            "i64" => Kind::Plain("int64_t"),
            "usize" => Kind::Plain("size_t"),
            "bool" => Kind::Plain("bool"),
            "FILE" => Kind::Plain("FILE"),
            "va_list" => Kind::Plain("va_list"),
            "doca_data" | "doca_clock_timespec_t" => Kind::Union(name),
            "doca_rdma_gid" | "doca_gather_list" => Kind::Struct(name),
            _ if FUNCTION_TYPEDEFS.contains(&name) => Kind::Function(name),
            _ => {
                if let Some(decl) = ENUMS.iter().find(|decl| decl.name == name) {
                    if decl.tag == decl.name {
                        Kind::Enum(name)
                    } else {
                        Kind::Typedef(name)
                    }
                } else if HANDLES.iter().any(|decl| decl.name == name) {
                    Kind::Handle(name)
                } else {
                    assert!(
                        self.definitions.contains_key(name),
                        "the table uses the type {name}, which no header defines"
                    );
                    Kind::Typedef(name)
                }
            }
        }
    }

    /// A declarator, e.g. `const struct doca_dev *dev`, or a type alone when there is no name.
    pub(super) fn declarator(&self, ty: Type, name: &str) -> String {
        let base = match self.kind(ty.base()) {
            Kind::Plain(name) | Kind::Typedef(name) => name.to_owned(),
            Kind::Enum(name) => format!("enum {name}"),
            Kind::Handle(name) | Kind::Struct(name) => format!("struct {name}"),
            Kind::Union(name) => format!("union {name}"),
            Kind::Function(typedef) => {
                assert_eq!(
                    ty.pointers().count(),
                    0,
                    "a pointer to a pointer to {typedef}"
                );
                return format!("{typedef} *{name}");
            }
        };
        // A pointer says what may be done with what it points to; so each one qualifies what is to its left, and the
        // innermost is the first that C writes.
        let pointers: Vec<Pointer> = ty.pointers().collect();
        let mut text = base;
        for (depth, pointer) in pointers.iter().rev().enumerate() {
            match (depth, pointer) {
                (0, Pointer::Const) => text = format!("const {text} *"),
                (_, Pointer::Const) => text.push_str("const *"),
                (0, Pointer::Mut) => text.push_str(" *"),
                (_, Pointer::Mut) => text.push('*'),
            }
        }
        if name.is_empty() {
            return text;
        }
        if pointers.is_empty() {
            text.push(' ');
        }
        text.push_str(name);
        text
    }

    fn parameters(&self, params: &[Parameter]) -> Vec<String> {
        if params.is_empty() {
            // In C, `()` would say nothing about the parameters.
            return vec!["void".to_owned()];
        }
        params
            .iter()
            .map(|parameter| self.declarator(parameter.ty, parameter.name))
            .collect()
    }

    fn result(&self, ret: Option<Type>, name: &str) -> String {
        match ret {
            Some(ty) => self.declarator(ty, name),
            None => format!("void {name}").trim_end().to_owned(),
        }
    }

    pub(super) fn function(&self, function: &FunctionDecl) -> String {
        let start = format!("{}(", self.result(function.ret, function.name));
        format!(
            "{}{};\n",
            comment(function.doc),
            wrapped(start, &self.parameters(function.params))
        )
    }

    pub(super) fn callback(&self, callback: &CallbackDecl) -> String {
        let result = self.result(callback.ret, "");
        let space = if result.ends_with('*') { "" } else { " " };
        let star = if FUNCTION_TYPEDEFS.contains(&callback.name) {
            ""
        } else {
            "*"
        };
        let start = format!("typedef {result}{space}({star}{})(", callback.name);
        format!(
            "{}{};\n",
            comment(callback.doc),
            wrapped(start, &self.parameters(callback.params))
        )
    }
}

pub(super) fn enumeration(decl: &EnumDecl) -> String {
    let mut text = comment(decl.doc);
    let typedef = decl.name != decl.tag;
    if typedef {
        text.push_str("typedef ");
    }
    text.push_str(&format!("enum {} {{\n", decl.tag));
    for value in decl.values {
        text.push_str(&format!(
            "\t{} = {}, /**< {} */\n",
            value.name,
            value.value,
            plain(value.doc)
        ));
    }
    if typedef {
        text.push_str(&format!("}} {};\n", decl.name));
    } else {
        text.push_str("};\n");
    }
    text
}

/// Every type that a header's functions and callbacks name.
pub(super) fn types_of(functions: &[FunctionDecl], callbacks: &[&CallbackDecl]) -> Vec<Type> {
    functions
        .iter()
        .map(|function| (function.params, function.ret))
        .chain(
            callbacks
                .iter()
                .map(|callback| (callback.params, callback.ret)),
        )
        .flat_map(|(params, ret)| params.iter().map(|parameter| parameter.ty).chain(ret))
        .collect()
}

/// Opaque types among types.
pub(super) fn handles_of(types: &[Type]) -> BTreeSet<&'static str> {
    types
        .iter()
        .map(|ty| ty.base())
        .filter(|name| HANDLES.iter().any(|decl| decl.name == *name))
        .collect()
}

/// A Rust doc comment as a C one.
pub(super) fn comment(doc: &str) -> String {
    let lines: Vec<String> = doc.trim().lines().map(|line| plain(line.trim())).collect();
    match &lines[..] {
        [] => String::new(),
        [line] => format!("/** {line} */\n"),
        lines => {
            let mut text = String::from("/**\n");
            for line in lines {
                text.push_str(format!(" * {line}").trim_end());
                text.push('\n');
            }
            text.push_str(" */\n");
            text
        }
    }
}

/// Without Rust's links, and without what would end a comment.
fn plain(text: &str) -> String {
    text.replace("[`", "")
        .replace("`]", "")
        .replace('`', "")
        .replace("*/", "* /")
}

/// `start` with the list behind it, in lines of at most 120 columns with tabs of eight.
fn wrapped(start: String, list: &[String]) -> String {
    const COLUMNS: usize = 120;
    let one_line = format!("{start}{})", list.join(", "));
    if one_line.len() < COLUMNS {
        return one_line;
    }
    let mut text = start.clone();
    let indent = format!(
        "{}{}",
        "\t".repeat(start.len() / 8),
        " ".repeat(start.len() % 8)
    );
    let mut column = start.len();
    for (index, item) in list.iter().enumerate() {
        let last = index + 1 == list.len();
        if index > 0 {
            if column + item.len() + 3 > COLUMNS {
                text.push('\n');
                text.push_str(&indent);
                column = start.len();
            } else {
                text.push(' ');
                column += 1;
            }
        }
        text.push_str(item);
        text.push(if last { ')' } else { ',' });
        column += item.len() + 1;
    }
    text
}
