//! The DOCA release that a process sees where releases differ in values.
//!
//! Programs compiled with the headers of an older release set it in the environment.

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::error::Error;

/// Environment variable that names a release.
pub const VARIABLE: &str = "SOFTDOCA_API";

/// A release whose values softdoca supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// 3.0: parameter type numbers before device types were inserted.
    V3_0,
    /// 3.1
    V3_1,
    /// 3.2
    V3_2,
    /// 3.3: the release of softdoca's own headers.
    V3_3,
}

impl Api {
    /// All releases, oldest first.
    pub const ALL: [Api; 4] = [Api::V3_0, Api::V3_1, Api::V3_2, Api::V3_3];

    /// The release of this process: the value of [`VARIABLE`], or the newest. Read once; an unknown release is logged.
    pub fn current() -> Api {
        static CURRENT: OnceLock<Api> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
                return Api::V3_3;
            };
            let named = name.to_str().and_then(Api::from_name);
            named.unwrap_or_else(|| {
                let _ = Error::BadConfig.because(format_args!(
                    "{VARIABLE}: expected 3.0, 3.1, 3.2 or 3.3, got {name:?}; going on with 3.3"
                ));
                Api::V3_3
            })
        })
    }

    /// Parses `3.2`, or `3.2.` followed by a patch level.
    fn from_name(name: &str) -> Option<Api> {
        Api::ALL.into_iter().find(|api| {
            let version = api.version().to_str().unwrap_or_default();
            let release = version.strip_suffix(".0").unwrap_or(version);
            name.strip_prefix(release).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('.').is_some_and(|patch| {
                        !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit())
                    })
            })
        })
    }

    /// The version string reported to programs.
    pub fn version(self) -> &'static CStr {
        match self {
            Api::V3_0 => c"3.0.0",
            Api::V3_1 => c"3.1.0",
            Api::V3_2 => c"3.2.0",
            Api::V3_3 => c"3.3.0",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_names_with_and_without_patch() {
        for (name, expected) in [
            ("3.0", Some(Api::V3_0)),
            ("3.2", Some(Api::V3_2)),
            ("3.2.2", Some(Api::V3_2)),
            ("3.3.0", Some(Api::V3_3)),
            ("3", None),
            ("3.", None),
            ("3.3.", None),
            ("3.30", None),
            ("3.2.x", None),
            ("2.9", None),
        ] {
            assert_eq!(Api::from_name(name), expected, "{name}");
        }
    }

    #[test]
    fn the_newest_is_that_of_the_headers() {
        use doca_abi::{DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH};
        let expected = format!("{DOCA_VERSION_MAJOR}.{DOCA_VERSION_MINOR}.{DOCA_VERSION_PATCH}");
        assert_eq!(Api::ALL[3].version().to_str(), Ok(&*expected));
    }
}
