//! `doca-storage status` and `doca-storage top`: display of the roles' metrics.

mod samples;
mod status;
mod top;

use std::thread;
use std::time::Duration;

pub use status::Options as StatusOptions;
pub use status::run as status;
pub use top::Options as TopOptions;
pub use top::run as top;

use role_common::address::HostPort;
use role_common::metrics::MetricsAddress;
use samples::Role;

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Metrics endpoint of a role, as given by the user.
#[derive(Debug, Clone)]
struct Endpoint {
    text: String,
    /// Host and port, resolved for each query because addresses may change.
    host: HostPort,
}

/// Parses a port of this machine, or a host name or IP address with a port.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    // Parsed as by a role.
    let MetricsAddress(host) = text
        .parse()
        .map_err(|_| "expected <port> or <host>:<port>, as in a role's --metrics".to_owned())?;
    Ok(Endpoint {
        text: text.to_owned(),
        host,
    })
}

impl Endpoint {
    fn ask(&self) -> Result<Role, String> {
        let addresses = self.host.resolve().map_err(|error| error.to_string())?;
        let mut failure = String::new();
        for address in addresses {
            match samples::metrics(address, TIMEOUT) {
                Ok(text) => return Role::parse(&text),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// A role's endpoint, with its metrics or an error.
struct Observed {
    endpoint: String,
    role: Result<Role, String>,
}

/// Queries all roles concurrently.
fn observe(endpoints: &[Endpoint]) -> Vec<Observed> {
    thread::scope(|scope| {
        let asked: Vec<_> = endpoints
            .iter()
            .map(|endpoint| scope.spawn(|| endpoint.ask()))
            .collect();
        asked
            .into_iter()
            .zip(endpoints)
            .map(|(asked, endpoint)| Observed {
                endpoint: endpoint.text.clone(),
                role: asked
                    .join()
                    .unwrap_or_else(|_| Err("the question failed".to_owned())),
            })
            .collect()
    })
}

/// Formats a number of bytes with a binary unit, in at most four digits.
fn bytes(number: f64) -> String {
    let mut value = number;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            let digits = usize::from(value < 100.0 && unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

/// Formats a number with a decimal unit, in at most four digits.
fn count(number: f64) -> String {
    let mut value = number;
    for unit in ["", " k", " M", " G", " T"] {
        if value < 9999.5 {
            let digits = usize::from(value < 100.0 && !unit.is_empty());
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} P")
}

/// Formats a time in microseconds or a larger unit.
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds.is_nan() => "-".to_owned(),
        _ if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_ports_names_and_addresses() {
        let host = |text: &str| endpoint(text).map(|it| it.host.to_string());
        assert_eq!(host("9100"), Ok("127.0.0.1:9100".to_owned()));
        assert_eq!(host("[::1]:9100"), Ok("[::1]:9100".to_owned()));
        assert_eq!(
            host("role.example:9100"),
            Ok("role.example:9100".to_owned())
        );
        for wrong in ["", "localhost", "65536", "127.0.0.1:x", "127.0.0:1", ":80"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_formatted_with_units() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(300.0 * 1024.0 * 1024.0), "300 MiB");
        assert_eq!(count(9999.0), "9999");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(474_000_000.0), "474 M");
        assert_eq!(time(0.000_118), "118 us");
        assert_eq!(time(0.0125), "12.5 ms");
        assert_eq!(time(f64::NAN), "-");
    }
}
