//! Shell environment of an installation.

use std::path::Path;

use crate::Directories;

/// Side of the PCI bus that programs are built for.
///
/// The library is the same; but the reference's build files build the initiator only for a host and the services only
/// for a DPU, and read the side from the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The machine that contains the card.
    #[default]
    Host,
    /// The card.
    Dpu,
}

impl Side {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Host, Self::Dpu];
}

/// Shell commands that let compilers, pkg-config and the dynamic linker find an installation: for `eval "$(…)"`.
///
/// `prefix` should be absolute, because the commands are used in other directories. Existing values of the variables
/// are kept at the end.
pub fn environment(prefix: &Path, directories: Directories, side: Side) -> String {
    let variables = [
        ("PKG_CONFIG_PATH", directories.packages(side)),
        ("CPATH", "include".to_owned()),
        ("LIBRARY_PATH", directories.libraries().to_owned()),
        ("LD_LIBRARY_PATH", directories.libraries().to_owned()),
    ];
    variables
        .iter()
        .map(|(name, directory)| {
            let path = quoted(&prefix.join(directory));
            format!("export {name}={path}\"${{{name}:+:${name}}}\"\n")
        })
        .collect()
}

/// A path as one quoted shell word.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Result of evaluating the commands in a shell.
    fn evaluated(prefix: &str, before: &str, side: Side) -> String {
        let script = format!(
            "unset PKG_CONFIG_PATH CPATH\nPKG_CONFIG_PATH={before}\n{}printf %s \"$PKG_CONFIG_PATH|$CPATH\"",
            environment(Path::new(prefix), Directories::PLAIN, side)
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(
            evaluated("/opt/x", "", Side::Host),
            "/opt/x/lib/pkgconfig|/opt/x/include"
        );
        assert_eq!(
            evaluated("/opt/x", "/old", Side::Dpu),
            "/opt/x/lib/pkgconfig-dpu:/old|/opt/x/include"
        );
        assert_eq!(
            evaluated("/it's $HOME", "", Side::Host),
            "/it's $HOME/lib/pkgconfig|/it's $HOME/include"
        );
    }
}
