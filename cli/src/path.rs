//! Facts about a path: whether it is a URL, and whether it is a database.

use std::fs;
use std::path::Path;

use leveltable_database::FileKind;

/// Returns whether `path` is a URL, such as `s3://bucket/table.ldb`.
pub(crate) fn is_url(path: &Path) -> bool {
    let Some((scheme, _)) = path.to_str().and_then(|path| path.split_once("://")) else {
        return false;
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Returns whether `path` is the directory of a database: it has a CURRENT file, or a MANIFEST, and then CURRENT is lost.
pub(crate) fn is_database(path: &Path) -> bool {
    let has_current = || fs::symlink_metadata(path.join("CURRENT")).is_ok();
    let has_manifest = || {
        let mut files = fs::read_dir(path).into_iter().flatten().flatten();
        files.any(|file| kind_of(Path::new(&file.file_name())).0 == FileKind::Manifest)
    };
    !is_url(path) && (has_current() || path.is_dir() && has_manifest())
}

/// Returns the kind of a database's file from its name, and its number.
pub(crate) fn kind_of(path: &Path) -> (FileKind, Option<u64>) {
    let name = path.file_name().and_then(|name| name.to_str());
    FileKind::of(name.unwrap_or_default())
}

/// Returns how to read a file of a database whose name is not a table's.
pub(crate) fn reading_command(path: &Path) -> Option<String> {
    match kind_of(path).0 {
        FileKind::Log | FileKind::Manifest => Some(format!(
            "`leveltable scan {}` shows what is in it",
            shell_word(path)
        )),
        FileKind::Current => Some("name its directory to read the database".to_owned()),
        FileKind::Table | FileKind::Other => None,
    }
}

/// Returns the command for a damaged file or directory of a database. A directory that only contains tables may be something else.
pub(crate) fn repair_command(path: &Path) -> Option<String> {
    let is_part = kind_of(path).0 != FileKind::Other;
    let directory = if is_part { path.parent()? } else { path };
    let directory = Path::new(".").join(directory);
    let is_of_database = |file: fs::DirEntry| match kind_of(Path::new(&file.file_name())).0 {
        FileKind::Current | FileKind::Manifest => true,
        FileKind::Log => !is_part,
        FileKind::Table | FileKind::Other => false,
    };
    let mut files = fs::read_dir(&directory).ok()?.flatten();
    let directory = match directory.strip_prefix(".") {
        Ok(named) if named != Path::new("") => named,
        _ => &directory,
    };
    let command = format!("`leveltable repair {} NEW`", shell_word(directory));
    let is_database = files.any(is_of_database);
    is_database.then(|| format!("{command} writes what is left of the database to a new one"))
}

/// Returns a path quoted for a shell.
pub(crate) fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    // A name that begins with a dash would be an option.
    let path = if path.starts_with('-') {
        format!("./{path}")
    } else {
        path
    };
    match path.chars().all(is_plain) {
        true => path,
        false if cfg!(windows) => format!("\"{path}\""),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_are_quoted() {
        let words =
            ["db", "/a/b.c", "my world", "-x", "it's"].map(|path| shell_word(Path::new(path)));
        if cfg!(unix) {
            assert_eq!(words, ["db", "/a/b.c", "'my world'", "./-x", r"'it'\''s'"]);
        }
    }
}
