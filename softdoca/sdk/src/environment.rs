//! What a shell has to know of an installation.

use std::path::Path;

use crate::Directories;

/// Which side of the PCI bus programs are built for.
///
/// The library is the same; but the reference's build files make the initiator only for a host and the services only for a DPU, and find out
/// from the headers which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The machine that the card is in.
    #[default]
    Host,
    /// The card.
    Dpu,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Host, Self::Dpu];
}

/// Lines of shell that let compilers, pkg-config and the dynamic linker find an installation: for `eval "$(…)"`.
///
/// `prefix` should be absolute: the lines are used in other directories. What the variables hold already stays, behind.
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

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What a shell makes of the lines.
    fn evaluated(prefix: &str, before: &str, side: Side) -> String {
        let script = format!(
            "unset PKG_CONFIG_PATH CPATH\nPKG_CONFIG_PATH={before}\n{}printf %s \"$PKG_CONFIG_PATH|$CPATH\"",
            environment(Path::new(prefix), Directories::PLAIN, side)
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_shell_reads_back_the_paths() {
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
