//! Every public item shows an example or links to one, and says how it fails; options name their default, and what may read says what it
//! costs.
//!
//! Reads the sources line by line, and takes from the list of the public interface which types and functions are public.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Words by which documentation speaks of cost: of reads, memory, copies, locks; or leaves that to what it is like.
const COST: [&str; 22] = [
    "read", "Read", "cost", "Cost", "memory", "copy", "copies", "Copies", "lock", "alloc",
    "system", "cheap", "request", "fetch", "like", "Like", "See [", "see [", "As [", "as [",
    "Moves", "opens",
];

/// Types whose values read, or are made by reading.
const READING: [&str; 12] = [
    "Table",
    "DbTable",
    "AsyncTable",
    "Snapshot",
    "Cursor",
    "MergeCursor",
    "DbCursor",
    "Compaction",
    "TableCache",
    "OpenOptions",
    "Database",
    "TableSet",
];

/// A public type, trait, function or method.
struct Item {
    place: String,
    /// The type that has it; its own name for a type.
    of: String,
    name: String,
    documentation: String,
    /// Of a function, up to its body; empty for a type.
    signature: String,
}

/// The name after `keyword`, such as `struct`, in a declaration.
fn name_after<'l>(line: &'l str, keyword: &str) -> Option<&'l str> {
    let (before, rest) = line.split_once(keyword)?;
    let is_declaration = before
        .split_whitespace()
        .all(|word| ["pub", "const", "unsafe", "async"].contains(&word));
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    is_declaration.then(|| &rest[..end.unwrap_or(rest.len())])
}

/// The type of an `impl` that is no trait's.
fn type_of_impl(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(_) => rest.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (!rest.contains(" for ")).then(|| &rest[..end])
}

/// The public items in a file, unless they are hidden.
fn items_in(path: &Path, is_public: impl Fn(&str) -> bool, items: &mut Vec<Item>) {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\n#[cfg(test)]\n").next().unwrap();
    let lines: Vec<&str> = code.lines().collect();
    let (mut documentation, mut of, mut is_hidden) = (String::new(), None, false);
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        if let Some(words) = trimmed.strip_prefix("///") {
            documentation += &format!("{} ", words.trim());
            continue;
        }
        is_hidden |= trimmed.starts_with("#[doc(hidden)]");
        if trimmed.starts_with("#[")
            || ["reason", "unsafe_code", ")]", "//"]
                .iter()
                .any(|start| trimmed.starts_with(start))
        {
            continue;
        }
        let is_trait = name_after(line, "trait ").is_some();
        let kinds = ["struct ", "enum ", "trait "];
        let declared = kinds.iter().find_map(|kind| name_after(line, kind));
        let declared = declared.filter(|_| line.starts_with("pub "));
        let called = name_after(trimmed, "fn ").filter(|_| {
            let (name, in_trait) = of.unwrap_or(("", false));
            line.starts_with("    pub ")
                || in_trait && line.starts_with("    fn ") && !name.is_empty()
        });
        let alone = name_after(line, "fn ").filter(|_| line.starts_with("pub "));
        let called = called.or(alone);
        let owner = declared.or(alone).or(called.and(of.map(|(name, _)| name)));
        if let (Some(owner), false) = (owner.filter(|owner| is_public(owner)), is_hidden) {
            let signature = lines[at..]
                .iter()
                .take(if called.is_some() { 12 } else { 0 });
            let signature: String = signature.copied().collect();
            let end = signature.find([';', '{']).unwrap_or(signature.len());
            items.push(Item {
                place: format!("{}:{}", path.display(), at + 1),
                of: owner.to_owned(),
                name: called.unwrap_or(owner).to_owned(),
                documentation: std::mem::take(&mut documentation),
                signature: signature[..end].to_owned(),
            });
        }
        if line.starts_with('}') {
            of = None;
        }
        of = type_of_impl(line).map(|name| (name, false)).or(of);
        of = declared
            .filter(|_| is_trait)
            .map(|name| (name, true))
            .or(of);
        (documentation, is_hidden) = (String::new(), false);
    }
}

fn visit(directory: &Path, each: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, each);
        } else {
            each(&path);
        }
    }
}

/// The public items of the package in `folder`, whose interface `list` has.
fn public_items(folder: &str, list: &str) -> Vec<Item> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(folder);
    let listed = fs::read_to_string(root.join(list)).unwrap();
    let kinds = [
        "pub struct ",
        "pub enum ",
        "pub trait ",
        "pub fn ",
        "pub async fn ",
    ];
    let names = listed.lines().filter_map(|line| {
        let path = kinds.iter().find_map(|kind| line.split_once(kind))?.1;
        let path = path
            .split([' ', '<', '(', '{'])
            .next()?
            .trim_end_matches(':');
        let (owner, name) = path.rsplit_once("::")?;
        // Of functions, those that belong to no type.
        let is_method = owner.rsplit("::").next()?.starts_with(char::is_uppercase);
        (!is_method).then_some(name)
    });
    let public: BTreeSet<&str> = names.collect();
    let mut items = Vec::new();
    visit(&root.join("src"), &mut |path| {
        items_in(path, |name| public.contains(name), &mut items);
    });
    items
}

#[test]
fn public_items_say_what_one_needs_to_know() {
    let mut missing = Vec::new();
    for (folder, list, least) in [
        ("", "docs/public-api.txt", 250),
        ("database", "public-api.txt", 60),
        ("repair", "public-api.txt", 30),
        ("object-store", "public-api.txt", 30),
    ] {
        let items = public_items(folder, list);
        assert!(items.len() > least, "{folder}: {}", items.len());
        missing.extend(missing_in(&items));
    }
    assert!(
        missing.is_empty(),
        "{}:\n{}",
        missing.len(),
        missing.join("\n")
    );
}

/// What the documentation of items lacks.
fn missing_in(items: &[Item]) -> Vec<String> {
    let types = items.iter().filter(|item| item.signature.is_empty());
    let types: BTreeMap<&str, &str> = types
        .map(|item| (&item.of[..], &item.documentation[..]))
        .collect();
    let mut missing = Vec::new();
    for item in items {
        let Item {
            documentation,
            signature,
            of,
            name,
            ..
        } = item;
        let mut require = |is_there: bool, what: &str| {
            if !is_there {
                missing.push(format!("{} {of}::{name}: no {what}", item.place));
            }
        };
        require(!documentation.is_empty(), "documentation");
        // One on its own, a link, or the example of its type, if it has a part there.
        let mut examples = types
            .get(&of[..])
            .unwrap_or(&"")
            .split("```")
            .skip(1)
            .step_by(2);
        let is_shown = examples.any(|example| example.contains(&format!("{name}(")));
        require(
            is_shown
                || ["```", "](", "[`"]
                    .iter()
                    .any(|mark| documentation.contains(mark)),
            "example or link",
        );
        let (_, returned) = signature.split_once("->").unwrap_or_default();
        require(
            !returned.trim_start().starts_with("Result") && !returned.contains("io::Result")
                || documentation.contains("# Errors"),
            "errors",
        );
        let may_read = ["Result", "Range", "Cursor"]
            .iter()
            .any(|kind| returned.contains(kind));
        let speaks_of_cost = COST.iter().any(|word| documentation.contains(word));
        require(
            !(may_read && READING.contains(&&of[..])) || speaks_of_cost,
            "cost",
        );
        let is_option = of.ends_with("Options") && signature.contains("(mut self");
        require(!is_option || documentation.contains("default"), "default");
    }
    missing
}
