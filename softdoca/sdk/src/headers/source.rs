//! A header's text.

use std::collections::BTreeSet;

use doca_abi::{CALLBACKS, CONSTANTS, CallbackDecl, ENUMS, FunctionDecl};

use super::declaration::{Names, comment, enumeration, handles_of, types_of};
use super::parts;

const LICENSE: &str = "/*\n * SPDX-License-Identifier: MIT OR Apache-2.0\n *\n * Part of softdoca, DOCA's C API in software. \
Generated from its table of functions: changes here are lost.\n */\n";

/// The whole text of a header.
pub(super) fn text(header: &'static str, names: &Names) -> String {
    let functions: &[FunctionDecl] = doca_abi::headers()
        .iter()
        .find(|candidate| candidate.name == header)
        .map_or(&[], |header| header.functions);
    let callbacks: Vec<&CallbackDecl> = CALLBACKS
        .iter()
        .filter(|callback| callback.header == header)
        .collect();
    let part = parts::of(header);
    let types = types_of(functions, &callbacks);

    let guard = header.replace('.', "_").to_uppercase();
    let mut sections = vec![
        LICENSE.to_owned(),
        format!("#ifndef {guard}_\n#define {guard}_\n"),
    ];
    let mut includes: String = parts::system_includes(header)
        .iter()
        .map(|file| format!("#include <{file}>\n"))
        .collect();
    let own: BTreeSet<&str> = parts::includes(header)
        .iter()
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
                    constant.value
                )
            }),
    );
    sections.extend(part.map(|part| part.before.to_owned()));
    if declares {
        sections.push("#ifdef __cplusplus\nextern \"C\" {\n#endif\n".to_owned());
    }
    sections.extend(
        ENUMS
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
