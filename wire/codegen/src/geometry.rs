//! Checks that offsets and widths form a layout: every byte is covered once, and none beyond the size.

use std::collections::HashMap;

use crate::{
    Declaration, Problem, SchemaError, WrongAlternative, WrongExtension,
    model::{Field, Form, Frame, Message, Module, Schema, Variant},
    read::largest_number,
};

/// Checks every message of a schema.
pub(crate) fn check(schema: &Schema) -> Result<(), SchemaError> {
    for module in &schema.modules {
        let mut view: Option<&str> = None;
        for message in &module.messages {
            let place = Place { module, message };
            place.check_order()?;
            place.check_spans()?;
            match &message.form {
                Form::Frame(frame) => place.check_frame(frame)?,
                Form::View => {
                    if let Some(other) = view.replace(&message.name) {
                        return Err(place.error(
                            None,
                            Problem::DuplicateName {
                                name: "Repr".to_owned(),
                                other: format!("{other}: one view per module"),
                            },
                        ));
                    }
                }
                Form::Payload | Form::Record { .. } => {}
            }
        }
    }
    Ok(())
}

struct Place<'a> {
    module: &'a Module,
    message: &'a Message,
}

/// A declaration that covers bytes.
struct Covered<'a> {
    name: &'a str,
    offset: u32,
    width: u32,
    variable: bool,
}

impl Covered<'_> {
    fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.width)
    }
}

impl Place<'_> {
    fn error(&self, field: Option<&str>, problem: Problem) -> SchemaError {
        SchemaError {
            file: self.module.file.clone(),
            message: Some(self.message.name.clone()),
            field: field.map(str::to_owned),
            problem,
        }
    }

    /// Declarations must be in the order of their offsets, so that a schema reads like its layout.
    fn check_order(&self) -> Result<(), SchemaError> {
        for pair in self.message.fields.windows(2) {
            if pair[1].offset < pair[0].offset {
                return Err(self.error(
                    Some(&pair[1].name),
                    Problem::OutOfOrder {
                        offset: pair[1].offset,
                        previous: pair[0].name.clone(),
                    },
                ));
            }
        }
        Ok(())
    }

    fn covered(&self) -> Vec<Covered<'_>> {
        let fields = self.message.fields.iter().map(|field| Covered {
            name: &field.name,
            offset: field.offset,
            width: field.fixed_width(),
            variable: field.is_variable(),
        });
        let fixed = |name, span: &crate::model::Span| Covered {
            name,
            offset: span.offset,
            width: span.width,
            variable: false,
        };
        let reserved = self
            .message
            .reserved
            .iter()
            .map(|span| fixed("reserved", span));
        let mut covered: Vec<_> = fields.chain(reserved).collect();
        if let Form::Frame(frame) = &self.message.form {
            covered.push(fixed("length", &frame.length));
            covered.push(fixed("type", &frame.discriminant));
        }
        // Stable, so that of two fields at the same offset, the field declared later is reported.
        covered.sort_by_key(|covered| covered.offset);
        covered
    }

    fn check_spans(&self) -> Result<(), SchemaError> {
        let covered = self.covered();
        let size = self.message.size;
        let mut end = 0;
        let mut previous: Option<&Covered<'_>> = None;
        for item in &covered {
            let name = Some(item.name);
            if let Some(previous) = previous.filter(|previous| previous.variable) {
                return Err(self.error(
                    Some(previous.name),
                    Problem::VariableNotLast {
                        next: item.name.to_owned(),
                    },
                ));
            }
            if item.offset < end {
                return Err(self.error(
                    name,
                    Problem::Overlap {
                        offset: item.offset,
                        previous: previous.map_or("", |previous| previous.name).to_owned(),
                        end,
                    },
                ));
            }
            if item.offset > end {
                return Err(self.error(
                    name,
                    Problem::Gap {
                        from: end,
                        to: item.offset,
                    },
                ));
            }
            if item.variable && size.is_some() {
                return Err(self.error(name, Problem::VariableInFixedSize));
            }
            let limit = size.unwrap_or(u32::MAX);
            if item.end() > u64::from(limit) {
                return Err(self.error(
                    name,
                    Problem::BeyondSize {
                        end: item.end(),
                        size: limit,
                    },
                ));
            }
            end = item.offset + item.width;
            previous = Some(item);
        }
        match size {
            Some(size) if end < size => Err(self.error(
                previous.map(|previous| previous.name),
                Problem::Gap {
                    from: end,
                    to: size,
                },
            )),
            _ => Ok(()),
        }
    }

    fn check_frame(&self, frame: &Frame) -> Result<(), SchemaError> {
        if frame.length.offset != 0 {
            return Err(self.error(Some("length"), Problem::LengthNotFirst(frame.length.offset)));
        }
        let largest = largest_number(frame.length.width) + u64::from(frame.length.width);
        if u64::from(frame.max_size) > largest {
            return Err(self.error(
                Some("length"),
                Problem::TooLarge {
                    option: "max_size",
                    max: largest,
                    found: u64::from(frame.max_size),
                },
            ));
        }
        let mut types: HashMap<u32, &str> = HashMap::new();
        for variant in &frame.variants {
            let name = Some(variant.name.as_str());
            if let Some(base) = &variant.alternative_to {
                check_alternative(frame, variant, base)
                    .map_err(|problem| self.error(name, problem))?;
            } else if let Some(base) = &variant.extends {
                self.check_extension(frame, variant, base)
                    .map_err(|problem| self.error(name, problem))?;
            } else if let Some(other) = types.insert(variant.number, &variant.name) {
                return Err(self.error(
                    name,
                    Problem::DuplicateType {
                        number: variant.number,
                        other: other.to_owned(),
                    },
                ));
            }
            if u64::from(variant.number) > largest_number(frame.discriminant.width) {
                return Err(self.error(
                    name,
                    Problem::TooLarge {
                        option: "message_type",
                        max: largest_number(frame.discriminant.width),
                        found: u64::from(variant.number),
                    },
                ));
            }
            let payload = match &variant.payload {
                None => 0,
                Some(payload) => self
                    .largest_payload(payload)
                    .map_err(|problem| self.error(name, problem))?,
            };
            let found = u64::from(self.message.size.unwrap_or(0)) + payload;
            if found > u64::from(frame.max_size) {
                return Err(self.error(
                    name,
                    Problem::FrameTooLarge {
                        max: frame.max_size,
                        found,
                    },
                ));
            }
        }
        Ok(())
    }

    /// A longer form of a payload has the same type, starts with the same fields, and adds further fields. Several
    /// longer forms of one payload are distinguished by the first additional field, which is a constant of 8 bytes. A
    /// longer form cannot be extended itself.
    fn check_extension(&self, frame: &Frame, variant: &Variant, base: &str) -> Result<(), Problem> {
        let extended = frame.types().find(|other| other.name == *base);
        let extended = extended.ok_or_else(|| Problem::NotFound {
            what: Declaration::ExtendedPayload,
            found: base.to_owned(),
        })?;
        if extended.number != variant.number {
            return Err(Problem::WrongExtension(WrongExtension::OtherType));
        }
        let fields = |variant: &Variant| {
            let payload = variant.payload.as_ref();
            let mut messages = self.module.messages.iter();
            let message = payload.and_then(|name| messages.find(|message| message.name == *name));
            message.map_or(&[][..], |message| &message.fields)
        };
        let (shorter, longer) = (fields(extended), fields(variant));
        if shorter.iter().any(Field::is_variable) {
            return Err(Problem::WrongExtension(WrongExtension::VariableSize));
        }
        let layout = |field: &Field| {
            (
                field.name.clone(),
                field.offset,
                field.byte_order,
                field.kind.clone(),
            )
        };
        let begins = longer.len() > shorter.len()
            && shorter
                .iter()
                .zip(longer)
                .all(|(one, other)| layout(one) == layout(other));
        if !begins {
            return Err(Problem::WrongExtension(WrongExtension::OtherFields));
        }
        let mark = |longer: &Variant| {
            let own = fields(longer).get(shorter.len());
            own.filter(|field| field.fixed_width() == 8)
                .and_then(Field::constant)
        };
        let are_alike = |other: &Variant| mark(other).is_none() || mark(other) == mark(variant);
        let mut before = frame
            .extensions_of(extended)
            .take_while(|&other| other != variant);
        if before.any(are_alike) {
            return Err(Problem::WrongExtension(WrongExtension::NotDistinguished));
        }
        Ok(())
    }

    fn largest_payload(&self, name: &str) -> Result<u64, Problem> {
        let payload = self
            .module
            .messages
            .iter()
            .find(|message| message.name == name && message.form == Form::Payload)
            .ok_or_else(|| Problem::NotFound {
                what: Declaration::PayloadMessage,
                found: name.to_owned(),
            })?;
        Ok(u64::from(payload.fixed_width()) + u64::from(payload.variable_width()))
    }
}

/// An alternative has the type of another payload that has no other forms. Neither may be empty, and they are
/// distinguished by their length.
fn check_alternative(frame: &Frame, variant: &Variant, base: &str) -> Result<(), Problem> {
    let other = frame.types().find(|other| other.name == *base);
    let other = other.ok_or_else(|| Problem::NotFound {
        what: Declaration::AlternativePayload,
        found: base.to_owned(),
    })?;
    let wrong = |what| Err(Problem::WrongAlternative(what));
    if other.number != variant.number {
        return wrong(WrongAlternative::OtherType);
    }
    if variant.extends.is_some() || frame.extensions_of(other).next().is_some() {
        return wrong(WrongAlternative::HasLongerForm);
    }
    if frame.alternative_of(other) != Some(variant) {
        return wrong(WrongAlternative::SecondAlternative);
    }
    if variant.payload.is_none() || other.payload.is_none() {
        return wrong(WrongAlternative::NoBytes);
    }
    Ok(())
}
