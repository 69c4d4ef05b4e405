//! Archives the sources of softdoca's shared library, which `sdk install` needs outside of a checkout.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// Packages of the archive: their directories.
const PACKAGES: [&str; 4] = [
    "doca-sys/abi",
    "softdoca/net",
    "softdoca",
    "softdoca/shared",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("..");
    let archive = PathBuf::from(std::env::var("OUT_DIR")?).join("softdoca.tar.gz");
    let mut archive = Builder::new(GzEncoder::new(File::create(archive)?, Compression::best()));
    add(
        &mut archive,
        "Cargo.toml",
        workspace(&root)?.to_string().as_bytes(),
    )?;
    add(
        &mut archive,
        "Cargo.lock",
        &std::fs::read(watched(&root.join("Cargo.lock")))?,
    )?;
    for package in PACKAGES {
        let manifest = Path::new(package).join("Cargo.toml");
        let text = package_manifest(&root.join(&manifest))?;
        add(&mut archive, &manifest, text.as_bytes())?;
        let build = Path::new(package).join("build.rs");
        if root.join(&build).is_file() {
            add(
                &mut archive,
                &build,
                &std::fs::read(watched(&root.join(&build)))?,
            )?;
        }
        let sources = Path::new(package).join("src");
        watched(&root.join(&sources));
        add_directory(&mut archive, &root, &sources)?;
    }
    archive.into_inner()?.finish()?.flush()?;
    Ok(())
}

/// Makes cargo rerun this script when the path changes.
fn watched(path: &Path) -> &Path {
    println!("cargo::rerun-if-changed={}", path.display());
    path
}

type Archive = Builder<GzEncoder<File>>;

/// Reproducible: without times and owners.
fn add(archive: &mut Archive, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append_data(&mut header, path, bytes)
}

fn add_directory(archive: &mut Archive, root: &Path, directory: &Path) -> io::Result<()> {
    let entries = std::fs::read_dir(root.join(directory))?;
    let mut names = entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let path = directory.join(name);
        if root.join(&path).is_dir() {
            add_directory(archive, root, &path)?;
        } else {
            add(archive, &path, &std::fs::read(root.join(&path))?)?;
        }
    }
    Ok(())
}

/// The workspace's manifest, with the packages of the archive as its only members.
fn workspace(root: &Path) -> Result<toml::Table, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(watched(&root.join("Cargo.toml")))?;
    let mut manifest: toml::Table = text.parse()?;
    let workspace = manifest
        .get_mut("workspace")
        .and_then(toml::Value::as_table_mut)
        .ok_or("the manifest of the workspace has no workspace")?;
    let members = PACKAGES.map(toml::Value::from).to_vec();
    workspace.insert("members".to_owned(), members.clone().into());
    workspace.insert("default-members".to_owned(), members.into());
    Ok(manifest)
}

/// A package's manifest without its tests, and without the dependencies that only they need.
fn package_manifest(path: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let mut manifest: toml::Table = std::fs::read_to_string(watched(path))?.parse()?;
    for tests in ["dev-dependencies", "test", "bench", "example"] {
        manifest.remove(tests);
    }
    Ok(manifest.to_string())
}
