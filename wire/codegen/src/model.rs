//! The schema as the generator understands it: protobuf's descriptors and the layout options, joined.
//!
//! Offsets, widths and sizes are in bytes.

/// All modules, in the order in which their files were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The modules.
    pub modules: Vec<Module>,
}

/// One file of the schema, which is one module of the wire crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The file, as it was named to the generator.
    pub file: String,
    /// Its protobuf package.
    pub package: String,
    /// Name of the module.
    pub name: String,
    /// Enumerations, in order of declaration.
    pub enums: Vec<Enum>,
    /// Messages, in order of declaration.
    pub messages: Vec<Message>,
}

/// An enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enum {
    /// Name of the Rust type and of the protobuf enumeration.
    pub name: String,
    /// What its comment says.
    pub docs: String,
    /// Its values, in order of declaration.
    pub values: Vec<EnumValue>,
}

/// A value of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumValue {
    /// Name in snake case, without the enumeration's own.
    pub name: String,
    /// Number on the wire.
    pub number: u32,
    /// What its comment says.
    pub docs: String,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Name of the Rust type and of the protobuf message.
    pub name: String,
    /// Name in errors and in the table of offsets.
    pub wire_name: String,
    /// What its comment says.
    pub docs: String,
    /// What it is on the wire.
    pub form: Form,
    /// Fixed size, if one is stated.
    pub size: Option<u32>,
    /// Bytes that belong to no field.
    pub reserved: Vec<Span>,
    /// Fields with a place of their own, in order of declaration and of offset.
    pub fields: Vec<Field>,
    /// Limit to a product of fields.
    pub product: Option<Product>,
}

impl Message {
    /// Bytes that it always has, reserved ones included.
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

    /// Bytes that it can have beside them.
    #[must_use]
    pub fn variable_width(&self) -> u32 {
        self.fields.iter().map(Field::variable_width).sum()
    }
}

/// What a message is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Header, then a payload.
    Frame(Frame),
    /// The payload of a frame.
    Payload,
    /// Fixed size, read and written in place.
    View,
    /// Fixed size, part of something larger.
    Record {
        /// At its end instead of its beginning.
        at_end: bool,
    },
}

/// What a frame has beside its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Number of bytes that follow it.
    pub length: Span,
    /// Number of the payload's type.
    pub discriminant: Span,
    /// Byte order of the two.
    pub byte_order: ByteOrder,
    /// Largest accepted frame.
    pub max_size: u32,
    /// Name of the field that holds the payload.
    pub payload_name: String,
    /// What the payload's comment says.
    pub payload_docs: String,
    /// Every payload.
    pub variants: Vec<Variant>,
}

/// One payload of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Name in snake case.
    pub name: String,
    /// Number of the type.
    pub number: u32,
    /// What its comment says.
    pub docs: String,
    /// Message of the payload, in the same module; `None` when it has no bytes.
    pub payload: Option<String>,
    /// Name of the variant of the same type that it is a longer form of.
    pub extends: Option<String>,
    /// Name of the variant of the same type that it stands for in another release of the protocol.
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

    /// The variants that types are named for: those that are no other forms of others.
    pub fn types(&self) -> impl Iterator<Item = &Variant> {
        self.variants
            .iter()
            .filter(|variant| variant.extends.is_none() && variant.alternative_to.is_none())
    }

    /// The variant that names the type of this one.
    #[must_use]
    pub fn type_of<'a>(&'a self, variant: &'a Variant) -> &'a Variant {
        let base = variant.extends.as_ref().or(variant.alternative_to.as_ref());
        base.and_then(|base| self.variants.iter().find(|other| other.name == *base))
            .unwrap_or(variant)
    }
}

/// A run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Bytes before it.
    pub offset: u32,
    /// Bytes in it.
    pub width: u32,
}

/// A field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// What its comment says.
    pub docs: String,
    /// Bytes before it.
    pub offset: u32,
    /// Byte order of its number or its length.
    pub byte_order: ByteOrder,
    /// What it holds.
    pub kind: Kind,
}

impl Field {
    /// Bytes that it always has: those of its number, or of its length prefix.
    #[must_use]
    pub fn fixed_width(&self) -> u32 {
        match self.kind {
            Kind::Number { width, .. } | Kind::Enumeration { width, .. } => width,
            Kind::Text(limit) | Kind::Blob(limit) => limit.prefix,
        }
    }

    /// Bytes that it can have beside them.
    #[must_use]
    pub fn variable_width(&self) -> u32 {
        match self.kind {
            Kind::Number { .. } | Kind::Enumeration { .. } => 0,
            Kind::Text(limit) | Kind::Blob(limit) => limit.max,
        }
    }

    /// Whether its size depends on its content.
    #[must_use]
    pub fn is_variable(&self) -> bool {
        matches!(self.kind, Kind::Text(_) | Kind::Blob(_))
    }

    /// Whether it always holds the same number, which no structure needs to hold.
    #[must_use]
    pub fn constant(&self) -> Option<u64> {
        match self.kind {
            Kind::Number { constant, .. } => constant,
            _ => None,
        }
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned number.
    Number {
        /// Its bytes.
        width: u32,
        /// The one value that it has.
        constant: Option<u64>,
        /// Smallest accepted value.
        min: Option<u64>,
        /// Largest accepted value.
        max: Option<u64>,
    },
    /// A value of an enumeration of the same module.
    Enumeration {
        /// Its bytes.
        width: u32,
        /// Name of the enumeration.
        name: String,
    },
    /// Text after its length.
    Text(Prefixed),
    /// Bytes after their length.
    Blob(Prefixed),
}

/// The length before a text or a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefixed {
    /// Bytes of the length.
    pub prefix: u32,
    /// Largest accepted length.
    pub max: u32,
}

/// Which byte of a number comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// The most significant.
    Big,
    /// The least significant.
    Little,
}

/// A limit to a product of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// What the product is.
    pub name: String,
    /// Names of the fields.
    pub factors: Vec<String>,
    /// Largest accepted product.
    pub max: u64,
}
