//! The rooms of the library import downwards only, so that each can be read without those above it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms, lowest first. A file may import from its own room and from any before it.
const ROOMS: [&[&str]; 8] = [
    &["coding", "error"],
    &["comparator", "sorted_input"],
    &["filter"],
    &["format"],
    &["write"],
    &["read"],
    &["db"],
    &["fuzzing", "lib", "sister_crates"],
];

/// The position of the room that `path`, such as `read::table`, is in.
fn room(path: &str) -> usize {
    let is_in = |room: &&str| path == *room || path.starts_with(&format!("{room}::"));
    let fits = |(_, rooms): &(usize, &&[&str])| rooms.iter().any(&is_in);
    // The longest name decides: `format::internal_key` before `db`.
    let best = ROOMS
        .iter()
        .enumerate()
        .filter(fits)
        .max_by_key(|(_, rooms)| {
            rooms
                .iter()
                .filter(|room| is_in(room))
                .map(|room| room.len())
                .max()
        });
    best.unwrap_or_else(|| panic!("{path} is in no room")).0
}

fn visit(directory: &Path, module: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let name = match (module, stem) {
            (_, "mod") => module.to_owned(),
            ("", stem) => stem.to_owned(),
            (module, stem) => format!("{module}::{stem}"),
        };
        if path.is_dir() {
            visit(&path, &name, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn imports_point_down_only() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    visit(&source, "", &mut files);
    assert!(files.len() > 30, "{:?}", files.keys());
    let mut imports = 0;
    let mut wrong = Vec::new();
    for (module, text) in &files {
        if module == "lib" || module.starts_with("bin") {
            continue;
        }
        // Tests may use the public interface, and so may links in documentation.
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
        let code = code.replace("#[cfg(doc)]\nuse crate::", "// ");
        let code = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: Vec<&str> = code.collect();
        let code = code.join("\n");
        for import in code.split("crate::").skip(1) {
            let end = import.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            let import = import[..end.unwrap_or(import.len())].trim_end_matches(':');
            imports += 1;
            if room(import) > room(module) {
                wrong.push(format!("{module} imports {import}"));
            }
        }
    }
    assert!(imports > 100, "{imports}");
    assert_eq!(wrong, Vec::<String>::new());
}

const ARCHITECTURE: &str = include_str!("../ARCHITECTURE.md");

/// What stands between backquotes in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_table_of_rooms_is_the_order_that_is_checked() {
    let section = ARCHITECTURE.split("\n## Rooms\n").nth(1).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let written = rows.map(|row| quoted(row.split(" | ").next().unwrap()).collect::<Vec<_>>());
    // The last room has the interface and the fuzz targets' door, of which the page does not speak.
    let checked = ROOMS[..ROOMS.len() - 1].iter().map(|rooms| rooms.to_vec());
    assert_eq!(written.collect::<Vec<_>>(), checked.collect::<Vec<_>>());
}

#[test]
fn the_names_in_the_description_of_the_architecture_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    for package in [".", "database", "object-store", "repair"] {
        visit(&root.join(package).join("src"), package, &mut files);
    }
    let mut text: String = files.values().map(String::as_str).collect();
    text += &fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.map(str::to_owned).collect()
    };
    let known = words(&text);
    let exists = |name: &str| {
        let is_path = name.ends_with('/') || name.ends_with(".rs") || name.ends_with(".toml");
        let places = ["", "src", "src/read", "src/write"];
        let found = places
            .iter()
            .any(|place| root.join(place).join(name).exists());
        found || !is_path && words(name).iter().all(|word| known.contains(word))
    };
    let unknown: Vec<&str> = quoted(ARCHITECTURE).filter(|name| !exists(name)).collect();
    assert_eq!(unknown, Vec::<&str>::new());
}
