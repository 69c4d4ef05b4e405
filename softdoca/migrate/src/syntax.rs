//! Names in the syntax tree of a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use tree_sitter::{Node, Parser, Tree};

use crate::{CHECKED, Position, is_doca};

/// Language of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// C.
    C,
    /// C++, and CUDA.
    Cpp,
    /// A header, which may be either: it is parsed as both, and the result with fewer syntax errors is used.
    Header,
}

impl Language {
    /// The language of a file, by its file name extension; `None` if it is neither C nor C++.
    pub fn of_file(name: &str) -> Option<Self> {
        let (_, end) = name.rsplit_once('.')?;
        match end {
            "c" => Some(Self::C),
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hpp" | "hh" | "hxx" | "h++" | "cu" | "cuh"
            | "ipp" | "inl" | "tpp" => Some(Self::Cpp),
            "h" => Some(Self::Header),
            _ => None,
        }
    }
}

/// Syntactic position of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Expression,
    Type,
    Include,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// The argument, if it is an identifier.
    pub identifier: Option<String>,
    /// Type of the expression without pointers, if the file determines it.
    pub type_name: Option<String>,
}

/// A use of a name that is not known to be the program's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub text: String,
    pub position: Position,
    pub place: Place,
    /// The arguments, if the name is called.
    pub call: Option<Vec<Argument>>,
    /// `#include "…"`.
    pub is_quoted: bool,
}

/// Names and comments found in a file.
#[derive(Debug, Default)]
pub struct Syntax {
    pub names: Vec<Name>,
    /// Names that the file defines outside of functions.
    pub defined: BTreeSet<String>,
    /// Files of `#include "…"`.
    pub includes: Vec<String>,
    /// Lines whose calls are marked as [`CHECKED`].
    pub checked_lines: BTreeSet<usize>,
    /// The types of the members of all structs; `None` if members of several types have the name.
    members: HashMap<String, Option<String>>,
}

/// Bodies of macros are parsed as statements of a function.
const BEFORE_BODY: &str = "void f(void) {";
const AFTER_BODY: &str = "\n;}";

impl Syntax {
    pub fn parse(source: &str, language: Language) -> Self {
        let (mut parsed, is_cpp) = match language {
            Language::C => (tree(source, false), false),
            Language::Cpp => (tree(source, true), true),
            Language::Header => {
                let [c, cpp] = [tree(source, false), tree(source, true)];
                if errors(&cpp) < errors(&c) {
                    (cpp, true)
                } else {
                    (c, false)
                }
            }
        };
        let mut syntax = Self::default();
        let text = Text::new(source);
        let comments = comments(&parsed);
        for comment in &comments {
            if source[comment.clone()].contains(CHECKED) {
                syntax.checked_lines.insert(text.checked_line(comment));
            }
        }
        let without_comments = without_comments_in_directives(&text, &comments);
        let source = without_comments.as_deref().unwrap_or(source);
        if without_comments.is_some() {
            parsed = tree(source, is_cpp);
        }
        collect_members(&parsed, source, &mut syntax.members);
        let mut walk = Walk {
            syntax: &mut syntax,
            text,
            is_cpp,
            scopes: vec![Scope::default()],
        };
        let offset = Offset {
            bytes: 0,
            removed: 0,
        };
        walk.tree(&parsed, source, offset);
        let variables = walk.scopes.swap_remove(0).variables;
        syntax
            .defined
            .extend(variables.into_keys().filter(|name| is_doca(name)));
        syntax
    }
}

fn comments(tree: &Tree) -> Vec<Range<usize>> {
    let mut comments = Vec::new();
    preorder(tree.root_node(), |node| {
        if node.kind() == "comment" {
            comments.push(node.byte_range());
        }
        true
    });
    comments
}

/// Replaces comments within directives, if any, by the same number of spaces: the grammars end the body of a macro at a
/// comment.
fn without_comments_in_directives(text: &Text<'_>, comments: &[Range<usize>]) -> Option<String> {
    let mut bytes = Vec::new();
    for comment in comments {
        let is_block = text.source[comment.clone()].starts_with("/*");
        if !is_block || !text.is_in_directive(comment.start) {
            continue;
        }
        if bytes.is_empty() {
            bytes = text.source.as_bytes().to_vec();
        }
        for at in comment.clone() {
            if bytes[at] != b'\n' {
                bytes[at] = b' ';
            } else if at > comment.start {
                // The directive continues after the comment.
                bytes[at - 1] = b'\\';
            }
        }
    }
    (!bytes.is_empty()).then(|| String::from_utf8(bytes).expect("whole comments were replaced"))
}

fn tree(source: &str, is_cpp: bool) -> Tree {
    let mut parser = Parser::new();
    let language = if is_cpp {
        tree_sitter_cpp::LANGUAGE
    } else {
        tree_sitter_c::LANGUAGE
    };
    parser
        .set_language(&language.into())
        .expect("the grammars are of a version that the parser reads");
    parser
        .parse(source, None)
        .expect("a parser with a language and without a time limit returns a tree")
}

/// Number of nodes with an error of syntax.
fn errors(tree: &Tree) -> usize {
    let mut count = 0;
    preorder(tree.root_node(), |node| {
        count += usize::from(node.is_error() || node.is_missing());
        node.has_error()
    });
    count
}

/// Calls `enter` for each node, whose result determines whether its children are visited.
fn preorder<'t>(root: Node<'t>, mut enter: impl FnMut(Node<'t>) -> bool) {
    let mut cursor = root.walk();
    loop {
        if enter(cursor.node()) && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

/// Declared variables, with their types.
#[derive(Debug, Default)]
struct Scope {
    variables: BTreeMap<String, Option<String>>,
    /// `true` if this is not the scope of the file.
    is_nested: bool,
    is_namespace: bool,
}

impl Scope {
    fn of(node: Node<'_>) -> Self {
        Self {
            is_nested: true,
            is_namespace: node.kind() == "namespace_definition",
            ..Self::default()
        }
    }

    fn declare(&mut self, name: &str, ty: Option<String>) {
        self.variables.insert(name.to_owned(), ty);
    }
}

/// Converts bytes of the file to lines and columns.
struct Text<'s> {
    source: &'s str,
    starts: Vec<usize>,
}

impl<'s> Text<'s> {
    fn new(source: &'s str) -> Self {
        let starts = std::iter::once(0)
            .chain(source.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { source, starts }
    }

    /// Line, from 0, and its first byte.
    fn line(&self, byte: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= byte) - 1;
        (line, self.starts[line])
    }

    /// Line, from 1, to which a comment with [`CHECKED`] applies.
    fn checked_line(&self, comment: &Range<usize>) -> usize {
        let (line, first) = self.line(comment.start);
        let is_alone = self.source[first..comment.start].trim().is_empty();
        if is_alone {
            self.line(comment.end).0 + 2
        } else {
            line + 1
        }
    }

    fn is_in_directive(&self, byte: usize) -> bool {
        let (line, _) = self.line(byte);
        let text = |line: usize| {
            let end = self
                .starts
                .get(line + 1)
                .map_or(self.source.len(), |end| end - 1);
            self.source[self.starts[line]..end].trim_end_matches('\r')
        };
        let first = (1..=line)
            .rev()
            .find(|line| !text(line - 1).ends_with('\\'))
            .unwrap_or(0);
        text(first).trim_start().starts_with('#')
    }

    fn position(&self, start: usize, length: usize) -> Position {
        let (line, first) = self.line(start);
        let column = self.source[first..start].chars().count() + 1;
        Position {
            line: line + 1,
            column,
            end_column: column + self.source[start..start + length].chars().count(),
        }
    }
}

/// Position of a parsed text in the file: `bytes` is added, and the length of the text inserted before it, `removed`,
/// is subtracted.
#[derive(Debug, Clone, Copy)]
struct Offset {
    bytes: usize,
    removed: usize,
}

struct Walk<'s, 'r> {
    syntax: &'r mut Syntax,
    text: Text<'s>,
    is_cpp: bool,
    scopes: Vec<Scope>,
}

impl Walk<'_, '_> {
    /// Visits all nodes of a tree; `text` is the text from which it was parsed.
    fn tree(&mut self, tree: &Tree, text: &str, offset: Offset) {
        let mut cursor = tree.walk();
        loop {
            let node = cursor.node();
            if opens_scope(node) {
                self.scopes.push(Scope::of(node));
            }
            self.enter(node, text, offset);
            if cursor.goto_first_child() {
                continue;
            }
            loop {
                if opens_scope(cursor.node()) {
                    self.scopes.pop();
                }
                if cursor.goto_next_sibling() {
                    break;
                }
                if !cursor.goto_parent() {
                    return;
                }
            }
        }
    }

    fn enter(&mut self, node: Node<'_>, text: &str, offset: Offset) {
        let of = |node: Node<'_>| &text[node.byte_range()];
        match node.kind() {
            "preproc_include" => {
                if let Some(path) = node.child_by_field_name("path") {
                    self.include(path, of(path), offset);
                }
            }
            "preproc_def" | "preproc_function_def" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.syntax.defined.insert(of(name).to_owned());
                }
                if let Some(value) = node.child_by_field_name("value") {
                    let parameters = node.child_by_field_name("parameters");
                    let parameters = parameters.map(of).unwrap_or_default();
                    self.body(value, of(value), parameters, offset);
                }
            }
            "preproc_call" => {
                let directive = node.child_by_field_name("directive").map(of);
                if directive == Some("#undef")
                    && let Some(argument) = node.child_by_field_name("argument")
                {
                    self.body(argument, of(argument), "", offset);
                }
            }
            "declaration"
            | "parameter_declaration"
            | "optional_parameter_declaration"
            | "for_range_loop" => self.declare(node, text),
            "field_declaration_list" if self.is_cpp => self.declare_members(node, text),
            "function_definition" => {
                if let Some(name) = declared_name(node) {
                    match &mut self.scopes[..] {
                        // A declaration in a namespace, or of a function in a macro's body.
                        [.., outer, _] if outer.is_nested => outer.declare(of(name), None),
                        _ => drop(self.syntax.defined.insert(of(name).to_owned())),
                    }
                }
            }
            "struct_specifier" | "union_specifier" | "enum_specifier" | "class_specifier" => {
                if node.child_by_field_name("body").is_some()
                    && let Some(name) = node.child_by_field_name("name")
                {
                    self.syntax.defined.insert(of(name).to_owned());
                }
            }
            "type_definition" => {
                let mut cursor = node.walk();
                for declarator in node.children_by_field_name("declarator", &mut cursor) {
                    if let Some(name) = innermost(declarator) {
                        self.syntax.defined.insert(of(name).to_owned());
                    }
                }
            }
            "alias_declaration" | "enumerator" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.syntax.defined.insert(of(name).to_owned());
                }
            }
            "identifier" => self.identifier(node, text, offset, Place::Expression),
            "type_identifier" => self.identifier(node, text, offset, Place::Type),
            _ => {}
        }
    }

    fn include(&mut self, path: Node<'_>, text: &str, offset: Offset) {
        let is_quoted = path.kind() == "string_literal";
        let file = text.trim_matches(['"', '<', '>']);
        if is_quoted {
            self.syntax.includes.push(file.to_owned());
        }
        let start = path.start_byte() + offset.bytes - offset.removed + 1;
        let name = file.rsplit('/').next().unwrap_or(file);
        let before = file.len() - name.len();
        self.syntax.names.push(Name {
            text: name.to_owned(),
            position: self.text.position(start + before, name.len()),
            place: Place::Include,
            call: None,
            is_quoted,
        });
    }

    /// The body of a macro.
    fn body(&mut self, value: Node<'_>, body: &str, parameters: &str, offset: Offset) {
        if !body.contains("doca_") && !body.contains("DOCA_") {
            return;
        }
        let parsed = [BEFORE_BODY, body, AFTER_BODY].concat();
        let mut scope = Scope::of(value);
        for parameter in parameters.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            scope.declare(parameter, None);
        }
        self.scopes.push(scope);
        let offset = Offset {
            bytes: value.start_byte() + offset.bytes - offset.removed,
            removed: BEFORE_BODY.len(),
        };
        self.tree(&tree(&parsed, self.is_cpp), &parsed, offset);
        self.scopes.pop();
    }

    /// Adds the variables of a declaration to the innermost scope.
    fn declare(&mut self, node: Node<'_>, text: &str) {
        let ty = node
            .child_by_field_name("type")
            .and_then(|ty| type_name(ty, text));
        let mut cursor = node.walk();
        for declarator in node.children_by_field_name("declarator", &mut cursor) {
            // A prototype outside of a namespace is a use.
            if is_function(declarator) && !self.is_in_namespace() {
                continue;
            }
            if let Some(name) = innermost(declarator)
                && let Some(scope) = self.scopes.last_mut()
            {
                scope.declare(&text[name.byte_range()], ty.clone());
            }
        }
    }

    /// Members of a C++ class are accessible without an object within the class.
    fn declare_members(&mut self, list: Node<'_>, text: &str) {
        let mut cursor = list.walk();
        for member in list.children(&mut cursor) {
            let mut cursor = member.walk();
            for declarator in member.children_by_field_name("declarator", &mut cursor) {
                if let Some(name) = innermost(declarator)
                    && let Some(scope) = self.scopes.last_mut()
                {
                    scope.declare(&text[name.byte_range()], None);
                }
            }
        }
    }

    fn identifier(&mut self, node: Node<'_>, text: &str, offset: Offset, place: Place) {
        let name = &text[node.byte_range()];
        // Offsets of a body are valid only within it.
        if node.start_byte() < offset.removed || is_of_namespace(node, text) || is_no_use(node) {
            return;
        }
        let is_tag = node
            .parent()
            .is_some_and(|it| it.kind().ends_with("_specifier"));
        if !is_doca(name) || (!is_tag && self.variable(name).is_some()) {
            return;
        }
        let start = node.start_byte() + offset.bytes - offset.removed;
        if start + name.len() > self.text.source.len() {
            return;
        }
        let call = self.call(node, text);
        self.syntax.names.push(Name {
            text: name.to_owned(),
            position: self.text.position(start, name.len()),
            place,
            call,
            is_quoted: false,
        });
    }

    fn is_in_namespace(&self) -> bool {
        self.scopes.last().is_some_and(|scope| scope.is_namespace)
    }

    /// The type of a variable in scope, if it is known.
    fn variable(&self, name: &str) -> Option<&Option<String>> {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.variables.get(name))
    }

    /// The arguments, if an identifier is called.
    fn call(&self, node: Node<'_>, text: &str) -> Option<Vec<Argument>> {
        let mut function = node;
        let mut parent = node.parent()?;
        // `::f(…)`
        while parent.kind() == "qualified_identifier" {
            (function, parent) = (parent, parent.parent()?);
        }
        if parent.kind() != "call_expression"
            || parent.child_by_field_name("function") != Some(function)
        {
            return None;
        }
        let list = parent.child_by_field_name("arguments")?;
        let mut cursor = list.walk();
        let arguments = list
            .named_children(&mut cursor)
            .filter(|it| it.kind() != "comment")
            .map(|argument| Argument {
                identifier: (argument.kind() == "identifier")
                    .then(|| text[argument.byte_range()].to_owned()),
                type_name: self.type_of(argument, text),
            });
        Some(arguments.collect())
    }

    /// Type of an expression without pointers, if it is simple enough.
    fn type_of(&self, expression: Node<'_>, text: &str) -> Option<String> {
        let mut expression = expression;
        loop {
            expression = match expression.kind() {
                "pointer_expression" => expression.child_by_field_name("argument")?,
                "subscript_expression" => expression.child_by_field_name("argument")?,
                "parenthesized_expression" => expression.named_child(0)?,
                "cast_expression" => {
                    let ty = expression.child_by_field_name("type")?;
                    return type_name(ty.child_by_field_name("type")?, text);
                }
                "number_literal" => return Some("int".to_owned()),
                "sizeof_expression" => return Some("size_t".to_owned()),
                "identifier" => return self.variable(&text[expression.byte_range()])?.clone(),
                "field_expression" => {
                    let field = expression.child_by_field_name("field")?;
                    let members = &self.syntax.members;
                    return members.get(&text[field.byte_range()])?.clone();
                }
                _ => return None,
            };
        }
    }
}

fn collect_members(tree: &Tree, text: &str, members: &mut HashMap<String, Option<String>>) {
    preorder(tree.root_node(), |node| {
        if node.kind() == "field_declaration" {
            let ty = node
                .child_by_field_name("type")
                .and_then(|ty| type_name(ty, text));
            let mut cursor = node.walk();
            for declarator in node.children_by_field_name("declarator", &mut cursor) {
                if let Some(name) = innermost(declarator) {
                    members
                        .entry(text[name.byte_range()].to_owned())
                        .and_modify(|known| {
                            if *known != ty {
                                *known = None;
                            }
                        })
                        .or_insert_with(|| ty.clone());
                }
            }
        }
        true
    });
}

/// `true` for the nodes that limit the scope of the variables declared in them.
fn opens_scope(node: Node<'_>) -> bool {
    matches!(
        node.kind(),
        "function_definition"
            | "compound_statement"
            | "for_statement"
            | "for_range_loop"
            | "lambda_expression"
            | "catch_clause"
            | "field_declaration_list"
            | "namespace_definition"
    ) || node.kind() == "function_declarator" && !is_of_definition(node)
}

/// `true` for the declarator of a function with a body, whose parameters are visible there.
fn is_of_definition(declarator: Node<'_>) -> bool {
    let mut node = declarator;
    while let Some(parent) = node.parent() {
        match parent.kind() {
            "pointer_declarator"
            | "reference_declarator"
            | "parenthesized_declarator"
            | "attributed_declarator" => node = parent,
            kind => {
                return matches!(
                    kind,
                    "function_definition" | "lambda_declarator" | "lambda_expression"
                );
            }
        }
    }
    false
}

/// The name in a declarator.
fn innermost(declarator: Node<'_>) -> Option<Node<'_>> {
    let mut node = declarator;
    loop {
        node = match node.kind() {
            "identifier" | "field_identifier" | "type_identifier" => return Some(node),
            "init_declarator"
            | "pointer_declarator"
            | "array_declarator"
            | "function_declarator" => node.child_by_field_name("declarator")?,
            "reference_declarator" | "parenthesized_declarator" | "attributed_declarator" => {
                node.named_child(0)?
            }
            _ => return None,
        };
    }
}

/// `true` for a declarator of a function, but not of a pointer to a function.
fn is_function(declarator: Node<'_>) -> bool {
    let mut node = declarator;
    loop {
        node = match node.kind() {
            "function_declarator" => {
                let inner = node.child_by_field_name("declarator");
                return inner.is_some_and(|it| it.kind() == "identifier");
            }
            "pointer_declarator" | "init_declarator" => {
                match node.child_by_field_name("declarator") {
                    Some(inner) => inner,
                    None => return false,
                }
            }
            _ => return false,
        };
    }
}

/// The name of a function definition, unless it is a member of a class or namespace.
fn declared_name(definition: Node<'_>) -> Option<Node<'_>> {
    let name = innermost(definition.child_by_field_name("declarator")?)?;
    (name.kind() == "identifier").then_some(name)
}

/// Name of a type without qualifiers and pointers; for a struct, its tag.
fn type_name(ty: Node<'_>, text: &str) -> Option<String> {
    let node = match ty.kind() {
        "struct_specifier" | "union_specifier" | "enum_specifier" | "class_specifier" => {
            ty.child_by_field_name("name")?
        }
        "type_identifier" | "primitive_type" | "sized_type_specifier" => ty,
        _ => return None,
    };
    Some(text[node.byte_range()].to_owned())
}

/// `true` for a name after `a::`; DOCA's names are in no namespace.
fn is_of_namespace(node: Node<'_>, text: &str) -> bool {
    let mut node = node;
    while let Some(parent) = node.parent() {
        match parent.kind() {
            "template_type" | "template_function" => node = parent,
            "qualified_identifier" => {
                let is_name = parent.child_by_field_name("name") == Some(node);
                let scope = parent.child_by_field_name("scope");
                return is_name && scope.is_some_and(|scope| !text[scope.byte_range()].is_empty());
            }
            _ => return false,
        }
    }
    false
}

/// `true` for the name of an attribute or of a macro's parameter.
fn is_no_use(node: Node<'_>) -> bool {
    let parent = node.parent().map(|it| it.kind());
    matches!(parent, Some("attribute" | "preproc_params"))
}
