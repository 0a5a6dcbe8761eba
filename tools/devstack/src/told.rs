//! Shell: commands that people are told, as they work when they are typed.

use std::env;
use std::path::{Path, PathBuf};

use reqwest::Url;

use crate::folder::DEFAULT_FOLDER;

/// This program with these words, for the system in `folder`.
pub fn told(folder: &Path, words: &str) -> String {
    let is_default = std::path::absolute(DEFAULT_FOLDER).is_ok_and(|default| default == folder)
        && env::var_os("SAGA_DATA").is_none_or(|set| set.is_empty());
    let data = if is_default { String::new() } else { format!(" --data {}", quoted(folder)) };
    format!("{}{data} {words}", program())
}

/// How this program is told which system is meant, when it is another machine's.
pub fn told_elsewhere(admin: &Url) -> String {
    format!("{} --admin {}", program(), quoted(Path::new(admin.as_str())))
}

/// How this program is called from here: by its name where the shell finds it, else by its path.
fn program() -> String {
    let Ok(this) = env::current_exe() else { return "sagactl".to_owned() };
    // As Linux calls a program that a newer one has taken the place of since (proc(5)).
    let this = PathBuf::from(this.to_string_lossy().trim_end_matches(" (deleted)"));
    let path = env::var_os("PATH").unwrap_or_default();
    let is_found =
        env::split_paths(&path).map(|folder| folder.join("sagactl")).find(|program| program.is_file());
    let is_same = |found: PathBuf| {
        found.canonicalize().is_ok_and(|found| this.canonicalize().is_ok_and(|this| this == found))
    };
    if is_found.is_some_and(is_same) { "sagactl".to_owned() } else { quoted(&this) }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    if path.bytes().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_a_shell_would_cut_it() {
        assert_eq!(quoted(Path::new("/a/b-c.1")), "/a/b-c.1");
        assert_eq!(quoted(Path::new("/my data")), "'/my data'");
        assert_eq!(quoted(Path::new("/it's")), r"'/it'\''s'");
    }

    #[test]
    fn a_command_names_its_folder_unless_it_is_the_one_that_is_meant_anyway() {
        assert!(told(Path::new("/data"), "down").ends_with(" --data /data down"));
    }
}
