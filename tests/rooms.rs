//! The rooms of the library import downwards only, so that each can be read without those above it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms, lowest first. A file may import from its own room and from any before it.
const ROOMS: [&[&str]; 15] = [
    &["coding", "error", "held"],
    &["comparator", "sorted_input"],
    &["filter"],
    &["format"],
    &["write"],
    &["read::source"],
    &["read::parts"],
    &["read::store"],
    &["read::table"],
    &["read::walk"],
    &["read::open"],
    &["read::remote", "read"],
    &["sorter"],
    &["db"],
    &["fuzzing", "guide", "lib", "sister_crates"],
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

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

/// A file without comments and tests, which may use the public interface, and so may links in documentation.
fn code_of(text: &str) -> String {
    let tests = ["mod tests", "pub(crate) mod tests", "pub(super) mod tests"];
    let tests = tests.map(|name| format!("\n#[cfg(test)]\n{name}"));
    let end = tests.iter().filter_map(|tests| text.find(tests)).min();
    let code = &text[..end.unwrap_or(text.len())];
    let code = code.replace("#[cfg(doc)]\nuse ", "// ");
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<&str>>().join("\n")
}

/// All paths of two names or more that begin in `code`, written out: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(code: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some(start) = rest.find(is_name) {
        let before = rest[..start].chars().next_back();
        rest = &rest[start..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        rest = &rest[end..];
        if before != Some(':') && rest.starts_with("::") {
            found.extend(tails(&mut rest).iter().map(|tail| format!("{name}{tail}")));
        }
    }
    found
}

/// The ways in which a path goes on, whose first name was read.
fn tails(rest: &mut &str) -> Vec<String> {
    let Some(after) = rest.strip_prefix("::") else {
        return vec![String::new()];
    };
    if let Some(group) = after.strip_prefix('{') {
        *rest = group;
        let mut all = Vec::new();
        loop {
            *rest = rest.trim_start_matches([',', ' ', '\n']);
            if rest.starts_with('}') || rest.is_empty() {
                *rest = rest.strip_prefix('}').unwrap_or(rest);
                return all;
            }
            let name = take_name(rest);
            all.extend(tails(rest).iter().map(|tail| format!("::{name}{tail}")));
            *rest = rest.trim_start_matches(|c| !",}".contains(c)); // `as another`
        }
    }
    *rest = after;
    let name = take_name(rest);
    let tails = tails(rest);
    tails.iter().map(|tail| format!("::{name}{tail}")).collect()
}

fn take_name<'t>(rest: &mut &'t str) -> &'t str {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    name
}

/// The files that each file imports from. That a file passes on what its own parts have is no import.
fn imports_of(files: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut imports = BTreeMap::new();
    for (module, text) in files {
        let inside = |name: &str| format!("{module}::{name}");
        let code = code_of(text);
        let is_import = |statement: &&str| {
            let statement = statement.trim_start();
            let passed_on = statement
                .strip_prefix("pub")
                .and_then(|s| s.split_once("use "));
            let first = passed_on.map(|(_, path)| path.split("::").next().unwrap_or(""));
            !first.is_some_and(|first| first == "self" || files.contains_key(&inside(first)))
        };
        let code: Vec<&str> = code.split_inclusive(';').filter(is_import).collect();
        let found = imports.entry(&module[..]).or_insert_with(BTreeSet::new);
        for path in paths(&code.concat()) {
            let (first, tail) = path.split_once("::").unwrap();
            let whole = match first {
                "crate" => tail.to_owned(),
                "self" => inside(tail),
                "super" => {
                    let (mut above, mut tail) = (parent(module), tail);
                    while let Some(next) = tail.strip_prefix("super::") {
                        (above, tail) = (parent(above), next);
                    }
                    format!("{above}::{tail}")
                        .trim_start_matches(':')
                        .to_owned()
                }
                child if files.contains_key(&inside(child)) => inside(&path),
                _ => continue,
            };
            let ends = whole.match_indices("::").map(|(end, _)| end);
            let mut ends: Vec<usize> = ends.chain([whole.len()]).collect();
            ends.reverse();
            let target = ends
                .iter()
                .find_map(|&end| files.get_key_value(&whole[..end]));
            found.extend(
                target
                    .map(|(name, _)| &name[..])
                    .filter(|name| name != module),
            );
        }
    }
    imports
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// The packages of which no file imports, by way of others perhaps, from one that imports from it.
const WITHOUT_CIRCLES: [&str; 9] = [
    ".",
    "repair",
    "database",
    "cli",
    "object-store",
    "python",
    "benches/turns",
    "benches/peers",
    "fuzz",
];

#[test]
fn files_do_not_import_in_circles() {
    for package in WITHOUT_CIRCLES {
        let source = root().join(package).join("src");
        let mut files = BTreeMap::new();
        visit(&source, "", &mut files);
        files.retain(|module, _| module != "lib" && module != "main" && !module.is_empty());
        let imports = imports_of(&files);
        assert!(imports.values().any(|found| !found.is_empty()), "{package}");
        for module in files.keys() {
            let (mut seen, mut left) = (BTreeSet::new(), vec![(&module[..], module.clone())]);
            while let Some((here, way)) = left.pop() {
                for &next in &imports[here] {
                    assert!(next != module, "{package}: a circle: {way} -> {next}");
                    if seen.insert(next) {
                        left.push((next, format!("{way} -> {next}")));
                    }
                }
            }
        }
    }
}

/// What the search for circles takes as an import.
#[test]
fn imports_are_found_in_all_forms() {
    let files = [
        (
            "a",
            "pub use b::Name;\nuse crate::c::{d::{One, Two}, e};\nfn f() { c::g(b::x) }",
        ),
        (
            "a::b",
            "use super::super::c;\n// use crate::a;\n#[cfg(test)]\nmod tests { use crate::c::e; }",
        ),
        ("c", "mod d;"),
        ("c::d", "use super::e::Name as Other;"),
        ("c::e", "fn f() -> crate::a::b::Name {}"),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let files = BTreeMap::from(files);
    let found = imports_of(&files);
    let found: Vec<String> = found
        .iter()
        .map(|(name, found)| format!("{name}: {found:?}"))
        .collect();
    assert_eq!(
        found,
        [
            r#"a: {"a::b", "c::d", "c::e"}"#,
            r#"a::b: {"c"}"#,
            "c: {}",
            r#"c::d: {"c::e"}"#,
            r#"c::e: {"a::b"}"#,
        ]
    );
}

#[test]
fn imports_point_down_only() {
    let source = root().join("src");
    let mut files = BTreeMap::new();
    visit(&source, "", &mut files);
    assert!(files.len() > 30, "{:?}", files.keys());
    let mut imports = 0;
    let mut wrong = Vec::new();
    for (module, text) in &files {
        if module == "lib" || module.starts_with("bin") {
            continue;
        }
        for import in code_of(text).split("crate::").skip(1) {
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

/// The types that a file declares, and whether each is public.
fn declared(code: &str) -> BTreeMap<&str, bool> {
    let mut types = BTreeMap::new();
    for line in code.lines() {
        let mut words = line.split(' ').skip_while(|word| word.starts_with("pub"));
        if let (Some("struct" | "enum"), Some(mut name)) = (words.next(), words.next()) {
            types.insert(take_name(&mut name), line.starts_with("pub "));
        }
    }
    types
}

/// The types with methods in a file, apart from those of traits.
fn types_with_methods(code: &str) -> BTreeSet<&str> {
    let blocks = code.split("\nimpl").skip(1);
    let headers = blocks.map(|block| block.split('{').next().unwrap());
    let own = headers.filter(|header| !header.contains(" for "));
    own.map(|header| take_name(&mut without_generics(header)))
        .collect()
}

/// What follows the generic parameters of an `impl`, if there are any.
fn without_generics(header: &str) -> &str {
    let mut depth = 0;
    let end = header.char_indices().find(|&(at, c)| {
        match c {
            '<' => depth += 1,
            '>' if !header[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    header[end.unwrap().0 + 1..].trim_start()
}

/// Whoever looks for a method of a type finds it beside the others. Algorithms in other files are functions.
#[test]
fn the_methods_of_a_type_stand_together() {
    let example = "\nimpl<D: FnMut(&[u8]) -> bool> A<D> {}\nimpl T for B {}\nimpl C<u8> {}";
    assert_eq!(types_with_methods(example), BTreeSet::from(["A", "C"]));

    let mut files = BTreeMap::new();
    visit(&root().join("src"), "", &mut files);
    for code in files.values_mut() {
        *code = code_of(code);
    }
    let types = files.iter().map(|(module, code)| (module, declared(code)));
    let types: BTreeMap<&String, BTreeMap<&str, bool>> = types.collect();
    // Two types may have one name: each is known by the file that declares it.
    let mut found: BTreeMap<(&String, &str), Vec<&String>> = BTreeMap::new();
    for (module, code) in &files {
        for name in types_with_methods(code) {
            let is_home = |home: &&String| types[home].contains_key(name);
            let home = Some(module).filter(is_home);
            let home = home.or_else(|| files.keys().find(is_home)).unwrap();
            found.entry((home, name)).or_default().push(module);
        }
    }
    assert!(found.len() > 50, "{found:?}");
    for ((home, name), modules) in found {
        let rooms: BTreeSet<usize> = modules.iter().map(|module| room(module)).collect();
        let is_right = match types[home][name] {
            true => rooms.len() == modules.len(),
            false => modules.len() <= 2,
        };
        assert!(
            is_right,
            "{name} has methods in {modules:?}: leave them in one file, with functions in the others"
        );
    }
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
    let root = root();
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

/// Whoever looks for a file that has been moved would think that there is nothing to change.
#[test]
fn the_files_in_the_instructions_for_contributors_exist() {
    let text = include_str!("../CONTRIBUTING.md");
    let endings = [".rs", ".py", ".md", ".toml"];
    let is_path = |name: &&str| name.contains('/') && endings.iter().any(|end| name.ends_with(end));
    let missing = quoted(text).filter(is_path);
    let missing = missing.filter(|name| !name.contains(' ') && !root().join(name).exists());
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// A policy that is not in the list would be written, and then never used.
#[test]
fn every_filter_policy_is_in_the_list_of_those_built_in() {
    let root = root().join("src/filter");
    let mut files = BTreeMap::new();
    visit(&root, "", &mut files);
    let count = |words: &str| {
        let of_file = |text: &String| code_of(text).matches(words).count();
        files.values().map(of_file).sum::<usize>()
    };
    assert_eq!(
        count("impl FilterPolicy for "),
        leveltable::sister_crates::POLICIES.len()
    );
}

/// A codec that is not in the feature of all codecs would be missing in the tool and in Python.
#[test]
fn every_codec_is_in_the_feature_of_all_codecs() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (code, manifest) = (read("src/format/codec.rs"), read("Cargo.toml"));
    let part = |text: &str, start: &str, end: &str| -> String {
        let (_, part) = text.split_once(start).unwrap();
        part.split_once(end).unwrap().0.to_owned()
    };
    let variants = part(&code, "pub enum Compression {", "\n}");
    let needed = variants.split("#[cfg(feature = \"").skip(1);
    let needed: BTreeSet<&str> = needed.map(|s| s.split('"').next().unwrap()).collect();
    let all = part(&manifest, "\ncodecs = [", "]");
    let all: BTreeSet<&str> = all.split('"').skip(1).step_by(2).collect();
    assert_eq!(all, needed);
}
