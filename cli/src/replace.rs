//! Puts a new database in the place of an old one: checks both directories, and returns the commands.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::path::{is_url, shell_word};

/// Fails if the path of the old or the new database is not one of a directory.
pub(crate) fn check_directories(old: &Path, new: &Path) -> Result<(), Failure> {
    if let Some(url) = [old, new].into_iter().find(|path| is_url(path)) {
        let what = "a database is a directory, and not an object";
        return Err(Failure::of(url, what));
    }
    if fs::metadata(old).is_ok_and(|there| !there.is_dir()) {
        let what = "not a directory: name that of the database";
        return Err(Failure::of(old, what));
    }
    Ok(())
}

/// Returns the commands that put `new`, which `what` describes, in the place of `old`, after a line that announces them. They keep
/// `old` beside it.
pub(crate) fn how_to_replace(what: &str, old: &Path, new: &Path) -> Vec<String> {
    let mut lines = vec![format!(
        "To put {what} in the place of the old one, while no program has it open:"
    )];
    lines.extend(commands(old, new));
    lines
}

fn commands(old: &Path, new: &Path) -> Vec<String> {
    // Without a trailing slash, after which a suffix would name something inside the directory.
    let old: &Path = &old.components().collect::<PathBuf>();
    // A link keeps pointing to the same place.
    let is_link = fs::symlink_metadata(old).is_ok_and(|there| there.is_symlink());
    let place = if is_link {
        fs::canonicalize(old).unwrap_or_else(|_| old.into())
    } else {
        old.into()
    };
    let mut names = (0..).map(|n: u32| {
        let mut name = place.clone().into_os_string();
        name.push(if n == 0 {
            ".old".to_owned()
        } else {
            format!(".old{n}")
        });
        PathBuf::from(name)
    });
    let kept = names.find(|path| fs::symlink_metadata(path).is_err());
    let [place_word, kept, new] = [&place, &kept.unwrap_or_default(), new].map(shell_word);
    if cfg!(windows) {
        return vec![
            format!("  move {place_word} {kept}"),
            format!("  move {new} {place_word}"),
        ];
    }
    if is_mount_point(&place) {
        return vec![
            format!("  mkdir {kept} && mv {place_word}/* {kept}"),
            format!("  mv {new}/* {place_word} && rmdir {new}"),
        ];
    }
    vec![
        format!("  mv {place_word} {kept}"),
        format!("  mv {new} {place_word}"),
    ]
}

/// Whether a directory is on another file system than its parent, and so cannot be renamed.
#[cfg(unix)]
fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|there| there.dev()).ok();
    device(path) != device(&path.join(".."))
}

#[cfg(not(unix))]
fn is_mount_point(_: &Path) -> bool {
    false
}
