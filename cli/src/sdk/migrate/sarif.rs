//! The report as a log of SARIF 2.1.0.

use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};
use softdoca_migrate::{Finding, Kind};

use super::{Report, change};

/// Bytes that are percent-encoded in a URI: all except the unreserved characters of RFC 3986 and the path separator.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

const RULES: [(Kind, &str); 5] = [
    (Kind::Renamed, "The release has another name for it"),
    (
        Kind::Replaced,
        "Another name takes its place, with other arguments or another meaning",
    ),
    (
        Kind::Removed,
        "The release does not have it, and nothing that takes its place one to one",
    ),
    (Kind::Arguments, "The release has it with other arguments"),
    (
        Kind::Include,
        "No included header of the release includes the one that declares it",
    ),
];

pub fn log(report: &Report) -> Value {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|(kind, text)| {
            json!({
                "id": change(*kind),
                "shortDescription": { "text": text },
                "defaultConfiguration": { "level": "error" },
            })
        })
        .collect();
    let results: Vec<Value> = report
        .findings()
        .map(|(path, finding)| result(report, path, finding))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "doca-storage sdk migrate",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules,
                },
            },
            // Same unit as for the columns of JSON and of the table.
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(report: &Report, path: &Path, finding: &Finding) -> Value {
    let rule = RULES.iter().position(|(kind, _)| *kind == finding.kind);
    let artifact = json!({ "uri": uri(path) });
    let region = json!({
        "startLine": finding.position.line,
        "startColumn": finding.position.column,
        "endColumn": finding.position.end_column,
    });
    let mut result = json!({
        "ruleId": change(finding.kind),
        "ruleIndex": rule,
        "level": "error",
        "message": { "text": message(report, finding) },
        "locations": [{
            "physicalLocation": { "artifactLocation": artifact, "region": region },
        }],
    });
    if let Some(replacement) = finding.replacement
        && finding.is_fixed_by_replacement()
    {
        result["fixes"] = json!([{
            "description": { "text": format!("Write {replacement}") },
            "artifactChanges": [{
                "artifactLocation": artifact,
                "replacements": [{
                    "deletedRegion": region,
                    "insertedContent": { "text": replacement },
                }],
            }],
        }]);
    }
    result
}

fn message(report: &Report, finding: &Finding) -> String {
    let to = report.releases.to();
    let name = &finding.name;
    let mut text = match (finding.kind, finding.replacement) {
        (Kind::Arguments, _) => format!("{name} has other arguments in DOCA {to}"),
        (Kind::Include, _) => format!("No included header declares {name} in DOCA {to}"),
        (_, Some(replacement)) => format!("DOCA {to} has {replacement} instead of {name}"),
        (_, None) => format!("DOCA {to} does not have {name}"),
    };
    if !finding.note.is_empty() {
        text.push_str(": ");
        text.push_str(&finding.note);
    }
    text
}

/// A relative reference, or a URI of an absolute path.
fn uri(path: &Path) -> String {
    let scheme = if path.is_absolute() { "file://" } else { "" };
    let path = percent_encode(path.as_os_str().as_encoded_bytes(), &RESERVED);
    format!("{scheme}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_as_uris() {
        assert_eq!(uri(Path::new("a b/é.c")), "a%20b/%C3%A9.c");
        assert_eq!(uri(Path::new("/a#1/b.c")), "file:///a%231/b.c");
    }
}
