//! Files of flags, as all programs read them.

mod document;
mod program;

use std::ffi::OsString;
use std::path::Path;

use arbitrary::{Arbitrary, Result, Unstructured};
use role_common::flags::{self, FlagsError};

use crate::control_frames::rest;
use crate::damage::{Damage, spoil};
use crate::tally::Judging;
use crate::{file, memory};

pub use document::{Document, Spacing};
pub use program::Program;

/// A file of flags, and the program that reads it.
#[derive(Debug, Clone)]
pub enum Input {
    /// Any bytes.
    Raw {
        /// Who reads it.
        program: Program,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Flags, most of which are some, with values, most of which make sense.
    Flags {
        /// Who reads it.
        program: Program,
        /// What it says.
        document: Document,
        /// How it is written down.
        spacing: Spacing,
        /// What happens to it.
        damage: Vec<Damage>,
    },
}

/// Two numbers for the kind and the program, and the bytes, so that a file is easily made an input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = u.int_in_range(0..=2)?;
        let program = *u.choose(&Program::ALL)?;
        Ok(match kind {
            0 => Self::Raw {
                program,
                bytes: rest(u)?,
            },
            1 => Self::Flags {
                program,
                document: u.arbitrary()?,
                spacing: u.arbitrary()?,
                damage: u.arbitrary()?,
            },
            _ => Self::Flags {
                program,
                document: Document::with_text(u.arbitrary()?),
                spacing: u.arbitrary()?,
                damage: Vec::new(),
            },
        })
    }
}

/// A file gives a configuration or is refused with a message that names it; how it is written makes no difference, and the
/// same flags on the command line are the same configuration.
///
/// # Panics
///
/// If that does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Raw { program, bytes } => {
            let _ = read(*program, bytes);
        }
        Input::Flags {
            program,
            document,
            spacing,
            damage,
        } => {
            let value = document.value(*program);
            let plain = read(*program, value.to_string().as_bytes());
            let mut text = spacing.write(&value).into_bytes();
            assert_eq!(
                read(*program, &text).map_err(|_| ()),
                plain.clone().map_err(|_| ()),
                "comments and spaces mean nothing: {value}"
            );
            if let Some(arguments) = document::arguments(*program, &value) {
                let arguments: Vec<_> = arguments.into_iter().map(OsString::from).collect();
                let configuration = configuration(*program, &arguments, None);
                assert_eq!(
                    configuration.map_err(|_| ()),
                    plain.map_err(|_| ()),
                    "on the command line: {arguments:?}"
                );
            }
            if !damage.is_empty() {
                spoil(&mut text, damage);
                let _ = read(*program, &text);
            }
        }
    }
}

/// The configuration of a program with this file, as text; or the message that refuses it.
fn read(program: Program, bytes: &[u8]) -> std::result::Result<String, String> {
    let judging = Judging::by("JSON flags of the roles");
    let result = file::with(bytes, |path| {
        let result = configuration(program, &[], Some(path));
        if let Err(message) = &result {
            let text = std::str::from_utf8(bytes);
            assert!(
                message.contains(&format!("--json {}", path.display())) || names_a_flag(message),
                "{message:?} says neither file nor flag, for {text:?}"
            );
        }
        result
    });
    judging.done(result.is_ok());
    result
}

/// Flags that are missing may be on the command line as well as in the file.
fn names_a_flag(message: &str) -> bool {
    message.contains("required arguments were not provided")
        || message.contains("cannot be used with")
}

/// Bytes that a parser may need for each byte of a file, for its values and their messages.
const PER_BYTE: usize = 256;

/// Bytes that a program's flags need, with their descriptions, copied a few times.
const FLAGS: usize = 1 << 20;

fn configuration(
    program: Program,
    arguments: &[OsString],
    path: Option<&Path>,
) -> std::result::Result<String, String> {
    let from_file = path.map_or(0, |path| path.metadata().map_or(0, |file| file.len()));
    let from_arguments: usize = arguments.iter().map(|argument| argument.len() + 64).sum();
    let justified = from_arguments + usize::try_from(from_file).expect("inputs are small");
    let all = [OsString::from("program")].into_iter();
    let file = path.map(|path| [OsString::from("--json"), path.into()]);
    let all = all.chain(arguments.iter().cloned());
    let all: Vec<_> = all.chain(file.into_iter().flatten()).collect();
    let limit = FLAGS + PER_BYTE * justified;
    memory::within(limit, "reading flags", || program.configuration(all)).map_err(|error| {
        match error {
            FlagsError::Information(text) => panic!("nobody asked for {text:?}"),
            FlagsError::Usage(text) => text,
        }
    })
}

/// Reads the flags of a program, and says what they are.
fn described<F: flags::RoleFlags + std::fmt::Debug>(
    name: &'static str,
    arguments: Vec<OsString>,
    without_path: impl FnOnce(&mut F),
) -> std::result::Result<F, FlagsError> {
    flags::read::<F>(name, arguments).map(|mut flags| {
        without_path(&mut flags);
        flags
    })
}
