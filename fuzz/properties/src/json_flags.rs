//! JSON files of flags, as read by all programs.

use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use role_common::flags;
use role_common::flags::FlagsError;
use serde_json::{Map, Number, Value, json};

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// A file of flags, and the program that reads it.
#[derive(Debug, Clone)]
pub enum Input {
    Raw {
        /// The program that reads it.
        program: Program,
        bytes: Vec<u8>,
    },
    /// Mostly known flags with mostly valid values.
    Flags {
        /// The program that reads it.
        program: Program,
        document: Document,
        /// The white space and comments.
        spacing: Spacing,
        damage: Vec<Damage>,
    },
}

/// Two bytes select the kind and the program, and the remaining bytes are the content, so that a file can be used as an
/// input.
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

/// A file yields a configuration, or is refused with a message that names it. Its formatting makes no difference, and the same flags on the
/// command line yield the same configuration.
///
/// # Panics
///
/// If the property does not hold.
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
            if let Some(arguments) = arguments(*program, &value) {
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

/// The configuration of a program with this file, as text, or the error message.
fn read(program: Program, bytes: &[u8]) -> std::result::Result<String, String> {
    let counting = Counting::of("JSON flags of the roles");
    let result = harness::with_file(bytes, |path| {
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
    counting.done(result.is_ok());
    result
}

/// Returns `true` for an error about missing or conflicting flags, which may be on the command line instead of in the
/// file.
fn names_a_flag(message: &str) -> bool {
    message.contains("required arguments were not provided")
        || message.contains("cannot be used with")
}

/// Bytes that a parser may allocate per byte of a file, for its values and messages.
const PER_BYTE: usize = 256;

/// Bytes allocated for a program's flags and their descriptions, including a few copies.
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
    harness::within_memory(limit, "reading flags", || program.configuration(all)).map_err(|error| {
        match error {
            FlagsError::Information(text) => panic!("unexpected output: {text:?}"),
            FlagsError::Usage(text) => text,
        }
    })
}

/// Reads the flags of a program and returns the configuration as text.
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

// Content and formatting of a file of flags.

#[derive(Debug, Clone, Arbitrary)]
pub struct Document {
    /// `true` to set all mandatory flags, with valid values unless overridden.
    complete: bool,
    general: Vec<(u8, AnyValue)>,
    program: Vec<(u8, AnyValue)>,
    /// An unknown flag, or a flag in the wrong object.
    odd: Option<(OddPlace, String, AnyValue)>,
}

#[derive(Debug, Clone, Arbitrary)]
enum OddPlace {
    Root,
    General,
    Program,
}

/// Value of a flag.
#[derive(Debug, Clone, Arbitrary)]
enum AnyValue {
    Plausible(u8),
    Text(String),
    /// A text that a comment parser may misread.
    Tricky(Vec<Fragment>),
    Number(i64),
    Large(u64),
    Fraction(f64),
    Truth(bool),
    Nothing,
    List(Vec<AnyValue>),
    Object(Vec<(String, AnyValue)>),
    /// Deeply nested lists.
    Deep(u8),
}

/// A part of a text.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Fragment {
    Quote,
    Backslash,
    Slash,
    LineComment,
    BlockComment,
    EndOfComment,
    LineEnd,
    Letter,
    Wide,
}

impl Fragment {
    fn text(self) -> &'static str {
        match self {
            Self::Quote => "\"",
            Self::Backslash => "\\",
            Self::Slash => "/",
            Self::LineComment => "//",
            Self::BlockComment => "/*",
            Self::EndOfComment => "*/",
            Self::LineEnd => "\n",
            Self::Letter => "a",
            Self::Wide => "\u{1F980}",
        }
    }
}

impl AnyValue {
    fn json(&self, arg: Option<&Arg>) -> Value {
        match self {
            Self::Plausible(choice) => arg.map_or(Value::Null, |arg| plausible(arg, *choice)),
            Self::Text(text) => json!(text),
            Self::Tricky(parts) => Value::String(parts.iter().map(|part| part.text()).collect()),
            Self::Number(number) => json!(number),
            Self::Large(number) => json!(number),
            Self::Fraction(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
            Self::Truth(truth) => json!(truth),
            Self::Nothing => Value::Null,
            Self::List(list) => list.iter().map(|value| value.json(arg)).collect(),
            Self::Object(object) => {
                let member = |(key, value): &(String, Self)| (key.clone(), value.json(arg));
                Value::Object(object.iter().map(member).collect())
            }
            Self::Deep(depth) => (0..*depth).fold(json!([]), |inner, _| json!([inner])),
        }
    }
}

/// Values that some flag accepts; a flag's own values if it has a list of them.
fn plausible(arg: &Arg, choice: u8) -> Value {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        2,
        50,
        60,
        128,
        4096,
        65_535,
        65_536,
        4_294_967_295,
        4_294_967_296,
        u64::MAX,
    ];
    const TEXTS: [&str; 5] = ["03:00.0", "127.0.0.1:12345", "", "--cpu", "a=b"];
    let choice = usize::from(choice);
    let of_its_own = arg.get_possible_values();
    if let Some(value) = of_its_own.get(choice % of_its_own.len().max(1)) {
        return json!(value.get_name());
    }
    if choice.is_multiple_of(2) {
        json!(NUMBERS[choice / 2 % NUMBERS.len()])
    } else {
        json!(TEXTS[choice / 2 % TEXTS.len()])
    }
}

const GENERAL: &str = "doca_general_flags";
const PROGRAM: &str = "doca_program_flags";

/// Flags that can be in an object of the file.
fn of_object(command: &Command, general: bool) -> Vec<&Arg> {
    command
        .get_arguments()
        .filter(|arg| (arg.get_help_heading() == Some("DOCA Flags")) == general)
        .filter(|arg| {
            arg.get_long()
                .is_some_and(|long| !["help", "version", "json"].contains(&long))
        })
        .collect()
}

impl Document {
    /// Valid flags, with an arbitrary text as the device.
    fn with_text(text: Vec<Fragment>) -> Self {
        Self {
            complete: true,
            general: Vec::new(),
            program: vec![(0, AnyValue::Tricky(text))],
            odd: None,
        }
    }

    /// The file's content as a JSON value.
    fn value(&self, program: Program) -> Value {
        let command = program.command();
        let object = |flags: &[&Arg], chosen: &[(u8, AnyValue)]| {
            let mut object = Map::new();
            for (flag, value) in chosen {
                if let Some(arg) = flags.get(usize::from(*flag) % flags.len().max(1)) {
                    let name = arg.get_long().expect("they have names").to_owned();
                    object.insert(name, value.json(Some(arg)));
                }
            }
            object
        };
        let mut general = object(&of_object(command, true), &self.general);
        let mut flags = object(&of_object(command, false), &self.program);
        if self.complete {
            for arg in of_object(command, false) {
                let name = arg.get_long().expect("they have names");
                if arg.is_required_set() {
                    flags.entry(name).or_insert_with(|| accepted(arg, name));
                }
            }
        }
        let mut odd = Map::new();
        if let Some((place, key, value)) = &self.odd {
            let object = match place {
                OddPlace::Root => &mut odd,
                OddPlace::General => &mut general,
                OddPlace::Program => &mut flags,
            };
            object.insert(key.clone(), value.json(None));
        }
        odd.insert(GENERAL.to_owned(), Value::Object(general));
        odd.insert(PROGRAM.to_owned(), Value::Object(flags));
        Value::Object(odd)
    }
}

/// A valid value of a mandatory flag.
fn accepted(arg: &Arg, name: &str) -> Value {
    match name {
        "cpu" => json!([0]),
        "listen-port" => json!(12345),
        "storage-server" | "data-1-storage" | "data-2-storage" | "data-p-storage" => {
            json!("127.0.0.1:12345")
        }
        _ => arg
            .get_possible_values()
            .first()
            .map_or_else(|| json!("x"), |value| json!(value.get_name())),
    }
}

/// The equivalent arguments; `None` if the command line cannot express the file's content.
fn arguments(program: Program, file: &Value) -> Option<Vec<String>> {
    let command = program.command();
    let mut arguments = Vec::new();
    for (object, flags) in file.as_object()? {
        let known = of_object(command, object == GENERAL);
        if object != GENERAL && object != PROGRAM {
            return None;
        }
        for (name, value) in flags.as_object()? {
            let arg = known.iter().find(|arg| arg.get_long() == Some(name))?;
            let is_list = matches!(arg.get_action(), ArgAction::Append);
            let values = match value {
                Value::Array(values) if is_list => values.iter().collect(),
                value => vec![value],
            };
            for value in values {
                match value {
                    Value::Number(number) if is_number(name) || name == "sessions" => {
                        arguments.push(format!("--{name}={number}"));
                    }
                    Value::String(text) if !is_number(name) => {
                        arguments.push(format!("--{name}={text}"));
                    }
                    _ => return None,
                }
            }
        }
    }
    Some(arguments)
}

/// Returns `true` for flags that are documented as numbers in a file.
fn is_number(name: &str) -> bool {
    [
        "log-level",
        "sdk-log-level",
        "cpu",
        "listen-port",
        "block-count",
        "block-size",
        "logical-block-size",
        "control-timeout",
        "io-timeout",
        "idle-timeout",
        "run-limit-operation-count",
        "transaction-count",
        "local-io-region-size",
        "blocks-per-io",
        "seed",
        "trigger-recovery-read-every-n",
    ]
    .contains(&name)
}

/// Formatting of a file: white space and comments between its tokens, used cyclically.
#[derive(Debug, Clone, Arbitrary)]
pub struct Spacing(Vec<Space>);

#[derive(Debug, Clone, Arbitrary)]
enum Space {
    Nothing,
    Blank,
    Line,
    LineComment(String),
    BlockComment(String),
}

impl Space {
    fn text(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Blank => " ".to_owned(),
            Self::Line => "\r\n".to_owned(),
            Self::LineComment(text) => format!("//{}\n", text.replace('\n', " ")),
            Self::BlockComment(text) => format!("/*{}*/", text.replace('*', "\"")),
        }
    }
}

impl Spacing {
    /// Returns the text of a file with this value.
    fn write(&self, value: &Value) -> String {
        let mut text = String::new();
        let mut spaces = self.0.iter().cycle();
        self.put(value, &mut text, &mut spaces);
        text
    }

    fn put<'a>(
        &self,
        value: &Value,
        text: &mut String,
        spaces: &mut impl Iterator<Item = &'a Space>,
    ) {
        let mut space = |text: &mut String| text.extend(spaces.next().map(Space::text));
        space(text);
        match value {
            Value::Array(values) => {
                text.push('[');
                for (number, value) in values.iter().enumerate() {
                    if number != 0 {
                        text.push(',');
                    }
                    self.put(value, text, spaces);
                }
                text.push(']');
            }
            Value::Object(members) => {
                text.push('{');
                for (number, (key, value)) in members.iter().enumerate() {
                    if number != 0 {
                        text.push(',');
                    }
                    self.put(&Value::String(key.clone()), text, spaces);
                    text.push(':');
                    self.put(value, text, spaces);
                }
                text.push('}');
            }
            other => text.push_str(&other.to_string()),
        }
        text.extend(spaces.next().map(Space::text));
    }
}

// The programs, by their flags.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Target,
    ZeroCopy,
    GgaOffload,
    Initiator,
    SbcGenerator,
}

impl Program {
    pub const ALL: [Self; 5] = [
        Self::Target,
        Self::ZeroCopy,
        Self::GgaOffload,
        Self::Initiator,
        Self::SbcGenerator,
    ];

    /// The program's flags, as defined with clap.
    #[must_use]
    pub fn command(self) -> &'static Command {
        // Cached, because building them takes as long as parsing flags.
        static COMMANDS: LazyLock<[Command; 5]> = LazyLock::new(|| {
            [
                role_target::Flags::command(),
                role_zero_copy::Flags::command(),
                role_gga_offload::Flags::command(),
                role_initiator::Flags::command(),
                role_sbc_generator::Flags::command(),
            ]
        });
        &COMMANDS[self as usize]
    }

    /// Parses the arguments; returns the configuration as text, without the name of the file.
    fn configuration(self, arguments: Vec<OsString>) -> Result<String, FlagsError> {
        match self {
            Self::Target => {
                let forget = |flags: &mut role_target::Flags| flags.general.json = None;
                let flags = described(role_target::NAME, arguments, forget)?;
                Ok(format!("{flags:?}"))
            }
            Self::ZeroCopy => {
                let forget = |flags: &mut role_zero_copy::Flags| flags.general.json = None;
                let flags = described(role_zero_copy::NAME, arguments, forget)?;
                Ok(format!("{flags:?}"))
            }
            Self::GgaOffload => {
                let forget = |flags: &mut role_gga_offload::Flags| flags.general.json = None;
                let flags = described(role_gga_offload::NAME, arguments, forget)?;
                Ok(format!("{flags:?}"))
            }
            Self::Initiator => {
                let forget = |flags: &mut role_initiator::Flags| flags.general.json = None;
                let flags = described(role_initiator::NAME, arguments, forget)?;
                Ok(format!(
                    "{flags:?}, {:?}",
                    role_common::flags::RoleFlags::check(&flags)
                ))
            }
            Self::SbcGenerator => {
                let forget = |flags: &mut role_sbc_generator::Flags| flags.general.json = None;
                let flags = described(role_sbc_generator::NAME, arguments, forget)?;
                Ok(format!("{flags:?}, {:?}", flags.geometry()))
            }
        }
    }
}
