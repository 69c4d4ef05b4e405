//! Converts descriptors to the model. Options that are missing, unknown, or do not apply are refused.

use std::collections::{BTreeMap, HashMap};

use heck::ToSnakeCase;
use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, FileDescriptor,
    Kind as ProtoKind, MessageDescriptor, OneofDescriptor, ReflectMessage, Value,
};

use crate::model::{
    ByteOrder, Enum, EnumValue, Field, Form, Frame, Kind, Message, Module, Prefixed, Product,
    Schema, Span, Variant,
};
use crate::{Construct, Declaration, Error, FieldType, Problem, SchemaError, Unsupported};

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
        .map(|descriptor| read_message(&context, &descriptor))
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
        let number = u32::try_from(value.number())
            .map_err(|_negative| place.error(Problem::Unsupported(Unsupported::NegativeValue)))?;
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

/// Fails if two files have the same module, because their code would overwrite each other.
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

/// Fails if two messages have the same wire name, which identifies them in errors and in the table.
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

/// Numbers of `Form` in the options file.
mod form_number {
    pub(super) const FRAME: Option<i32> = Some(1);
    pub(super) const PAYLOAD: Option<i32> = Some(2);
    pub(super) const VIEW: Option<i32> = Some(3);
    pub(super) const RECORD: Option<i32> = Some(4);
}

/// The type of a payload without bytes.
const EMPTY: &str = "google.protobuf.Empty";

/// Reads a message with its fields.
fn read_message(context: &Context, descriptor: &MessageDescriptor) -> Result<Message, SchemaError> {
    let place = context.place.message(descriptor.name());
    let fail = |problem| place.error(problem);
    let docs = context.docs(&place, descriptor.path())?;
    if descriptor.child_messages().len() + descriptor.child_enums().len() > 0 {
        return Err(fail(Problem::Unsupported(Unsupported::NestedDeclaration)));
    }
    let mut options = Options::of(&descriptor.options(), "message")
        .map_err(fail)?
        .ok_or_else(|| {
            fail(Problem::Missing {
                option: "(layout.message)",
                what: "what the message is on the wire",
            })
        })?;

    let form = options.choice("form");
    let wire_name = options.text("name");
    let size = options.number32("size");
    let at_end = options.flag("at_end");
    let reserved = spans(&mut options).map_err(fail)?;
    let product = product(&mut options).map_err(fail)?;
    let frame = options.group("frame").map_err(fail)?;
    options.finish().map_err(fail)?;

    let inapplicable = |option, to| fail(Problem::DoesNotApply { option, to });
    if at_end && form != form_number::RECORD {
        return Err(inapplicable("at_end", Construct::OtherThanRecord));
    }
    if product.is_some() && form != form_number::RECORD {
        return Err(inapplicable("product", Construct::OtherThanRecord));
    }
    if frame.is_some() && form != form_number::FRAME {
        return Err(inapplicable("frame", Construct::OtherThanFrame));
    }
    let oneofs: Vec<_> = descriptor
        .oneofs()
        .filter(|oneof| !oneof.is_synthetic())
        .collect();
    let form = match form {
        form_number::FRAME => Form::Frame(read_frame(context, &place, frame, &oneofs)?),
        form_number::PAYLOAD => Form::Payload,
        form_number::VIEW => Form::View,
        form_number::RECORD => Form::Record { at_end },
        _ => {
            return Err(fail(Problem::Missing {
                option: "form",
                what: "what the message is on the wire",
            }));
        }
    };
    if size.is_none() && form != Form::Payload {
        return Err(fail(Problem::Missing {
            option: "size",
            what: "the bytes of its fixed part",
        }));
    }
    if !matches!(form, Form::Frame(_)) && !oneofs.is_empty() {
        return Err(fail(Problem::Unsupported(Unsupported::OneofOutsideFrame)));
    }
    let fields: Vec<_> = descriptor
        .fields()
        .filter(|field| {
            field
                .containing_oneof()
                .is_none_or(|oneof| oneof.is_synthetic())
        })
        .map(|descriptor| read_field(context, &place.field(descriptor.name()), &descriptor))
        .collect::<Result<_, _>>()?;
    if form == Form::View {
        refuse_limits(&place, &fields)?;
    }
    if let Some(product) = &product {
        for factor in &product.factors {
            if !fields.iter().any(|field| field.name == *factor) {
                return Err(fail(Problem::NotFound {
                    what: Declaration::Factor,
                    found: factor.clone(),
                }));
            }
        }
    }
    Ok(Message {
        wire_name: wire_name.unwrap_or_else(|| descriptor.name().to_snake_case()),
        name: descriptor.name().to_owned(),
        docs,
        form,
        size,
        reserved,
        fields,
        product,
    })
}

/// Fails for value limits in a view: its fields are read individually after its bytes were accepted, so the limits
/// could not be checked.
fn refuse_limits(place: &Place, fields: &[Field]) -> Result<(), SchemaError> {
    for field in fields {
        let option = match field.kind {
            Kind::Number {
                constant: Some(_), ..
            } => "constant",
            Kind::Number { min: Some(_), .. } => "min",
            Kind::Number { max: Some(_), .. } => "max",
            _ => continue,
        };
        return Err(place.field(&field.name).error(Problem::DoesNotApply {
            option,
            to: Construct::ViewField,
        }));
    }
    Ok(())
}

fn read_frame(
    context: &Context,
    place: &Place,
    options: Option<Options>,
    oneofs: &[OneofDescriptor],
) -> Result<Frame, SchemaError> {
    let fail = |problem| place.error(problem);
    let missing = |option, what| fail(Problem::Missing { option, what });
    let mut options = options.ok_or_else(|| missing("frame", "where its length and type lie"))?;
    let length = number_span(&mut options, "length")
        .map_err(|problem| place.field("length").error(problem))?;
    let discriminant =
        number_span(&mut options, "type").map_err(|problem| place.field("type").error(problem))?;
    let max_size = options
        .number32("max_size")
        .ok_or_else(|| missing("max_size", "the largest frame that is accepted"))?;
    options.finish().map_err(fail)?;
    let byte_order = context.byte_order.ok_or_else(|| {
        missing(
            "byte_order",
            "that of the frame's length and type, for the file",
        )
    })?;
    let [oneof] = oneofs else {
        return Err(fail(Problem::Unsupported(Unsupported::NotOneOneof)));
    };
    let variants = oneof
        .fields()
        .map(|field| variant(context, &place.field(field.name()), &field))
        .collect::<Result<_, _>>()?;
    Ok(Frame {
        length,
        discriminant,
        byte_order,
        max_size,
        payload_name: oneof.name().to_owned(),
        payload_docs: context.docs(&place.field(oneof.name()), oneof.path())?,
        variants,
    })
}

fn variant(
    context: &Context,
    place: &Place,
    descriptor: &FieldDescriptor,
) -> Result<Variant, SchemaError> {
    let fail = |problem| place.error(problem);
    let number_missing = Problem::Missing {
        option: "message_type",
        what: "the number of its type",
    };
    let mut options = Options::of(&descriptor.options(), "field")
        .map_err(fail)?
        .ok_or_else(|| fail(number_missing.clone()))?;
    let number = options
        .number32("message_type")
        .ok_or_else(|| fail(number_missing))?;
    let extends = options.text("extends");
    let alternative_to = options.text("alternative_to");
    for option in [
        "offset",
        "width",
        "byte_order",
        "length_prefix",
        "max_length",
        "constant",
        "min",
        "max",
    ] {
        options
            .refuse(option, Construct::FramePayload)
            .map_err(fail)?;
    }
    options.finish().map_err(fail)?;
    let ProtoKind::Message(payload) = descriptor.kind() else {
        return Err(fail(Problem::Unsupported(Unsupported::PayloadIsNoMessage)));
    };
    let payload = if payload.full_name() == EMPTY {
        None
    } else if payload.package_name() == context.package {
        Some(payload.name().to_owned())
    } else {
        return Err(fail(Problem::Unsupported(
            Unsupported::PayloadOfOtherPackage,
        )));
    };
    Ok(Variant {
        name: descriptor.name().to_owned(),
        number,
        docs: context.docs(place, descriptor.path())?,
        payload,
        extends,
        alternative_to,
    })
}

fn number_span(options: &mut Options, name: &'static str) -> Result<Span, Problem> {
    let mut group = options.group(name)?.ok_or(Problem::Missing {
        option: name,
        what: "where it lies, as offset and width",
    })?;
    let offset = group.number32("offset").unwrap_or(0);
    let width = checked_width(group.number("width").unwrap_or(0), Widths::UpTo4)?;
    group.finish()?;
    Ok(Span { offset, width })
}

fn spans(options: &mut Options) -> Result<Vec<Span>, Problem> {
    options
        .groups("reserved")?
        .into_iter()
        .map(|mut group| {
            let span = Span {
                offset: group.number32("offset").unwrap_or(0),
                width: group.number32("width").unwrap_or(0),
            };
            group.finish()?;
            Ok(span)
        })
        .collect()
}

fn product(options: &mut Options) -> Result<Option<Product>, Problem> {
    let Some(mut group) = options.group("product")? else {
        return Ok(None);
    };
    let missing = |option, what| Problem::Missing { option, what };
    let product = Product {
        name: group
            .text("name")
            .ok_or(missing("product.name", "what the product is"))?,
        factors: group.texts("factors"),
        max: group
            .number("max")
            .ok_or(missing("product.max", "the largest that is accepted"))?,
    };
    group.finish()?;
    if product.factors.is_empty() {
        return Err(missing("product.factors", "the fields that are multiplied"));
    }
    Ok(Some(product))
}

/// Reads a field that has a position.
fn read_field(
    context: &Context,
    place: &Place,
    descriptor: &FieldDescriptor,
) -> Result<Field, SchemaError> {
    let docs = context.docs(place, descriptor.path())?;
    read_undocumented(context, descriptor, docs).map_err(|problem| place.error(problem))
}

fn read_undocumented(
    context: &Context,
    descriptor: &FieldDescriptor,
    docs: String,
) -> Result<Field, Problem> {
    if descriptor.is_list() || descriptor.is_map() {
        return Err(Problem::UnsupportedType(FieldType::Repeated));
    }
    if descriptor.supports_presence() && descriptor.kind().as_message().is_none() {
        return Err(Problem::UnsupportedType(FieldType::Optional));
    }
    let Some(mut options) = Options::of(&descriptor.options(), "field")? else {
        return Err(Problem::Missing {
            option: "(layout.field)",
            what: "where the field lies",
        });
    };
    let offset = options.number32("offset").ok_or(Problem::Missing {
        option: "offset",
        what: "the bytes before the field",
    })?;
    let byte_order = byte_order(&mut options)
        .or(context.byte_order)
        .ok_or(Problem::Missing {
            option: "byte_order",
            what: "which byte of the number comes first, here or for the file",
        })?;
    options.refuse("message_type", Construct::FieldOutsideOneof)?;
    let kind = kind(&mut options, descriptor)?;
    options.finish()?;
    Ok(Field {
        name: descriptor.name().to_owned(),
        docs,
        offset,
        byte_order,
        kind,
    })
}

fn kind(options: &mut Options, descriptor: &FieldDescriptor) -> Result<Kind, Problem> {
    match descriptor.kind() {
        ProtoKind::Uint32 | ProtoKind::Fixed32 => number(options, Widths::UpTo4),
        ProtoKind::Uint64 | ProtoKind::Fixed64 => number(options, Widths::Just8),
        ProtoKind::Enum(enumeration) => {
            for option in ["constant", "min", "max"] {
                options.refuse(option, Construct::Enumeration)?;
            }
            if enumeration.parent_file() != descriptor.parent_file() {
                return Err(Problem::UnsupportedType(FieldType::ForeignEnumeration));
            }
            let width = width(options, Widths::UpTo4, Construct::Enumeration)?;
            let largest = enumeration.values().map(|value| value.number()).max();
            let largest = u64::try_from(largest.unwrap_or(0)).unwrap_or(0);
            if largest > largest_number(width) {
                return Err(Problem::TooLarge {
                    option: "width",
                    max: largest_number(width),
                    found: largest,
                });
            }
            Ok(Kind::Enumeration {
                width,
                name: enumeration.name().to_owned(),
            })
        }
        ProtoKind::String => prefixed(options, Construct::Text).map(Kind::Text),
        ProtoKind::Bytes => prefixed(options, Construct::Blob).map(Kind::Blob),
        other => Err(Problem::UnsupportedType(FieldType::Named(format!(
            "{other:?}"
        )))),
    }
}

fn number(options: &mut Options, widths: Widths) -> Result<Kind, Problem> {
    let width = width(options, widths, Construct::Number)?;
    let mut bounded = |option| match options.number(option) {
        Some(found) if found > largest_number(width) => Err(Problem::TooLarge {
            option,
            max: largest_number(width),
            found,
        }),
        accepted => Ok(accepted),
    };
    let (constant, min, max) = (bounded("constant")?, bounded("min")?, bounded("max")?);
    if constant.is_some() && (min.is_some() || max.is_some()) {
        let option = if min.is_some() { "min" } else { "max" };
        return Err(Problem::DoesNotApply {
            option,
            to: Construct::Constant,
        });
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(Problem::EmptyRange { min, max });
    }
    Ok(Kind::Number {
        width,
        constant,
        min,
        max,
    })
}

fn prefixed(options: &mut Options, what: Construct) -> Result<Prefixed, Problem> {
    for option in ["width", "constant", "min", "max"] {
        options.refuse(option, what)?;
    }
    let prefix = options.number("length_prefix").ok_or(Problem::Missing {
        option: "length_prefix",
        what: "the bytes of the length before it",
    })?;
    let prefix = checked_width(prefix, Widths::UpTo8)?;
    let max = options.number32("max_length").ok_or(Problem::Missing {
        option: "max_length",
        what: "the longest that is accepted",
    })?;
    if u64::from(max) > largest_number(prefix) {
        return Err(Problem::TooLarge {
            option: "max_length",
            max: largest_number(prefix),
            found: u64::from(max),
        });
    }
    Ok(Prefixed { prefix, max })
}

fn width(options: &mut Options, widths: Widths, what: Construct) -> Result<u32, Problem> {
    for option in ["length_prefix", "max_length"] {
        options.refuse(option, what)?;
    }
    let found = options.number("width").ok_or(Problem::Missing {
        option: "width",
        what: "the bytes of the number",
    })?;
    checked_width(found, widths)
}

/// The possible widths of a number.
#[derive(Clone, Copy)]
enum Widths {
    /// For a 32-bit number.
    UpTo4,
    /// For a 64-bit number; a narrower number has to be declared as a 32-bit number.
    Just8,
    /// For a length.
    UpTo8,
}

/// Checks the width of a number.
fn checked_width(found: u64, widths: Widths) -> Result<u32, Problem> {
    let expected: &[u32] = match widths {
        Widths::UpTo4 => &[1, 2, 4],
        Widths::Just8 => &[8],
        Widths::UpTo8 => &[1, 2, 4, 8],
    };
    expected
        .iter()
        .copied()
        .find(|&width| u64::from(width) == found)
        .ok_or(Problem::Width { expected, found })
}

/// Largest number of `width` bytes.
pub(crate) fn largest_number(width: u32) -> u64 {
    u64::MAX >> (64 - 8 * width.clamp(1, 8))
}

/// Package of the options file.
const PACKAGE: &str = "doca_storage.layout";

/// Options that are set, by name.
struct Options {
    set: BTreeMap<String, Value>,
    path: String,
}

impl Options {
    /// The option message `(layout.<extension>)` in a descriptor's options; `None` if it is not set.
    pub(crate) fn of(options: &DynamicMessage, extension: &str) -> Result<Option<Self>, Problem> {
        refuse_unknown_numbers(options, "")?;
        let descriptor = options.descriptor();
        let name = format!("{PACKAGE}.{extension}");
        let Some(extension) = descriptor.parent_pool().get_extension_by_name(&name) else {
            return Ok(None);
        };
        if !options.has_extension(&extension) {
            return Ok(None);
        }
        match options.get_extension(&extension).into_owned() {
            Value::Message(message) => Self::new(&message, String::new()).map(Some),
            _ => Err(Problem::UnknownOption(name)),
        }
    }

    fn new(message: &DynamicMessage, path: String) -> Result<Self, Problem> {
        refuse_unknown_numbers(message, &path)?;
        let set = message
            .fields()
            .map(|(field, value)| (field.name().to_owned(), value.clone()))
            .collect();
        Ok(Self { set, path })
    }

    /// Takes a number; `None` if it is not set.
    pub(crate) fn number(&mut self, name: &str) -> Option<u64> {
        match self.set.remove(name)? {
            Value::U32(number) => Some(u64::from(number)),
            Value::U64(number) => Some(number),
            other => self.put_back(name, other),
        }
    }

    /// Takes a number that the options file declares with 32 bits.
    fn number32(&mut self, name: &str) -> Option<u32> {
        self.number(name)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// Takes a string; `None` if it is not set or empty.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.set.remove(name)? {
            Value::String(text) => Some(text).filter(|text| !text.is_empty()),
            other => self.put_back(name, other),
        }
    }

    /// Takes the number of an enumeration value.
    fn choice(&mut self, name: &str) -> Option<i32> {
        match self.set.remove(name)? {
            Value::EnumNumber(number) => Some(number),
            other => self.put_back(name, other),
        }
    }

    /// `true` if the option is set.
    fn flag(&mut self, name: &str) -> bool {
        match self.set.remove(name) {
            Some(Value::Bool(flag)) => flag,
            Some(other) => self.put_back(name, other).unwrap_or(false),
            None => false,
        }
    }

    /// Takes a group of options.
    fn group(&mut self, name: &str) -> Result<Option<Self>, Problem> {
        match self.set.remove(name) {
            Some(Value::Message(message)) => {
                Self::new(&message, format!("{}{name}.", self.path)).map(Some)
            }
            Some(other) => Ok(self.put_back(name, other)),
            None => Ok(None),
        }
    }

    /// Takes repeated groups of options.
    fn groups(&mut self, name: &str) -> Result<Vec<Self>, Problem> {
        let path = format!("{}{name}.", self.path);
        self.list(name)
            .iter()
            .filter_map(Value::as_message)
            .map(|message| Self::new(message, path.clone()))
            .collect()
    }

    /// Takes repeated strings.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        let list = self.list(name);
        list.iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    }

    fn list(&mut self, name: &str) -> Vec<Value> {
        match self.set.remove(name) {
            Some(Value::List(values)) => values,
            Some(other) => self.put_back(name, other).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Refuses an option that is set, because it does not apply.
    pub(crate) fn refuse(&mut self, option: &'static str, to: Construct) -> Result<(), Problem> {
        if self.set.remove(option).is_some() {
            return Err(Problem::DoesNotApply { option, to });
        }
        Ok(())
    }

    /// Refuses options that were not read.
    fn finish(self) -> Result<(), Problem> {
        match self.set.into_keys().next() {
            Some(name) => Err(Problem::UnknownOption(format!("{}{name}", self.path))),
            None => Ok(()),
        }
    }

    /// Stores an option of an unexpected type again, so that [`finish`](Self::finish) refuses it.
    fn put_back<T>(&mut self, name: &str, value: Value) -> Option<T> {
        self.set.insert(name.to_owned(), value);
        None
    }
}

/// A descriptor set may come from a newer options file, whose additional options are unknown field numbers here.
fn refuse_unknown_numbers(message: &DynamicMessage, path: &str) -> Result<(), Problem> {
    match message.unknown_fields().next() {
        Some(field) => Err(Problem::UnknownOption(format!("{path}{}", field.number()))),
        None => Ok(()),
    }
}
