//! Build script of the `wire` crate: compiles the schema in `proto/`.

fn main() {}
