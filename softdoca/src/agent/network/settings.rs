//! Environment variables of the network.

use std::ffi::OsString;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use softdoca_net::is_temporary;

use super::super::limits::Limits;
use super::authentication::SharedKey;
use super::tls::Tls;
use crate::error::{Error, Result};

/// Addresses on which this process listens for peers on other machines.
pub(crate) const ADDRESS: &str = "SOFTDOCA_ADDRESS";
/// File with the key shared by all processes of a deployment.
const KEY_FILE: &str = "SOFTDOCA_KEY_FILE";
/// `tcp`: processes of this machine are also reached over the network, and never by verbs. `verbs`: the same, always by
/// verbs.
pub(super) const TRANSPORT: &str = "SOFTDOCA_TRANSPORT";
/// Files in PEM for TLS: the certificate of this machine, its private key, and the authorities that sign the peers' certificates.
pub(super) const TLS_CERTIFICATE: &str = "SOFTDOCA_TLS_CERTIFICATE";
pub(super) const TLS_KEY: &str = "SOFTDOCA_TLS_KEY";
pub(super) const TLS_CA: &str = "SOFTDOCA_TLS_CA";
/// Maximum number of addresses offered to a peer: blobs are small.
pub(super) const MOST_ADDRESSES: usize = 4;
/// Minimum size of a key in bytes: a shorter one can be guessed from a recorded connection.
const SHORTEST_KEY: usize = 16;
const LONGEST_KEY: usize = 4096;
/// Pause between attempts to resolve a host name.
const PAUSE: Duration = Duration::from_millis(100);

/// Transport to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Over the network, by verbs where both have a device, if they are on other machines.
    Auto,
    /// Over TCP, including peers on this machine that offer it.
    Tcp,
    /// By verbs, including peers on this machine that offer it.
    Verbs,
}

/// Network configuration of this process.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) addresses: Vec<IpAddr>,
    /// `None`: only peers on this machine.
    pub(super) key: Option<SharedKey>,
    /// `None`: connections are not encrypted.
    pub(super) tls: Option<Tls>,
    pub(super) transport: Transport,
}

impl Settings {
    /// Settings of this process, read once; `None` if it does not use the network.
    ///
    /// # Errors
    /// [`Error::BadConfig`] for an invalid variable, [`Error::NotPermitted`] for a key that other users can read, and
    /// [`Error::TimeOut`] if no name server answers; only this error is not cached.
    pub(super) fn get() -> Result<Option<&'static Settings>> {
        static SETTINGS: OnceLock<Result<Option<Settings>>> = OnceLock::new();
        Settings::get_or_read(&SETTINGS, || {
            Settings::read(
                |name| std::env::var_os(name),
                lookup,
                Limits::get()?.request,
            )
        })
    }

    fn get_or_read(
        settings: &OnceLock<Result<Option<Settings>>>,
        read: impl FnOnce() -> Result<Option<Settings>>,
    ) -> Result<Option<&Settings>> {
        let known = match settings.get() {
            Some(known) => known,
            None => match read() {
                Err(Error::TimeOut) => return Err(Error::TimeOut),
                read => settings.get_or_init(|| read),
            },
        };
        known.as_ref().map(Option::as_ref).map_err(|error| *error)
    }

    fn read(
        variable: impl Fn(&str) -> Option<OsString>,
        lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
        timeout: Duration,
    ) -> Result<Option<Settings>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let Some(list) = variable(ADDRESS) else {
            return Ok(None);
        };
        let addresses = addresses(&list.to_string_lossy(), lookup, timeout)?;
        let key = variable(KEY_FILE)
            .map(|path| key(Path::new(&path)))
            .transpose()?;
        let tls = Tls::read(variable)?;
        let transport = match variable(TRANSPORT) {
            None => Transport::Auto,
            Some(value) if value == "auto" => Transport::Auto,
            Some(value) if value == "tcp" => Transport::Tcp,
            Some(value) if value == "verbs" => Transport::Verbs,
            Some(value) => {
                return Err(Error::BadConfig.because(format_args!(
                    "expected auto, tcp or verbs in the environment variable {TRANSPORT}, got {value:?}"
                )));
            }
        };
        if transport == Transport::Verbs && tls.is_some() {
            return Err(Error::BadConfig.because(format_args!(
                "{TRANSPORT} is verbs, which does not encrypt, and {TLS_CERTIFICATE} is set: use one of them"
            )));
        }
        let settings = Settings {
            addresses,
            key,
            tls,
            transport,
        };
        for address in &settings.addresses {
            settings.check(*address)?;
        }
        Ok(Some(settings))
    }

    /// Refuses an address outside of this machine if its peers are not authenticated.
    pub(super) fn check(&self, address: IpAddr) -> Result<()> {
        if self.key.is_some() || self.tls.is_some() || address.is_loopback() {
            return Ok(());
        }
        Err(Error::NotPermitted.because(format_args!(
            "{address} is not a loopback address and there is no key: set {KEY_FILE} to a file of at least {SHORTEST_KEY} random \
             bytes, with mode 0600, and the same content on all machines of the deployment, or use TLS"
        )))
    }
}

fn lookup(name: &str) -> std::io::Result<Vec<IpAddr>> {
    Ok((name, 0)
        .to_socket_addrs()?
        .map(|address| address.ip())
        .collect())
}

/// Parses addresses and host names, separated by commas. Temporary failures of the resolver are retried until `timeout`.
fn addresses(
    list: &str,
    lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
    timeout: Duration,
) -> Result<Vec<IpAddr>> {
    let begin = Instant::now();
    let mut addresses = Vec::new();
    for name in list.split(',').map(str::trim) {
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => loop {
                match lookup(name) {
                    Ok(found) => break found,
                    Err(error) if !is_temporary(&error) => break Vec::new(),
                    Err(_) if begin.elapsed() + PAUSE < timeout => std::thread::sleep(PAUSE),
                    Err(error) => {
                        return Err(Error::TimeOut.because(format_args!(
                            "cannot resolve {name:?} of the environment variable {ADDRESS}: {error}; try again: the failure may be \
                             temporary"
                        )));
                    }
                }
            },
        };
        if found.is_empty() || found.iter().any(IpAddr::is_unspecified) {
            return Err(Error::BadConfig.because(format_args!(
                "expected addresses of this machine, separated by commas, in the environment variable {ADDRESS}, such as \
                 192.0.2.1,2001:db8::1; got {name:?}"
            )));
        }
        addresses.extend(found);
    }
    addresses.dedup();
    if addresses.len() > MOST_ADDRESSES {
        return Err(Error::BadConfig.because(format_args!(
            "expected at most {MOST_ADDRESSES} addresses in the environment variable {ADDRESS}, got {}",
            addresses.len()
        )));
    }
    Ok(addresses)
}

fn key(path: &Path) -> Result<SharedKey> {
    let cannot = |error: std::io::Error| {
        Error::BadConfig.because(format_args!(
            "cannot read {}, which the environment variable {KEY_FILE} names: {error}",
            path.display()
        ))
    };
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    let user = rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o077 != 0 || ![user, 0].contains(&metadata.uid()) {
        return Err(Error::NotPermitted.because(format_args!(
            "the key {} has mode {:03o} and belongs to user {}, expected 600 and user {user}: run chmod 600 on it",
            path.display(),
            metadata.mode() & 0o777,
            metadata.uid()
        )));
    }
    if !metadata.is_file() || metadata.len() > LONGEST_KEY as u64 {
        return Err(Error::BadConfig.because(format_args!(
            "expected a file of at most {LONGEST_KEY} bytes at {}",
            path.display()
        )));
    }
    let mut bytes = std::fs::read(path).map_err(cannot)?;
    // Editors end files with a newline.
    while bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.len() < SHORTEST_KEY {
        return Err(Error::BadConfig.because(format_args!(
            "expected a key of at least {SHORTEST_KEY} bytes in {}, got {}",
            path.display(),
            bytes.len()
        )));
    }
    Ok(SharedKey::new(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(address: Option<&str>, key: Option<&Path>) -> Result<Option<Settings>> {
        let variable = |name: &str| match name {
            ADDRESS => address.map(Into::into),
            KEY_FILE => key.map(Into::into),
            _ => None,
        };
        Settings::read(variable, lookup, Duration::ZERO)
    }

    /// The settings for a host name whose lookups fail temporarily `failures` times.
    fn read_name(failures: u32, timeout: Duration) -> (Result<Option<Settings>>, u32) {
        let lookups = std::cell::Cell::new(0);
        let variable = |name: &str| (name == ADDRESS).then(|| "storage.example".into());
        let lookup = |name: &str| {
            assert_eq!(name, "storage.example");
            lookups.set(lookups.get() + 1);
            if lookups.get() <= failures {
                let text =
                    "failed to lookup address information: Temporary failure in name resolution";
                return Err(std::io::Error::other(text));
            }
            Ok(vec![IpAddr::from([127, 0, 0, 5])])
        };
        (Settings::read(variable, lookup, timeout), lookups.get())
    }

    #[test]
    fn temporary_failure_of_the_resolver_is_retried_and_never_final() {
        let (settings, lookups) = read_name(2, Duration::from_secs(3600));
        let addresses = settings.map(|settings| settings.unwrap().addresses);
        assert_eq!(addresses, Ok(vec![IpAddr::from([127, 0, 0, 5])]));
        assert_eq!(lookups, 3);
        // The next call reads them again, and then they are known.
        let known = OnceLock::new();
        let mut failures = 2;
        let mut get = || {
            Settings::get_or_read(&known, || {
                failures -= 1;
                read_name(failures, Duration::ZERO).0
            })
            .map(|settings| settings.is_some())
        };
        assert_eq!(get(), Err(Error::TimeOut));
        assert_eq!(get(), Ok(true));
        assert_eq!(get(), Ok(true));
    }

    #[test]
    fn other_errors_are_final() {
        let known = OnceLock::new();
        let mut reads = 0;
        for _ in 0..2 {
            let settings = Settings::get_or_read(&known, || {
                reads += 1;
                read(Some("192.0.2.1"), None)
            });
            assert_eq!(settings.err(), Some(Error::NotPermitted));
        }
        assert_eq!(reads, 1);
    }

    #[test]
    fn nothing_listens_by_default() {
        assert!(read(None, None).unwrap().is_none());
        assert!(read(Some(""), None).unwrap().is_none());
    }

    #[test]
    fn addresses_outside_of_the_machine_need_a_key() {
        let only = |list| read(Some(list), None).map(|settings| settings.unwrap().addresses.len());
        assert_eq!(only("127.0.0.1, ::1"), Ok(2));
        // A host name: with its IPv4 and IPv6 addresses, where it has both.
        assert!(matches!(only("localhost"), Ok(1..=2)));
        assert_eq!(only("192.0.2.1"), Err(Error::NotPermitted));
        assert_eq!(only("127.0.0.1,192.0.2.1"), Err(Error::NotPermitted));
        for list in ["0.0.0.0", "::", "no such host.invalid", ",", "127.0.0.1,"] {
            assert_eq!(only(list), Err(Error::BadConfig), "{list:?}");
        }
        assert_eq!(
            only("127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5"),
            Err(Error::BadConfig)
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "sixteen bytes at least\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let with_key = || read(Some("192.0.2.1"), Some(&path)).map(|settings| settings.is_some());
        assert_eq!(with_key(), Ok(true));
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(with_key(), Err(Error::NotPermitted), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(with_key(), Err(Error::BadConfig));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(with_key(), Err(Error::BadConfig));
    }
}
