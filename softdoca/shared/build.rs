//! Compiles the variadic functions, which stable Rust cannot define, and names the library.

fn main() {
    println!("cargo::rerun-if-changed=src/variadic.c");
    cc::Build::new()
        .file("src/variadic.c")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .compile("softdoca_variadic");
    // Programs record this name and not that of the file: an incompatible library must have another one.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsoftdoca.so.3");
}
