//! `doca-storage status`: a single query of roles.

use std::process::ExitCode;

use clap::Args;
use role_common::{errln, outln};
use serde_json::{Value, json};
use tabled::builder::Builder;

use super::{Endpoint, Observed, bytes, count, endpoint, observe, time};
use crate::table::{self, Layout};

const EXAMPLES: &str = "\
Examples:
  doca-storage status 9101 9102 9103 9104
  doca-storage status dpu.example:9104 --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Metrics endpoints of roles, as given to their --metrics: ports of this machine, or hosts with ports
    #[arg(required = true, value_name = "[HOST:]PORT", value_parser = endpoint)]
    roles: Vec<Endpoint>,

    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

/// Prints the roles' state. Exit status 0 if all have answered.
pub fn run(options: &Options) -> ExitCode {
    let observed = observe(&options.roles);
    if options.json {
        outln!("{}", document(&observed));
    } else {
        outln!("{}", table(&observed));
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

fn document(observed: &[Observed]) -> Value {
    let roles = observed.iter().map(|one| match &one.role {
        Ok(role) => json!({ "endpoint": one.endpoint, "answers": true, "role": role }),
        Err(error) => json!({ "endpoint": one.endpoint, "answers": false, "error": error }),
    });
    json!({ "roles": roles.collect::<Vec<_>>() })
}

const LAYOUT: Layout<'_> = Layout {
    right: &[2, 3, 4, 5, 6, 7, 8, 10],
    optional: &[8, 7, 10, 6, 3],
    flexible: Some(9),
};

fn table(observed: &[Observed]) -> String {
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
        let latency = |of: fn(&super::samples::Latency) -> f64| {
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
    table::render(rows, LAYOUT)
}
