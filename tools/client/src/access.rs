//! Shell: how this program gets in at an admin: by which token.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use saga_core::access::Token;
use saga_core::access::token::PREFIX;
use saga_core::secrets::BLANK;

use cli::exit;

/// How this program gets in at an admin.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Sent to that admin, and shown nowhere.
    pub token: Option<Token>,
    /// Whom to trust as that admin, in PEM, and nobody else; `None` for those that the system trusts.
    pub authorities: Option<Vec<u8>>,
}

/// What was named as a token: perhaps one, and so it is not shown.
#[derive(Clone)]
pub struct Named(String);

impl From<String> for Named {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BLANK)
    }
}

impl Entry {
    /// By what was named, else by `$SAGA_TOKEN`: a token, or a file that holds one. `None` when neither is set.
    pub fn named(
        named: Option<&Named>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let of = |source: &str, text: &str| {
            // What was given may be a token that somebody mistyped: it is not shown.
            let token = match Token::parse(text) {
                Some(token) => Ok(token),
                None if text.starts_with(PREFIX) => Err(anyhow::anyhow!("it is not whole")),
                None => token_in(Path::new(text)),
            };
            let bad = |error| {
                exit::refuse(format!("{source} is neither a token nor a file that holds one: {error:#}"))
            };
            token.map(|token| Some(Self { token: Some(token), authorities: None })).map_err(bad)
        };
        match (named, variable("SAGA_TOKEN").filter(|set| !set.is_empty())) {
            (Some(Named(named)), _) => of("--token", named),
            (None, Some(set)) => of("SAGA_TOKEN", &set),
            (None, None) => Ok(None),
        }
    }
}

/// The file that was named with `--ca`, else by `$SAGA_CA`.
pub fn authorities(
    named: Option<&Path>,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let set = || variable("SAGA_CA").filter(|set| !set.is_empty()).map(PathBuf::from);
    let Some(file) = named.map(Path::to_owned).or_else(set) else { return Ok(None) };
    let bad = |error| exit::refuse(format!("the authorities (--ca, SAGA_CA) in {}: {error}", file.display()));
    fs::read(&file).map(Some).map_err(bad)
}

/// The token in a file that is for its owner alone.
pub fn token_in(file: &Path) -> anyhow::Result<Token> {
    let read = || -> io::Result<(u32, String)> {
        Ok((fs::metadata(file)?.permissions().mode(), fs::read_to_string(file)?))
    };
    let (mode, text) = read().context("the file cannot be read")?;
    if mode & 0o077 != 0 {
        bail!("others may read the file (mode {:o}): chmod 600 it", mode & 0o777);
    }
    Token::parse(text.trim()).context("the file holds no token (saga_…)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_or_in_a_file_that_others_may_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, token) = (folder.path().join("own.token"), Token::of([1; 32]));
        fs::write(&file, format!("{}\n", token.secret())).expect("written");
        let path = file.display().to_string();
        let of = |named: Option<&str>, set: Option<&str>| {
            let named = named.map(|named| Named(named.to_owned()));
            assert!(!format!("{named:?}").contains("saga_"));
            let entry =
                Entry::named(named.as_ref(), |_| set.map(str::to_owned)).map_err(|error| error.to_string());
            entry.map(|entry| entry.and_then(|entry| entry.token).map(|token| token.secret().to_owned()))
        };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        assert!(of(Some(&path), None).is_err_and(|why| why.contains("chmod 600")));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let secret = token.secret().to_owned();
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(None, Some("")), Ok(None));
        for (named, set) in [(Some(&*path), None), (None, Some(&*path)), (Some(&*secret), Some("nonsense"))] {
            assert_eq!(of(named, set), Ok(Some(secret.clone())));
        }
        for bad in [&secret[..40], "/not/there"] {
            let why = of(Some(bad), None).expect_err("no token");
            assert!(why.contains("--token") && !why.contains(bad), "{why}");
        }
        assert!(of(None, Some("nonsense")).is_err_and(|why| why.contains("SAGA_TOKEN")));
    }
}
