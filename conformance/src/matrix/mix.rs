//! Who plays which part.

use std::fmt;

use serde::Serialize;

use super::member::Member;
use crate::implementation::Role;

/// A deployment of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// The zero-copy service before one target.
    ZeroCopy,
    /// The compressing and erasure coding service before three targets.
    Gga,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ZeroCopy, Self::Gga];

    /// The group of its cases in a report.
    pub fn suite(self) -> &'static str {
        match self {
            Self::ZeroCopy => "matrix.zero_copy",
            Self::Gga => "matrix.gga",
        }
    }

    /// Its service.
    pub fn service(self) -> Role {
        match self {
            Self::ZeroCopy => Role::ZeroCopy,
            Self::Gga => Role::GgaOffload,
        }
    }

    /// What its targets are called.
    pub fn targets(self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["target"],
            Self::Gga => &["data_1", "data_2", "data_p"],
        }
    }

    /// The service's flags that say where these are.
    pub(crate) fn storage_flags(self) -> &'static [&'static str] {
        match self {
            Self::ZeroCopy => &["--storage-server"],
            Self::Gga => &["--data-1-storage", "--data-2-storage", "--data-p-storage"],
        }
    }
}

/// Whose program plays which part.
#[derive(Debug, Clone)]
pub struct Mix<'a> {
    /// The deployment.
    pub layout: Layout,
    /// Whose initiator.
    pub initiator: &'a Member,
    /// Whose service; also whose generator, if they have one, made what gga targets begin with.
    pub service: &'a Member,
    /// Whose targets, in the order of [`Layout::targets`].
    pub targets: Vec<&'a Member>,
    /// Whose generator, where one is needed.
    pub generator: Option<&'a Member>,
}

impl Mix<'_> {
    /// Names of the implementations, from the initiator to the last target.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [self.initiator, self.service]
            .into_iter()
            .chain(self.targets.iter().copied())
            .map(Member::name)
    }
}

/// The names with commas between them: `rust,cpp,rust`.
impl fmt::Display for Mix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

/// All mixes of these members in a layout, of those that have a program for the part: 8 of two for zero copy, 32 for gga.
pub fn mixes(layout: Layout, members: &[Member]) -> Vec<Mix<'_>> {
    let having = |role| members.iter().filter(move |member| member.has(role));
    let mut targets = vec![Vec::new()];
    for _ in layout.targets() {
        targets = targets
            .iter()
            .flat_map(|chosen| {
                having(Role::Target).map(move |member| {
                    let mut chosen = chosen.clone();
                    chosen.push(member);
                    chosen
                })
            })
            .collect();
    }
    let mut mixes = Vec::new();
    for initiator in having(Role::Initiator) {
        for service in having(layout.service()) {
            let generator = std::iter::once(service)
                .chain(members)
                .find(|member| layout == Layout::Gga && member.has(Role::SbcGenerator));
            mixes.extend(targets.iter().map(|targets| Mix {
                layout,
                initiator,
                service,
                targets: targets.clone(),
                generator,
            }));
        }
    }
    mixes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::implementation::Implementation;
    use crate::matrix::Traits;

    fn member(name: &str) -> Member {
        let multi_call = Path::new("/nowhere/doca-storage");
        let implementation = Implementation::of_binary(name, Role::Target, multi_call);
        Member::with_traits(implementation, Traits::REFERENCE)
    }

    #[test]
    fn every_part_is_played_by_everybody() {
        let members = [member("rust"), member("cpp")];
        let zero_copy = mixes(Layout::ZeroCopy, &members);
        let names: Vec<String> = zero_copy.iter().map(Mix::to_string).collect();
        assert_eq!(
            names,
            [
                "rust,rust,rust",
                "rust,rust,cpp",
                "rust,cpp,rust",
                "rust,cpp,cpp",
                "cpp,rust,rust",
                "cpp,rust,cpp",
                "cpp,cpp,rust",
                "cpp,cpp,cpp"
            ]
        );
        let gga = mixes(Layout::Gga, &members);
        assert_eq!(gga.len(), 32);
        assert_eq!(gga[21].to_string(), "cpp,rust,cpp,rust,cpp");
        assert_eq!(gga[21].generator.map(Member::name), Some("rust"));
        assert_eq!(mixes(Layout::Gga, &members[..1]).len(), 1);
    }

    #[test]
    fn who_has_no_such_program_does_not_take_part() {
        let own = Implementation::of_binary("own", Role::Target, Path::new("/nowhere/own"));
        let members = [member("rust"), Member::with_traits(own, Traits::REFERENCE)];
        let names: Vec<_> = mixes(Layout::ZeroCopy, &members)
            .iter()
            .map(Mix::to_string)
            .collect();
        assert_eq!(names, ["rust,rust,rust", "rust,rust,own"]);
    }
}
