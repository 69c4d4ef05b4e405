//! Generates the C headers.

use std::collections::{BTreeMap, BTreeSet};

use doca_abi::{
    CONSTANTS, CallbackDecl, EARLIER_HANDLES, EARLIER_INCLUDES, EARLIER_INCLUDES_UNTIL, EnumDecl,
    FUNCTION_TYPEDEFS, HANDLES, Parameter, Pointer, RENAMED_HANDLES, Release, Type, Version,
};

use crate::declarations::{Declarations, Function};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// File name, e.g. `"doca_buf.h"`.
    pub name: &'static str,
    pub text: String,
}

/// All headers of a release, sorted by name.
///
/// The text depends only on the table.
pub fn headers(release: Release) -> Vec<Header> {
    let declarations = Declarations::of(release);
    let names = Names::of(&declarations);
    let files: BTreeSet<&str> = declarations
        .functions
        .iter()
        .map(|function| function.decl.header)
        .chain(declarations.enums.iter().map(|decl| decl.header))
        .chain(CONSTANTS.iter().map(|decl| decl.header))
        .chain(declarations.callbacks.iter().map(|decl| decl.header))
        .chain(headers_with_parts(release))
        .filter(|header| doca_abi::is_current_in(release, header))
        .collect();
    files
        .into_iter()
        .map(|name| Header {
            name,
            text: text(name, &declarations, &names),
        })
        .collect()
}

/// Defining header of each name; opaque types are not included, because they are declared wherever they are used.
type Definitions = BTreeMap<&'static str, &'static str>;

/// Kind of C declaration of a name in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A type of the language or its library, by its C name.
    Plain(&'static str),
    /// `enum tag`
    Enum(&'static str),
    /// An opaque structure.
    Handle(&'static str),
    /// A structure defined in a part.
    Struct(&'static str),
    /// A union defined in a part.
    Union(&'static str),
    Typedef(&'static str),
    /// A typedef of a function, used by pointer.
    Function(&'static str),
}

/// Kind and defining header of every name.
struct Names<'a> {
    declarations: &'a Declarations,
    definitions: Definitions,
}

impl<'a> Names<'a> {
    fn of(declarations: &'a Declarations) -> Self {
        let mut definitions = Definitions::new();
        let Declarations {
            enums, callbacks, ..
        } = declarations;
        definitions.extend(enums.iter().map(|decl| (decl.name, decl.header)));
        definitions.extend(callbacks.iter().map(|decl| (decl.name, decl.header)));
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
        definitions.insert("doca_event_channel_t", "doca_comm_channel.h");
        definitions.insert("doca_rdma_gid", "doca_rdma.h");
        definitions.insert("doca_clock_timespec_t", "doca_clock.h");
        Self {
            declarations,
            definitions,
        }
    }

    /// The header that defines a type; `None` for types of the language and opaque ones.
    fn home(&self, ty: Type) -> Option<&'static str> {
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
            "f64" => Kind::Plain("double"),
            "usize" => Kind::Plain("size_t"),
            "bool" => Kind::Plain("bool"),
            "FILE" => Kind::Plain("FILE"),
            "va_list" => Kind::Plain("va_list"),
            "doca_data" | "doca_clock_timespec_t" => Kind::Union(name),
            "doca_rdma_gid" | "doca_gather_list" => Kind::Struct(name),
            _ if FUNCTION_TYPEDEFS.contains(&name) => Kind::Function(name),
            _ => {
                if let Some(decl) = self
                    .declarations
                    .enums
                    .iter()
                    .find(|decl| decl.name == name)
                {
                    if decl.tag == decl.name {
                        Kind::Enum(name)
                    } else {
                        Kind::Typedef(name)
                    }
                } else if is_handle(name) {
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

    /// A declarator, e.g. `const struct doca_dev *dev`, or just a type if there is no name.
    fn declarator(&self, ty: Type, name: &str) -> String {
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
        // A qualifier applies to the pointee, which is on its left in C; the innermost pointer is written first.
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
            // In C, `()` would leave the parameters unspecified.
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

    fn function(&self, function: &Function) -> String {
        let decl = function.decl;
        let start = format!("{}(", self.result(decl.ret, decl.name));
        let symbol = match function.symbol {
            symbol if symbol == decl.name => String::new(),
            // The library has the current function under the name.
            symbol => format!(" __asm__(\"{symbol}\")"),
        };
        format!(
            "{}{}{symbol};\n",
            comment(decl.doc),
            wrapped(start, &self.parameters(decl.params))
        )
    }

    fn callback(&self, callback: &CallbackDecl) -> String {
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

fn enumeration(decl: &EnumDecl) -> String {
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

/// `true` for the name of an opaque type.
fn is_handle(name: &str) -> bool {
    HANDLES
        .iter()
        .chain(EARLIER_HANDLES)
        .chain(RENAMED_HANDLES)
        .any(|decl| decl.name == name)
}

/// All types used in a header's functions and callbacks.
fn types_of(functions: &[&Function], callbacks: &[&CallbackDecl]) -> Vec<Type> {
    functions
        .iter()
        .map(|function| (function.decl.params, function.decl.ret))
        .chain(
            callbacks
                .iter()
                .map(|callback| (callback.params, callback.ret)),
        )
        .flat_map(|(params, ret)| params.iter().map(|parameter| parameter.ty).chain(ret))
        .collect()
}

fn handles_of(types: &[Type]) -> BTreeSet<&'static str> {
    types
        .iter()
        .map(|ty| ty.base())
        .filter(|name| is_handle(name))
        .collect()
}

/// Converts a Rust doc comment to a C comment.
fn comment(doc: &str) -> String {
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

/// Removes Rust links and the end marker of a comment.
fn plain(text: &str) -> String {
    text.replace("[`", "")
        .replace("`]", "")
        .replace('`', "")
        .replace("*/", "* /")
}

/// `start` followed by the list, in lines of at most 120 columns with tabs of eight.
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

/// Handwritten text for one header.
struct Part {
    /// The last release that has the header.
    pub until: Release,
    /// File name of the header.
    pub header: &'static str,
    /// Text before the declarations: types that they use.
    pub before: &'static str,
    /// Text after the declarations: macros that use them.
    pub after: &'static str,
}

macro_rules! part {
    ($header:literal) => {
        Part {
            until: Release::CURRENT,
            header: concat!($header, ".h"),
            before: include_str!(concat!("../parts/", $header, ".h")),
            after: "",
        }
    };
    ($header:literal before until $until:ident) => {
        Part {
            until: Release::$until,
            ..part!($header before)
        }
    };
    ($header:literal before) => {
        Part {
            until: Release::CURRENT,
            header: concat!($header, ".h"),
            before: include_str!(concat!("../parts/", $header, ".before.h")),
            after: "",
        }
    };
    ($header:literal after) => {
        Part {
            until: Release::CURRENT,
            header: concat!($header, ".h"),
            before: "",
            after: include_str!(concat!("../parts/", $header, ".after.h")),
        }
    };
}

const PARTS: &[Part] = &[
    part!("doca_build_config"),
    part!("doca_config"),
    part!("doca_common_defines"),
    part!("doca_compat"),
    part!("doca_bitfield"),
    part!("doca_buf_array" before),
    part!("doca_clock" before),
    part!("doca_rdma_bridge" before),
    part!("doca_version" after),
    part!("doca_error" after),
    part!("doca_types" before),
    part!("doca_argp" before),
    part!("doca_comch_consumer" before),
    part!("doca_comch_producer" before),
    part!("doca_mmap" before),
    part!("doca_comm_channel" before until V2_6),
    part!("doca_rdma" before),
    part!("doca_sync_event" before),
    part!("doca_argp" before),
    part!("doca_log" after),
];

/// Headers whose parts are included by all others, so they include none of the table's headers.
const FOUNDATIONS: &[&str] = &[
    "doca_build_config.h",
    "doca_config.h",
    "doca_common_defines.h",
    "doca_compat.h",
];

fn headers_with_parts(release: Release) -> impl Iterator<Item = &'static str> {
    let parts = PARTS.iter().filter(move |part| release <= part.until);
    parts.map(|part| part.header)
}

fn part_of(header: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.header == header)
}

/// Headers that a header always includes.
///
/// Programs rely on indirect includes: `doca_compat.h` includes basic headers of the C library.
fn own_includes(header: &str) -> &'static [&'static str] {
    match header {
        _ if FOUNDATIONS.contains(&header) => &[],
        "doca_version.h" => &[],
        "doca_error.h" => &["doca_common_defines.h", "doca_compat.h"],
        "doca_types.h" => &["doca_compat.h"],
        "doca_argp.h" => &[
            "doca_compat.h",
            "doca_dev.h",
            "doca_error.h",
            "doca_log.h",
            "doca_types.h",
        ],
        _ => &["doca_compat.h", "doca_error.h", "doca_types.h"],
    }
}

/// Headers that a header also includes in 2.5 and 2.6, directly or indirectly, and on which programs for these releases
/// rely.
fn earlier_includes(header: &str, release: Release) -> &'static [&'static str] {
    if Version::from(release) > EARLIER_INCLUDES_UNTIL {
        return &[];
    }
    let found = EARLIER_INCLUDES.iter().find(|(name, _)| *name == header);
    found.map_or(&[], |(_, includes)| includes)
}

/// C library headers that a header includes.
fn system_includes(header: &str) -> &'static [&'static str] {
    match header {
        _ if FOUNDATIONS.contains(&header) => &[],
        "doca_argp.h" => &["stdarg.h"],
        "doca_log.h" => &["stddef.h", "stdint.h", "stdio.h"],
        "doca_aes_gcm.h"
        | "doca_dma.h"
        | "doca_compress.h"
        | "doca_erasure_coding.h"
        | "doca_sha.h" => &["inttypes.h", "stdbool.h", "stddef.h", "stdint.h"],
        "doca_version.h" => &["stddef.h", "stdint.h"],
        _ => &["stdbool.h", "stddef.h", "stdint.h"],
    }
}

const LICENSE: &str = "/*\n * SPDX-License-Identifier: MIT OR Apache-2.0\n *\n * Part of softdoca, DOCA's C API in software. \
Generated from its table of functions: do not edit.\n */\n";

/// The complete text of a header.
fn text(header: &'static str, declarations: &Declarations, names: &Names) -> String {
    let functions: Vec<&Function> = declarations
        .functions
        .iter()
        .filter(|function| function.decl.header == header)
        .collect();
    let callbacks: Vec<&CallbackDecl> = declarations
        .callbacks
        .iter()
        .filter(|callback| callback.header == header)
        .collect();
    let part = part_of(header);
    let types = types_of(&functions, &callbacks);

    let guard = header.replace('.', "_").to_uppercase();
    let mut sections = vec![
        LICENSE.to_owned(),
        format!("#ifndef {guard}_\n#define {guard}_\n"),
    ];
    let mut includes: String = system_includes(header)
        .iter()
        .map(|file| format!("#include <{file}>\n"))
        .collect();
    let own: BTreeSet<&str> = own_includes(header)
        .iter()
        .chain(earlier_includes(header, declarations.release))
        .copied()
        .chain(types.iter().filter_map(|ty| names.home(*ty)))
        .filter(|file| *file != header)
        .collect();
    if !includes.is_empty() && !own.is_empty() {
        includes.push('\n');
    }
    includes.extend(own.iter().map(|file| format!("#include <{file}>\n")));
    sections.push(includes);

    let declares = !functions.is_empty() || !callbacks.is_empty();
    sections.extend(
        CONSTANTS
            .iter()
            .filter(|constant| constant.header == header)
            .map(|constant| {
                format!(
                    "{}#define {} {}\n",
                    comment(constant.doc),
                    constant.name,
                    declarations.value_of(constant)
                )
            }),
    );
    sections.extend(part.map(|part| part.before.to_owned()));
    if declares {
        sections.push("#ifdef __cplusplus\nextern \"C\" {\n#endif\n".to_owned());
    }
    sections.extend(
        declarations
            .enums
            .iter()
            .filter(|decl| decl.header == header)
            .map(enumeration),
    );
    sections.push(
        handles_of(&types)
            .iter()
            .map(|name| format!("struct {name};\n"))
            .collect(),
    );
    sections.extend(callbacks.iter().map(|callback| names.callback(callback)));
    sections.extend(functions.iter().map(|function| names.function(function)));
    sections.extend(part.map(|part| part.after.to_owned()));
    if declares {
        sections.push("#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n".to_owned());
    }
    sections.push(format!("#endif /* {guard}_ */\n"));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str) -> String {
        headers(Release::CURRENT)
            .into_iter()
            .find(|header| header.name == name)
            .unwrap_or_else(|| panic!("no header {name}"))
            .text
    }

    #[test]
    fn every_function_is_declared_in_its_header() {
        let headers = headers(Release::CURRENT);
        for function in doca_abi::headers()
            .iter()
            .flat_map(|header| header.functions)
        {
            let declaration = format!("{}(", function.name);
            for header in &headers {
                assert_eq!(
                    header.text.contains(&declaration),
                    header.name == function.header,
                    "{} in {}",
                    function.name,
                    header.name
                );
            }
        }
    }

    /// A program that uses a published function, type or enum compiles, even if softdoca does not support it.
    #[test]
    fn every_published_name_is_declared() {
        let headers = headers(Release::CURRENT);
        let declares = |header: &Header, name: &str| {
            header
                .text
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .any(|word| word == name)
        };
        let mut missing = Vec::new();
        let mut functions = 0;
        for line in include_str!("../published/3.0.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
        {
            let [file, kind, name] = line
                .split(' ')
                .collect::<Vec<_>>()
                .try_into()
                .expect("header, kind and name");
            functions += usize::from(kind == "function");
            // Types are opaque or shared, so any header can declare them.
            let declared = headers
                .iter()
                .filter(|header| kind != "function" || header.name == file)
                .any(|header| declares(header, name));
            if !declared {
                missing.push(line);
            }
        }
        assert!(functions > 600, "the list has {functions} functions");
        assert!(missing.is_empty(), "{missing:#?}");
    }

    #[test]
    fn declarations_are_those_of_c() {
        let buf = header("doca_buf.h");
        assert!(
            buf.contains(
                "\ndoca_error_t doca_buf_get_len(const struct doca_buf *buf, size_t *len);\n"
            ),
            "{buf}"
        );
        let mmap = header("doca_mmap.h");
        assert!(
            mmap.contains(
                "typedef void (doca_mmap_memrange_free_cb_t)(void *addr, size_t len, void *cookie);"
            ) && mmap.contains("doca_mmap_memrange_free_cb_t *free_cb,"),
            "{mmap}"
        );
        assert!(
            mmap.contains(
                "\ndoca_error_t doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,\n"
            ),
            "{mmap}"
        );
        let pe = header("doca_pe.h");
        assert!(
            pe.contains(
                "\nunion doca_data doca_task_get_user_data(const struct doca_task *task);\n"
            ),
            "{pe}"
        );
        assert!(
            pe.contains("\ntypedef void (*doca_task_completion_cb_t)(struct doca_task *task, union doca_data task_user_data,\n"),
            "{pe}"
        );
        assert!(
            pe.contains("\nvoid doca_task_free(struct doca_task *task);\n"),
            "{pe}"
        );
        let ctx = header("doca_ctx.h");
        assert!(
            ctx.contains(
                "doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state);"
            ),
            "{ctx}"
        );
        assert!(
            header("doca_error.h")
                .contains("\nconst char *doca_error_get_name(doca_error_t error);\n")
        );
        assert!(header("doca_dev.h").contains("#define DOCA_DEVINFO_PCI_ADDR_SIZE 13\n"));
    }

    #[test]
    fn headers_are_generated_deterministically() {
        for release in Release::ALL {
            assert_eq!(headers(release), headers(release));
        }
    }
}
