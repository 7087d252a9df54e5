//! Compiles `machine.c` and links all of it into the tests of this package and nothing else: nothing calls it by name, it takes
//! the place of the C library's own clock, sleep and randomness.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=machine.c");
    let objects = cc::Build::new().file("machine.c").cargo_metadata(false).compile_intermediates();
    for object in objects {
        println!("cargo::rustc-link-arg-tests={}", Path::new(&object).display());
    }
    // `getrandom` the library looks its namesake up while it runs.
    println!("cargo::rustc-link-arg-tests=-rdynamic");
}
