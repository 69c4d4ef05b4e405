//! `doca-storage status` and `doca-storage top`: display of the roles' metrics.

mod samples;
mod top;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use control::network::HostPort;
use metrics::MetricsAddress;
use role_common::{errln, outln};
use serde_json::{Value, json};
use table::Layout;
use tabled::builder::Builder;

use samples::Role;

pub use top::{Options as TopOptions, run as top};

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
                Err(error) => failure = error.to_string(),
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

// `doca-storage status`: a single query of roles.

const EXAMPLES: &str = "\
Examples:
  doca-storage status 9101 9102 9103 9104
  doca-storage status dpu.example:9104 --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusOptions {
    /// Metrics endpoints of roles, as given to their --metrics: ports of this machine, or hosts with ports
    #[arg(required = true, value_name = "[HOST:]PORT", value_parser = endpoint)]
    roles: Vec<Endpoint>,

    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

/// Prints the roles' state. Exit status 0 if all have answered.
pub fn status(options: &StatusOptions) -> ExitCode {
    let observed = observe(&options.roles);
    if options.json {
        outln!("{}", status_document(&observed));
    } else {
        outln!("{}", status_table(&observed, table::width()));
    }
    let mut code = ExitCode::SUCCESS;
    for one in &observed {
        if let Err(error) = &one.role {
            errln!("doca-storage status: error: {}: {error}", one.endpoint);
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn status_document(observed: &[Observed]) -> Value {
    let roles = observed.iter().map(|one| match &one.role {
        Ok(role) => json!({ "endpoint": one.endpoint, "answers": true, "role": role }),
        Err(error) => json!({ "endpoint": one.endpoint, "answers": false, "error": error }),
    });
    json!({ "roles": roles.collect::<Vec<_>>() })
}

const STATUS_LAYOUT: Layout<'_> = Layout {
    right: &[2, 3, 4, 5, 6, 7, 8, 10, 11],
    optional: &[10, 8, 2, 3, 7, 6, 5, 4],
    flexible: Some(9),
};

fn status_table(observed: &[Observed], width: Option<usize>) -> String {
    let mut rows = Builder::new();
    rows.push_record([
        "endpoint",
        "role",
        "workers",
        "sessions",
        "I/Os",
        "bytes",
        "in flight",
        "p50",
        "p99",
        "redundancy",
        "memory",
        "errors",
    ]);
    for one in observed {
        let Ok(role) = &one.role else {
            let mut row = vec![one.endpoint.clone(), "no answer".to_owned()];
            row.resize(12, String::new());
            rows.push_record(row);
            continue;
        };
        let sessions = match role.failed_sessions {
            0 => role.completed_sessions.to_string(),
            failed => format!("{}, {failed} failed", role.completed_sessions),
        };
        let latency = |of: fn(&samples::Latency) -> f64| {
            role.latency
                .as_ref()
                .map_or_else(String::new, |latency| time(of(latency)))
        };
        rows.push_record([
            one.endpoint.clone(),
            role.short_name().to_owned(),
            role.workers.to_string(),
            sessions,
            count(role.operations() as f64),
            bytes(role.bytes() as f64),
            role.in_flight.to_string(),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            role.redundancy_text(),
            bytes(role.resident_bytes as f64),
            role.error_count().to_string(),
        ]);
    }
    table::render_within(rows, STATUS_LAYOUT, width)
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
    fn status_of_80_columns_shows_redundancy_and_errors_in_whole_words() {
        let page = "doca_storage_build_info{role=\"doca_storage_comch_to_rdma_gga_offload\"} 1\n\
                    doca_storage_operations_total{kind=\"read\"} 123456789\n\
                    doca_storage_errors_total{kind=\"failed\"} 123456\n\
                    doca_storage_redundancy_state{state=\"rebuilding\"} 1\n\
                    doca_storage_target_online{target=\"data_2\"} 0\n\
                    doca_storage_missed_stripes 1234567\n\
                    doca_storage_work_progress_ratio{work=\"rebuild\"} 0.25\n";
        let observed = [
            Observed {
                endpoint: "storage-1.example:9104".to_owned(),
                role: Role::parse(page),
            },
            Observed {
                endpoint: "9101".to_owned(),
                role: Err("refused".to_owned()),
            },
        ];
        for width in [80, 100, 120] {
            let text = status_table(&observed, Some(width));
            for word in [
                "storage-1.example:9104",
                "gga-offload",
                "no answer",
                "rebuilding,",
                "data_2,",
                "1234567",
                "123456",
                "errors",
            ] {
                assert!(text.contains(word), "{word} at {width}:\n{text}");
            }
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
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
