//! Shell: sagactl commands in messages, written so that they work when pasted.

use std::env;
use std::path::{Path, PathBuf};

use reqwest::Url;

use crate::data_dir::DEFAULT_DATA_DIR;

/// Command for the system in `folder`.
pub fn for_system(folder: &Path, words: &str) -> String {
    let is_default = std::path::absolute(DEFAULT_DATA_DIR).is_ok_and(|default| default == folder)
        && env::var_os("SAGA_DATA").is_none_or(|set| set.is_empty());
    let data = if is_default { String::new() } else { format!(" --data {}", quoted(folder)) };
    format!("{}{data} {words}", program())
}

/// Beginning of a command for the system of another admin.
pub fn for_admin(admin: &Url) -> String {
    format!("{} --admin {}", program(), quoted(Path::new(admin.as_str())))
}

/// Name of this program if the shell finds it on `PATH`, else its path.
fn program() -> String {
    let Ok(this) = env::current_exe() else { return "sagactl".to_owned() };
    // Linux appends this to the path of a program whose file was replaced (proc(5)).
    let this = PathBuf::from(this.to_string_lossy().trim_end_matches(" (deleted)"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = env::split_paths(&path).map(|folder| folder.join("sagactl"));
    let is_this = |found: PathBuf| {
        found.canonicalize().is_ok_and(|found| this.canonicalize().is_ok_and(|this| this == found))
    };
    if candidates.find(|program| program.is_file()).is_some_and(is_this) {
        "sagactl".to_owned()
    } else {
        quoted(&this)
    }
}

/// Path quoted for a shell where it needs to be.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    if path.bytes().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_only_where_a_shell_would_split_them() {
        assert_eq!(quoted(Path::new("/a/b-c.1")), "/a/b-c.1");
        assert_eq!(quoted(Path::new("/my data")), "'/my data'");
        assert_eq!(quoted(Path::new("/it's")), r"'/it'\''s'");
    }

    #[test]
    fn commands_name_a_folder_that_is_not_the_default() {
        assert!(for_system(Path::new("/data"), "down").ends_with(" --data /data down"));
    }
}
