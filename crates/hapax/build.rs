//! Compiles `cpp/new_delete.cpp` and links all of it: nothing calls it by name, it takes the place of the C++ library's own.

fn main() {
    println!("cargo::rerun-if-changed=cpp/new_delete.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("cpp/new_delete.cpp")
        .cargo_metadata(false)
        .compile("hapax_new_delete");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo::rustc-link-search=native={out}");
    println!("cargo::rustc-link-lib=static:+whole-archive=hapax_new_delete");
}
