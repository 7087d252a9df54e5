//! The tree's own rules: who may import whom, what each source file must have, which paths the documents name,
//! and whether `docs/guarantees.md` still tells the truth. Reads files only; writes nothing.

mod crates;
mod docs;
mod guarantees;
mod guide;
mod operations;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root, above the `tests` crate.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the tests crate lies in the repository").to_path_buf()
}

/// Reads a file that the tree must have, by its path from the root.
fn read(path: &str) -> String {
    let full = root().join(path);
    fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// Every file under `folder` with this extension, as paths from the root with `/`, sorted.
///
/// Hidden folders and build output are left out.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                let relative = path.strip_prefix(root()).expect("found below the root");
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// Fails with all complaints at once, so that one run shows all there is to mend.
fn must_be_clean(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
