//! softdoca's configuration files: topologies in TOML, and JSON files of flags for C programs, which `doca_argp` reads.

use std::collections::HashSet;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use arbitrary::{Arbitrary, Result, Unstructured};
use softdoca::argp;
use softdoca::argp::{Action, Definitions, Outcome, Param, Value, ValueType};
use softdoca::topology::Topology;

use super::control_frames::rest;
use super::harness::{self, Counting, Damage, spoil};

/// A file, and its reader.
#[derive(Debug, Clone)]
pub enum Input {
    /// Devices and their representors.
    Topology(Vec<u8>),
    /// Flags.
    Argp(Vec<u8>),
}

/// One byte selects the reader, one the kind, and the remaining bytes are the content, so that a file can be used as an
/// input.
impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let is_topology = u.int_in_range(0..=1)? == 0;
        let is_raw = u.int_in_range(0..=3)? == 0;
        let bytes = match (is_raw, is_topology) {
            (true, _) => rest(u)?,
            (false, true) => {
                let entries: Vec<TopologyEntry> = u.arbitrary()?;
                let mut text = String::from(if u.ratio(9, 10)? {
                    "version = 1\n"
                } else {
                    "version = 2\n"
                });
                entries.iter().for_each(|entry| entry.write(&mut text));
                damaged(text, u)?
            }
            (false, false) => {
                let flags: Vec<Flag> = u.arbitrary()?;
                let flags: Vec<String> = flags.iter().map(Flag::text).collect();
                let object = if u.ratio(1, 10)? {
                    "doca_general_flags"
                } else {
                    "doca_program_flags"
                };
                let text = format!("{{ // flags\n\"{object}\": {{ {} }} }}", flags.join(", "));
                damaged(text, u)?
            }
        };
        Ok(if is_topology {
            Self::Topology(bytes)
        } else {
            Self::Argp(bytes)
        })
    }
}

/// Damages every third input.
fn damaged(text: String, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = text.into_bytes();
    if u.ratio(1, 3)? {
        spoil(&mut bytes, &u.arbitrary::<Vec<Damage>>()?);
    }
    Ok(bytes)
}

/// Values that are valid for some keys, and some that are valid for none.
const VALUES: [&str; 20] = [
    "\"0000:03:00.0\"",
    "\"3b:00.1\"",
    "\"mlx5_0\"",
    "\"\"",
    "\"pf\"",
    "\"vf\"",
    "\"sf\"",
    "\"net\"",
    "\"emulated\"",
    "\"127.0.0.1\"",
    "\"zz:00.0\"",
    "4",
    "0",
    "-1",
    "4294967296",
    "99999999999999999999",
    "1e400",
    "true",
    "[0, 1]",
    "[[[[]]]]",
];

#[derive(Debug, Clone, Arbitrary)]
struct TopologyEntry {
    of_representor: bool,
    /// Different for each entry, unless two entries are equal.
    bus: u8,
    values: Vec<(u8, u8)>,
}

impl TopologyEntry {
    fn write(&self, text: &mut String) {
        const KEYS: [&str; 8] = [
            "iface", "function", "sf-index", "ipv4", "kind", "pci", "ibdev", "speed",
        ];
        let bus = self.bus;
        text.push_str(if self.of_representor {
            "[[device.representor]]\n"
        } else {
            "[[device]]\n"
        });
        text.push_str(&format!("pci = \"0000:{bus:02x}:00.0\"\n"));
        if !self.of_representor {
            text.push_str(&format!("ibdev = \"mlx5_{bus}\"\n"));
        }
        for &(key, value) in self.values.iter().take(3) {
            // Usually a key that is valid here.
            let key = KEYS[usize::from(key) % if key < 250 { 5 } else { KEYS.len() }];
            let value = VALUES[usize::from(value) % VALUES.len()];
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
}

#[derive(Debug, Clone, Arbitrary)]
struct Flag {
    key: u8,
    fits: bool,
    value: u8,
}

/// Parameters of a program, with valid values.
const PARAMETERS: [(&str, ValueType, &str); 4] = [
    ("device", ValueType::String, "\"03:00.0\""),
    ("cpu", ValueType::Int, "[0, 1]"),
    ("name", ValueType::String, "\"a name\""),
    ("quiet", ValueType::Boolean, "true"),
];

impl Flag {
    fn text(&self) -> String {
        let keys = PARAMETERS.len() + usize::from(self.key > 250);
        let (key, _, value) = PARAMETERS.get(usize::from(self.key) % keys).unwrap_or(&(
            "unheard-of",
            ValueType::Int,
            "1",
        ));
        let value = if self.fits {
            value
        } else {
            VALUES[usize::from(self.value) % VALUES.len()]
        };
        format!("\"{key}\": {value}")
    }
}

/// An accepted topology has distinguishable devices; accepted flags call the program's callbacks with values of their
/// types, no more often than allowed; everything else is refused. Memory is bounded by the size of the file.
///
/// # Panics
///
/// If the property does not hold.
pub fn property(input: &Input) {
    match input {
        Input::Topology(bytes) => {
            let counting = Counting::of("topology file (TOML)");
            let loaded = harness::with_file(bytes, |path| {
                harness::within_memory(limit(bytes), "loading a topology", || Topology::load(path))
            });
            if let Ok(topology) = &loaded {
                devices_are_distinguishable(topology);
            }
            counting.done(loaded.is_ok());
        }
        Input::Argp(bytes) => {
            let counting = Counting::of("JSON flags of doca_argp");
            let accepted = harness::with_file(bytes, |path| {
                let definitions = definitions();
                harness::within_memory(limit(bytes), "reading flags", || flags(&definitions, path))
            });
            counting.done(accepted);
        }
    }
}

/// Bytes that a parser may allocate at a time for its tree, its values, and a message that quotes a line of the file.
fn limit(bytes: &[u8]) -> usize {
    (1 << 16) + 512 * bytes.len()
}

fn devices_are_distinguishable(topology: &Topology) {
    let devices = &topology.devices;
    assert!(!devices.is_empty());
    let mut seen = HashSet::new();
    for device in devices {
        assert!(seen.insert(device.pci.to_string()), "{devices:?}");
        assert!(seen.insert(format!("ibdev {}", device.ibdev)));
        assert!(seen.insert(format!("iface {}", device.iface)));
        assert!((1..=63).contains(&device.ibdev.len()));
        for representor in &device.representors {
            assert!(seen.insert(format!("representor {}", representor.pci)));
        }
    }
}

extern "C" fn nothing(_: *mut c_void, _: *mut c_void) -> u32 {
    0
}

fn definitions() -> Definitions {
    let mut definitions = Definitions::default();
    for (long, value_type, _) in PARAMETERS {
        let id = definitions.create_param();
        let param: &mut Param = definitions.param_mut(id);
        param.long = Some(long.to_owned());
        param.description = Some("for any bytes".to_owned());
        param.value_type = Some(value_type);
        param.callback = Some(nothing);
        param.multiple = long == "cpu";
        definitions.register_param(None, id).expect("complete");
    }
    definitions
}

/// Returns `true` if a program with these parameters accepts this file.
fn flags(definitions: &Definitions, path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path of plain characters");
    let arguments = [c"program", c"--json", path.as_c_str()];
    let run = match argp::parse(definitions, &arguments, false) {
        Ok(Outcome::Run(run)) => run,
        Ok(other) => panic!("unexpected output: {other:?}"),
        Err(refusal) => {
            assert!(refusal.text.contains("--json"), "{refusal:?}");
            return false;
        }
    };
    for action in &run.actions {
        let Action::Param(id, value) = action else {
            panic!("there is no such command: {action:?}");
        };
        let param = definitions.param(*id);
        let fits = matches!(
            (param.value_type, value),
            (Some(ValueType::String), Value::Text(_))
                | (Some(ValueType::Int), Value::Int(_))
                | (Some(ValueType::Boolean), Value::Bool(_))
        );
        assert!(fits, "{param:?} has got {value:?}");
    }
    true
}
