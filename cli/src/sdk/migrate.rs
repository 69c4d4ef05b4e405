//! `doca-storage sdk migrate`: changes that programs need for another release.

mod sarif;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use role_common::console::counted;
use role_common::outln;
use serde::{Deserialize, Serialize};
use softdoca_migrate::{
    Examined, Finding, Kind, Language, Names, Position, ReleaseNumber, Releases, SymbolKind,
    add_missing_includes, examine,
};
use tabled::builder::Builder;

use crate::{Result, exit_code, usage};

const EXAMPLES: &str = "\
Examples:
  doca-storage sdk migrate src/*.c include/*.h
  doca-storage sdk migrate --from 2.9 --to 3.0 client.cpp
  doca-storage sdk migrate --compile-commands build
  doca-storage sdk migrate --sarif --compile-commands build > migrate.sarif

Exit status: 0 if nothing is left to change, 1 if something is, 2 for wrong usage.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// Release that the program is written for: 2.5, 2.6, 2.9, 2.10, 3.0, 3.1 or 3.2
    #[arg(long, value_name = "RELEASE", default_value = "2.5")]
    from: ReleaseNumber,

    /// Release to change it for: one after that, up to 3.3
    #[arg(long, value_name = "RELEASE", default_value = "3.3")]
    to: ReleaseNumber,

    /// Print JSON instead of a table, with the names that the tables of releases do not have
    #[arg(long)]
    json: bool,

    /// Print SARIF 2.1.0, which code hosts show beside the source
    #[arg(long, conflicts_with = "json")]
    sarif: bool,

    /// Examine the files of DIR/compile_commands.json, and the program's headers that they include
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    compile_commands: Option<PathBuf>,

    /// Files of C, C++ and CUDA
    #[arg(value_name = "FILE", required_unless_present = "compile_commands")]
    files: Vec<PathBuf>,
}

/// Findings in the files of a program.
struct Report {
    releases: Releases,
    /// By path, relative to the working directory if possible.
    files: BTreeMap<PathBuf, Examined>,
}

impl Migrate {
    pub fn run(&self) -> Result<ExitCode> {
        let releases =
            Releases::new(self.from, self.to).map_err(|error| usage(format!("--from: {error}")))?;
        let report = match &self.compile_commands {
            None => {
                let program = examine_files(&self.files, releases)?;
                let named: BTreeSet<PathBuf> = self.files.iter().map(|it| shortest(it)).collect();
                Report::new(program, |path| named.contains(path))
            }
            Some(directory) => Report::new(examine_database(directory, releases)?, |_| true),
        };
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&report.json())?);
        } else if self.sarif {
            outln!("{}", serde_json::to_string_pretty(&sarif::log(&report))?);
        } else {
            report.print();
        }
        Ok(exit_code(report.findings().next().is_none()))
    }
}

/// Names of the current release, from its generated headers.
fn known_names() -> Names {
    let mut names = Names::default();
    for header in softdoca_sdk::headers(softdoca_sdk::Release::CURRENT) {
        names.add_header(header.name, &header.text);
    }
    names
}

fn read(path: &Path) -> Result<String> {
    // A comment in another encoding is not an error.
    let bytes =
        fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn language_of(path: &Path) -> Option<Language> {
    Language::of_file(path.file_name()?.to_str()?)
}

/// Files that were examined, and how they include each other.
struct Program {
    releases: Releases,
    known: Names,
    files: BTreeMap<PathBuf, Examined>,
    included: BTreeMap<PathBuf, Vec<Option<PathBuf>>>,
}

impl Program {
    fn new(releases: Releases) -> Self {
        Self {
            releases,
            known: known_names(),
            files: BTreeMap::new(),
            included: BTreeMap::new(),
        }
    }

    /// Examines a file, and the headers that it includes in quotes, which are searched beside it and in `directories`.
    fn add(&mut self, path: PathBuf, language: Language, directories: &[PathBuf]) -> Result<()> {
        let mut open = vec![(path, language)];
        while let Some((path, language)) = open.pop() {
            if self.files.contains_key(&path) {
                continue;
            }
            let examined = examine(&read(&path)?, language, self.releases, &self.known);
            let beside = path.parent().map(Path::to_owned);
            let included: Vec<Option<PathBuf>> = examined
                .includes
                .iter()
                .map(|include| {
                    beside
                        .iter()
                        .chain(directories)
                        .map(|directory| directory.join(include))
                        .find(|header| header.is_file())
                        .map(|header| shortest(&header))
                })
                .collect();
            for header in included.iter().flatten() {
                let language = language_of(header).unwrap_or(Language::Header);
                open.push((header.clone(), language));
            }
            self.included.insert(path.clone(), included);
            self.files.insert(path, examined);
        }
        Ok(())
    }
}

/// Examines files; the headers that they include are parsed to understand them, but without findings in these headers.
fn examine_files(paths: &[PathBuf], releases: Releases) -> Result<Program> {
    let mut program = Program::new(releases);
    for path in paths {
        let language = language_of(path).ok_or_else(|| {
            usage(format!(
                "expected files of C, C++ or CUDA, such as .c, .h, .cpp, got {}",
                path.display()
            ))
        })?;
        program.add(shortest(path), language, &[])?;
    }
    Ok(program)
}

// Compilation databases.

/// One compilation, as in the JSON compilation database of Clang.
#[derive(Debug, Deserialize)]
struct Compilation {
    directory: PathBuf,
    file: PathBuf,
    #[serde(default)]
    command: String,
    #[serde(default)]
    arguments: Vec<String>,
}

impl Compilation {
    /// Directories in which `#include "…"` is searched after that of the file.
    fn include_directories(&self) -> Vec<PathBuf> {
        let words: Vec<&str> = if self.arguments.is_empty() {
            self.command.split_whitespace().collect()
        } else {
            self.arguments.iter().map(String::as_str).collect()
        };
        let mut directories = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let flag = ["-iquote", "-isystem", "-I"]
                .into_iter()
                .find_map(|flag| word.strip_prefix(flag));
            let directory = match flag {
                Some("") => words.next().unwrap_or_default(),
                Some(directory) => directory,
                None => continue,
            };
            directories.push(self.directory.join(directory));
        }
        directories
    }
}

/// Examines each file of a compilation database once, and the headers that it includes in quotes.
fn examine_database(directory: &Path, releases: Releases) -> Result<Program> {
    let path = directory.join("compile_commands.json");
    let text = read(&path)?;
    let compilations: Vec<Compilation> = serde_json::from_str(&text).map_err(|error| {
        format!(
            "{}: expected a compilation database: {error}",
            path.display()
        )
    })?;
    let mut program = Program::new(releases);
    for compilation in &compilations {
        let path = shortest(&compilation.directory.join(&compilation.file));
        // Assembler files are skipped.
        if let Some(language) = language_of(&path) {
            program.add(path, language, &compilation.include_directories())?;
        }
    }
    Ok(program)
}

/// Path without symbolic links and `..`, and relative to the working directory if it is below it.
fn shortest(path: &Path) -> PathBuf {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let here = std::env::current_dir().and_then(fs::canonicalize);
    match here {
        Ok(here) => path.strip_prefix(here).map_or(path.clone(), Path::to_owned),
        Err(_) => path,
    }
}

// Output.

#[derive(Debug, Serialize)]
struct Json<'r> {
    from: String,
    to: String,
    files: usize,
    findings: Vec<JsonFinding<'r>>,
    outside_of_tables: Vec<JsonName<'r>>,
}

#[derive(Debug, Serialize)]
struct JsonFinding<'r> {
    #[serde(flatten)]
    place: JsonPlace,
    name: &'r str,
    symbol: &'static str,
    change: &'static str,
    replacement: Option<&'static str>,
    note: &'r str,
}

#[derive(Debug, Serialize)]
struct JsonName<'r> {
    name: &'r str,
    places: Vec<JsonPlace>,
}

#[derive(Debug, Serialize)]
struct JsonPlace {
    file: String,
    line: usize,
    column: usize,
    end_column: usize,
}

impl JsonPlace {
    fn new(file: &Path, position: Position) -> Self {
        Self {
            file: file.to_string_lossy().into_owned(),
            line: position.line,
            column: position.column,
            end_column: position.end_column,
        }
    }
}

/// Name of a kind of change, also used as the identifier of a rule in SARIF.
fn change(kind: Kind) -> &'static str {
    match kind {
        Kind::Renamed => "renamed",
        Kind::Replaced => "replaced",
        Kind::Removed => "removed",
        Kind::Arguments => "arguments",
        Kind::Include => "include",
    }
}

fn symbol(kind: SymbolKind) -> &'static str {
    match kind {
        SymbolKind::Function => "function",
        SymbolKind::Type => "type",
        SymbolKind::EnumValue => "enum value",
        SymbolKind::Macro => "macro",
        SymbolKind::Header => "header",
    }
}

/// The replacement and, below it, the note.
fn instead(finding: &Finding) -> String {
    let first = match (finding.kind, finding.replacement) {
        (Kind::Arguments, _) => "other arguments",
        (Kind::Include, _) => "include its header",
        (_, Some(replacement)) => replacement,
        (_, None) => "removed",
    };
    if finding.note.is_empty() {
        first.to_owned()
    } else {
        format!("{first}\n{}", finding.note)
    }
}

impl Report {
    /// Reports on the files of a program for which `is_reported` returns `true`.
    fn new(program: Program, is_reported: impl Fn(&Path) -> bool) -> Self {
        let Program {
            releases,
            mut files,
            included,
            ..
        } = program;
        let defined: BTreeSet<String> = files
            .values()
            .flat_map(|examined| examined.defined.iter().cloned())
            .collect();
        for examined in files.values_mut() {
            examined.remove_defined(&defined);
        }
        add_missing_includes(&mut files, &included, releases);
        files.retain(|path, _| is_reported(path));
        Self { releases, files }
    }

    fn findings(&self) -> impl Iterator<Item = (&Path, &Finding)> {
        self.files
            .iter()
            .flat_map(|(path, it)| it.findings.iter().map(|finding| (&**path, finding)))
    }

    /// Names that the tables do not have, with their places.
    fn outside(&self) -> BTreeMap<&str, Vec<(&Path, Position)>> {
        let mut names: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (path, examined) in &self.files {
            for (name, positions) in &examined.unknown {
                let places = names.entry(name).or_default();
                places.extend(positions.iter().map(|position| (&**path, *position)));
            }
        }
        names
    }

    fn json(&self) -> Json<'_> {
        Json {
            from: self.releases.from().to_string(),
            to: self.releases.to().to_string(),
            files: self.files.len(),
            findings: self
                .findings()
                .map(|(path, finding)| JsonFinding {
                    place: JsonPlace::new(path, finding.position),
                    name: &finding.name,
                    symbol: symbol(finding.symbol),
                    change: change(finding.kind),
                    replacement: finding.replacement,
                    note: &finding.note,
                })
                .collect(),
            outside_of_tables: self
                .outside()
                .into_iter()
                .map(|(name, places)| JsonName {
                    name,
                    places: places
                        .into_iter()
                        .map(|(path, position)| JsonPlace::new(path, position))
                        .collect(),
                })
                .collect(),
        }
    }

    fn print(&self) {
        let mut rows = Builder::default();
        rows.push_record(["place", "name", "instead"]);
        for (path, finding) in self.findings() {
            let Position { line, column, .. } = finding.position;
            rows.push_record([
                format!("{}:{line}:{column}", path.display()),
                finding.name.clone(),
                instead(finding),
            ]);
        }
        let layout = table::Layout {
            flexible: Some(2),
            ..table::Layout::default()
        };
        let places = self.findings().count();
        if places > 0 {
            outln!("{}", table::render(rows, layout));
        }
        table::say!(
            "{} to change from {} to {} in {}",
            counted(places as u64, "place"),
            self.releases.from(),
            self.releases.to(),
            counted(self.files.len() as u64, "file")
        );
        let outside = self.outside().len();
        if outside > 0 {
            table::say!(
                "{} outside of the tables, which may have changed too: --json lists them",
                counted(outside as u64, "name")
            );
        }
    }
}
