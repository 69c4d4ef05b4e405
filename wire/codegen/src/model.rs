//! The schema as used by the generator: protobuf descriptors joined with the layout options.
//!
//! Offsets, widths and sizes are in bytes.

/// All modules, in the order in which their files were passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// One per file of the schema, in order.
    pub modules: Vec<Module>,
}

/// One file of the schema, which is one module of the wire crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The file, as passed to the generator.
    pub file: String,
    /// Protobuf package of the file.
    pub package: String,
    /// Name of the module.
    pub name: String,
    /// Enumerations, in order of declaration.
    pub enums: Vec<Enum>,
    /// Messages, in order of declaration.
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enum {
    /// Name of the Rust type and of the protobuf enumeration.
    pub name: String,
    /// Comment in the schema.
    pub docs: String,
    /// Values of the enumeration, in order of declaration.
    pub values: Vec<EnumValue>,
}

/// A value of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumValue {
    /// Name in snake case, without the enumeration's own.
    pub name: String,
    /// Number on the wire.
    pub number: u32,
    /// Comment in the schema.
    pub docs: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Name of the Rust type and of the protobuf message.
    pub name: String,
    /// Name in errors and in the table of offsets.
    pub wire_name: String,
    /// Comment in the schema.
    pub docs: String,
    /// Form on the wire.
    pub form: Form,
    /// Fixed size, if one is stated.
    pub size: Option<u32>,
    /// Reserved bytes.
    pub reserved: Vec<Span>,
    /// Fields with a position, in the order of declaration, which is that of offsets.
    pub fields: Vec<Field>,
    /// Limit to a product of fields.
    pub product: Option<Product>,
}

impl Message {
    /// Minimum size, reserved bytes included.
    #[must_use]
    pub fn fixed_width(&self) -> u32 {
        let fields = self.fields.iter().map(Field::fixed_width);
        let mut width: u32 = fields
            .chain(self.reserved.iter().map(|span| span.width))
            .sum();
        if let Form::Frame(frame) = &self.form {
            width += frame.length.width + frame.discriminant.width;
        }
        width
    }

    /// Maximum size beyond the minimum.
    #[must_use]
    pub fn variable_width(&self) -> u32 {
        self.fields.iter().map(Field::variable_width).sum()
    }
}

/// Form of a message on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A header followed by a payload.
    Frame(Frame),
    /// The payload of a frame.
    Payload,
    /// Fixed size, read and written in place.
    View,
    /// Fixed size, part of a larger structure.
    Record {
        /// `true` if the record is at the end of the structure instead of its start.
        at_end: bool,
    },
}

/// Properties of a frame other than its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Position of the length of the rest of the frame.
    pub length: Span,
    /// Position of the payload's type number.
    pub discriminant: Span,
    /// Byte order of the two.
    pub byte_order: ByteOrder,
    /// Largest accepted frame.
    pub max_size: u32,
    /// Name of the field that holds the payload.
    pub payload_name: String,
    /// Comment of the payload in the schema.
    pub payload_docs: String,
    /// All payloads.
    pub variants: Vec<Variant>,
}

/// One payload of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Name in snake case.
    pub name: String,
    /// Number of the type.
    pub number: u32,
    /// Comment in the schema.
    pub docs: String,
    /// Message of the payload, in the same module; `None` for an empty payload.
    pub payload: Option<String>,
    /// Name of the variant of the same type of which this one is a longer form.
    pub extends: Option<String>,
    /// Name of the variant of the same type that this one replaces in another release of the protocol.
    pub alternative_to: Option<String>,
}

impl Frame {
    /// The longer forms of a variant, in the order of their declaration.
    pub fn extensions_of<'a>(&'a self, variant: &'a Variant) -> impl Iterator<Item = &'a Variant> {
        let variants = self.variants.iter();
        variants.filter(|other| other.extends.as_ref() == Some(&variant.name))
    }

    /// The other release's form of a variant.
    #[must_use]
    pub fn alternative_of<'a>(&'a self, variant: &'a Variant) -> Option<&'a Variant> {
        let mut variants = self.variants.iter();
        variants.find(|other| other.alternative_to.as_ref() == Some(&variant.name))
    }

    /// The variants after which types are named, i.e. those that are not another form of a variant.
    pub fn types(&self) -> impl Iterator<Item = &Variant> {
        self.variants
            .iter()
            .filter(|variant| variant.extends.is_none() && variant.alternative_to.is_none())
    }

    /// The variant after which the type of this one is named.
    #[must_use]
    pub fn type_of<'a>(&'a self, variant: &'a Variant) -> &'a Variant {
        let base = variant.extends.as_ref().or(variant.alternative_to.as_ref());
        base.and_then(|base| self.variants.iter().find(|other| other.name == *base))
            .unwrap_or(variant)
    }
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub offset: u32,
    pub width: u32,
}

/// A field of a record: its name, type and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Comment in the schema.
    pub docs: String,
    pub offset: u32,
    /// Byte order of its number or its length.
    pub byte_order: ByteOrder,
    /// Value of the field.
    pub kind: Kind,
}

impl Field {
    /// Minimum size: of its number, or of its length prefix.
    #[must_use]
    pub fn fixed_width(&self) -> u32 {
        match self.kind {
            Kind::Number { width, .. } | Kind::Enumeration { width, .. } => width,
            Kind::Text(limit) | Kind::Blob(limit) => limit.prefix,
        }
    }

    /// Maximum size beyond the minimum.
    #[must_use]
    pub fn variable_width(&self) -> u32 {
        match self.kind {
            Kind::Number { .. } | Kind::Enumeration { .. } => 0,
            Kind::Text(limit) | Kind::Blob(limit) => limit.max,
        }
    }

    /// `true` if its size depends on its content.
    #[must_use]
    pub fn is_variable(&self) -> bool {
        matches!(self.kind, Kind::Text(_) | Kind::Blob(_))
    }

    /// The value of a constant field, which is not part of the generated structure.
    #[must_use]
    pub fn constant(&self) -> Option<u64> {
        match self.kind {
            Kind::Number { constant, .. } => constant,
            _ => None,
        }
    }
}

/// Value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned number.
    Number {
        width: u32,
        /// The only allowed value.
        constant: Option<u64>,
        /// Smallest accepted value.
        min: Option<u64>,
        /// Largest accepted value.
        max: Option<u64>,
    },
    /// A value of an enumeration of the same module.
    Enumeration {
        width: u32,
        /// Name of the enumeration.
        name: String,
    },
    /// A text preceded by its length.
    Text(Prefixed),
    /// A blob preceded by its length.
    Blob(Prefixed),
}

/// The length prefix of a text or a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefixed {
    /// Width of the length.
    pub prefix: u32,
    /// Largest accepted length.
    pub max: u32,
}

/// Byte order of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
}

/// A limit to a product of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// Meaning of the product.
    pub name: String,
    /// Names of the fields.
    pub factors: Vec<String>,
    /// Largest accepted product.
    pub max: u64,
}
