//! Converts descriptors to the model. Options that are missing, unknown, or do not apply are refused.

mod message;

use std::collections::HashMap;

use heck::ToSnakeCase;
pub(crate) use message::largest_number;
use prost_reflect::{DescriptorPool, EnumDescriptor, FileDescriptor};

use crate::model::{ByteOrder, Enum, EnumValue, Message, Module, Schema};
use crate::options::Options;
use crate::{Error, Problem, SchemaError};

/// Reads the modules of `files`, which the pool was compiled from. A file without the option `file` is not a module.
pub(crate) fn schema(pool: &DescriptorPool, files: &[&str]) -> Result<Schema, Error> {
    let mut modules = Vec::new();
    let mut wire_names = HashMap::new();
    for name in files {
        let Some(file) = pool.get_file_by_name(name) else {
            return Err(Error::Compile(format!(
                "{name} is not in the descriptor set"
            )));
        };
        if let Some(module) = read_module(&file)? {
            refuse_taken_module(&modules, &module)?;
            for message in &module.messages {
                refuse_taken(&mut wire_names, &module, message)?;
            }
            modules.push(module);
        }
    }
    Ok(Schema { modules })
}

/// Current position in the schema.
#[derive(Clone)]
struct Place {
    file: String,
    message: Option<String>,
    field: Option<String>,
}

impl Place {
    fn message(&self, name: &str) -> Self {
        Self {
            message: Some(name.to_owned()),
            field: None,
            ..self.clone()
        }
    }

    fn field(&self, name: &str) -> Self {
        Self {
            field: Some(name.to_owned()),
            ..self.clone()
        }
    }

    fn error(&self, problem: Problem) -> SchemaError {
        SchemaError {
            file: self.file.clone(),
            message: self.message.clone(),
            field: self.field.clone(),
            problem,
        }
    }
}

/// A file, and the settings that its fields inherit.
struct Context {
    place: Place,
    package: String,
    byte_order: Option<ByteOrder>,
    comments: HashMap<Vec<i32>, String>,
}

impl Context {
    /// The comment above a declaration.
    fn docs(&self, place: &Place, path: &[i32]) -> Result<String, SchemaError> {
        self.comments
            .get(path)
            .cloned()
            .ok_or_else(|| place.error(Problem::NoComment))
    }
}

fn read_module(file: &FileDescriptor) -> Result<Option<Module>, SchemaError> {
    let place = Place {
        file: file.name().to_owned(),
        message: None,
        field: None,
    };
    let Some(mut options) =
        Options::of(&file.options(), "file").map_err(|problem| place.error(problem))?
    else {
        return Ok(None);
    };
    let missing = |option, what| place.error(Problem::Missing { option, what });
    let name = options
        .text("module")
        .ok_or_else(|| missing("module", "the module of the wire crate"))?;
    let byte_order = byte_order(&mut options);
    options.finish().map_err(|problem| place.error(problem))?;

    let context = Context {
        package: file.package_name().to_owned(),
        byte_order,
        comments: comments(file),
        place,
    };
    let enums = file
        .enums()
        .map(|descriptor| enumeration(&context, &descriptor))
        .collect::<Result<_, _>>()?;
    let messages = file
        .messages()
        .map(|descriptor| message::read(&context, &descriptor))
        .collect::<Result<_, _>>()?;
    Ok(Some(Module {
        file: file.name().to_owned(),
        package: context.package,
        name,
        enums,
        messages,
    }))
}

/// Comments by the path of their declaration, without the space after each `//`.
fn comments(file: &FileDescriptor) -> HashMap<Vec<i32>, String> {
    let Some(info) = &file.file_descriptor_proto().source_code_info else {
        return HashMap::new();
    };
    let mut comments = HashMap::new();
    for location in &info.location {
        let Some(text) = &location.leading_comments else {
            continue;
        };
        let lines: Vec<_> = text
            .trim_end()
            .lines()
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        if !lines.concat().trim().is_empty() {
            comments.insert(location.path.clone(), lines.join("\n"));
        }
    }
    comments
}

fn byte_order(options: &mut Options) -> Option<ByteOrder> {
    match options.choice("byte_order") {
        Some(1) => Some(ByteOrder::Big),
        Some(2) => Some(ByteOrder::Little),
        _ => None,
    }
}

fn enumeration(context: &Context, descriptor: &EnumDescriptor) -> Result<Enum, SchemaError> {
    let place = context.place.message(descriptor.name());
    let prefix = format!("{}_", descriptor.name().to_snake_case());
    let mut values = Vec::new();
    for value in descriptor.values() {
        let place = place.field(value.name());
        let number = u32::try_from(value.number()).map_err(|_negative| {
            place.error(Problem::Unsupported("a negative value has no layout"))
        })?;
        let name = value.name().to_snake_case();
        values.push(EnumValue {
            name: name.strip_prefix(&prefix).unwrap_or(&name).to_owned(),
            number,
            docs: context.docs(&place, value.path())?,
        });
    }
    Ok(Enum {
        name: descriptor.name().to_owned(),
        docs: context.docs(&place, descriptor.path())?,
        values,
    })
}

/// Refuses two files with the same module, whose code would overwrite each other.
fn refuse_taken_module(modules: &[Module], module: &Module) -> Result<(), SchemaError> {
    match modules.iter().find(|other| other.name == module.name) {
        None => Ok(()),
        Some(other) => Err(SchemaError {
            file: module.file.clone(),
            message: None,
            field: None,
            problem: Problem::DuplicateName {
                name: module.name.clone(),
                other: other.file.clone(),
            },
        }),
    }
}

/// Refuses two messages with the same wire name, which identifies them in errors and in the table.
fn refuse_taken(
    taken: &mut HashMap<String, String>,
    module: &Module,
    message: &Message,
) -> Result<(), SchemaError> {
    let path = format!("{}.{}", module.package, message.name);
    match taken.insert(message.wire_name.clone(), path) {
        None => Ok(()),
        Some(other) => Err(SchemaError {
            file: module.file.clone(),
            message: Some(message.name.clone()),
            field: None,
            problem: Problem::DuplicateName {
                name: message.wire_name.clone(),
                other,
            },
        }),
    }
}
