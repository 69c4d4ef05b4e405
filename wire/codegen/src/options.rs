//! The layout options of one file, message or field, taken out one by one.
//!
//! [`Options::finish`] refuses the remaining options, which this generator does not support: ignoring an option would
//! result in a wrong layout.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, ReflectMessage, Value};

use crate::Problem;

/// Package of the options file.
const PACKAGE: &str = "doca_storage.layout";

/// Options that are set, by name.
pub(crate) struct Options {
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
    pub(crate) fn number32(&mut self, name: &str) -> Option<u32> {
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
    pub(crate) fn choice(&mut self, name: &str) -> Option<i32> {
        match self.set.remove(name)? {
            Value::EnumNumber(number) => Some(number),
            other => self.put_back(name, other),
        }
    }

    /// `true` if the option is set.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        match self.set.remove(name) {
            Some(Value::Bool(flag)) => flag,
            Some(other) => self.put_back(name, other).unwrap_or(false),
            None => false,
        }
    }

    /// Takes a group of options.
    pub(crate) fn group(&mut self, name: &str) -> Result<Option<Self>, Problem> {
        match self.set.remove(name) {
            Some(Value::Message(message)) => {
                Self::new(&message, format!("{}{name}.", self.path)).map(Some)
            }
            Some(other) => Ok(self.put_back(name, other)),
            None => Ok(None),
        }
    }

    /// Takes repeated groups of options.
    pub(crate) fn groups(&mut self, name: &str) -> Result<Vec<Self>, Problem> {
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
    pub(crate) fn refuse(&mut self, option: &'static str, to: &str) -> Result<(), Problem> {
        if self.set.remove(option).is_some() {
            return Err(Problem::DoesNotApply {
                option,
                to: to.to_owned(),
            });
        }
        Ok(())
    }

    /// Refuses options that were not read.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.set.into_keys().next() {
            Some(name) => Err(Problem::UnknownOption(format!("{}{name}", self.path))),
            None => Ok(()),
        }
    }

    /// Keeps an option of another type than expected, so that [`finish`](Self::finish) refuses it.
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
