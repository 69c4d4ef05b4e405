//! Lists the vector files, so that a new vector needs only a file.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let directory =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("vectors");
    println!("cargo::rerun-if-changed=vectors");
    let mut paths: Vec<_> = fs::read_dir(&directory)
        .expect("the directory of the vectors")
        .map(|entry| entry.expect("an entry of it").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    paths.sort();
    let mut list = String::from("[\n");
    for path in &paths {
        let name = path.file_stem().expect("a name").to_string_lossy();
        writeln!(list, "({name:?}, include_str!({path:?})),").expect("memory");
    }
    list.push(']');
    let out = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("vectors.rs");
    fs::write(out, list).expect("written");
}
