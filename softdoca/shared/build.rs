//! Compiles the variadic functions, which stable Rust cannot define, and sets the library's SONAME.

fn main() {
    println!("cargo::rerun-if-changed=src/variadic.c");
    cc::Build::new()
        .file("src/variadic.c")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .compile("softdoca_variadic");
    // Programs request the SONAME instead of the file name; an incompatible library must change it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsoftdoca.so.3");
    // For a test that builds programs for the same target.
    let target = std::env::var("TARGET").expect("set by cargo");
    println!("cargo::rustc-env=TARGET={target}");
}
