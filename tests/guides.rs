//! Links in the pages of the repository lead somewhere, and those of guides to guides, so that they work on docs.rs, too: `.ci/links` follows
//! them in the HTML that rustdoc makes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files that have guides, and their package's directory.
const GUIDES: [(&str, &str); 3] = [
    ("src/guide.rs", "."),
    ("repair/src/lib.rs", "repair"),
    ("object-store/src/lib.rs", "object-store"),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn pages_in(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = ["target", ".git", "sessions", "node_modules"];
        if entry.file_type().unwrap().is_dir() && !skipped.iter().any(|&skip| name == skip) {
            pages_in(&path, pages);
        } else if entry.file_type().unwrap().is_file()
            && path.extension().is_some_and(|e| e == "md")
        {
            pages.push(path);
        }
    }
}

/// The text without blocks and spans of code.
fn prose(text: &str) -> String {
    let outside = text.split("```").step_by(2).collect::<String>();
    outside.split('`').step_by(2).collect()
}

/// The targets of links, and those that definitions `[name]: target` give to names.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let inline = text
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap());
    let defined = text
        .lines()
        .filter(|line| line.starts_with('['))
        .filter_map(|line| Some(line.split_once("]: ")?.1));
    inline.chain(defined).map(str::to_owned).collect()
}

/// The names of a page's headings in links.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let heading = heading
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .replace(' ', "-");
        heading
            .chars()
            .filter(|&c| c.is_alphanumeric() || c == '-' || c == '_')
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_pages_of_the_repository_lead_somewhere() {
    let mut pages = Vec::new();
    pages_in(root(), &mut pages);
    let (mut followed, mut dead) = (0, Vec::new());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text)
            .iter()
            .filter(|link| !link.starts_with("https://"))
        {
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            let has_anchor = || {
                anchor.is_empty()
                    || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
            };
            if !target.exists() || !has_anchor() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(followed > 20, "{followed}");
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn guides_are_packed_and_link_only_to_guides() {
    let mut guides = 0;
    for (source, package) in GUIDES {
        let source = fs::read_to_string(root().join(source)).unwrap();
        let included = source
            .split("docs/")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(".md\")")?.0));
        for name in included {
            guides += 1;
            let page = root().join(package).join(format!("docs/{name}.md"));
            let text =
                fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
            for link in links(&text)
                .iter()
                .filter(|link| !link.starts_with("https://"))
            {
                let (target, _) = link
                    .split_once(".md")
                    .unwrap_or_else(|| panic!("{name}: {link} is no page"));
                let definition = format!("[{target}]: crate::guide::");
                assert!(
                    target.is_empty() || source.contains(&definition),
                    "{name}: {link} is no guide"
                );
            }
        }
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains("\"/docs"),
            "{package} does not pack its guides"
        );
    }
    assert!(guides > 8, "{guides}");
}
