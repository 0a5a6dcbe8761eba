//! Shell: access to an admin: its token and the certificate authorities to trust.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use cli::exit;
use nix::unistd::geteuid;
use saga_core::access::Token;
use saga_core::access::token::PREFIX;
use saga_core::secrets::BLANK;

#[derive(Debug, Clone, Default)]
pub struct Access {
    pub token: Option<Token>,
    /// Authorities to trust, in PEM; `None` for those that the operating system trusts.
    pub authorities: Option<Vec<u8>>,
}

/// Argument of `--token`: a token or a file. Never printed.
#[derive(Clone)]
pub struct TokenArgument(String);

impl From<String> for TokenArgument {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for TokenArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BLANK)
    }
}

impl Access {
    /// Reads the access from `--token`, else from `$SAGA_TOKEN`. `None` if neither is set.
    pub fn from_argument(
        argument: Option<&TokenArgument>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let of = |source: &str, text: &str| {
            // The text may be a mistyped token: it is not printed.
            let token = match Token::parse(text) {
                Some(token) => Ok(token),
                None if text.starts_with(PREFIX) => Err(anyhow::anyhow!("the token is incomplete")),
                None => token_in(Path::new(text)),
            };
            let bad = |error| {
                exit::rejected(format!("{source} is neither a token nor a file that holds one: {error:#}"))
            };
            token.map(|token| Some(Self { token: Some(token), authorities: None })).map_err(bad)
        };
        match (argument, variable("SAGA_TOKEN").filter(|set| !set.is_empty())) {
            (Some(TokenArgument(text)), _) => of("--token", text),
            (None, Some(set)) => of("SAGA_TOKEN", &set),
            (None, None) => Ok(None),
        }
    }
}

/// Reads the file that `--ca` names, else `$SAGA_CA`.
pub fn authorities(
    named: Option<&Path>,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let set = || variable("SAGA_CA").filter(|set| !set.is_empty()).map(PathBuf::from);
    let Some(file) = named.map(Path::to_owned).or_else(set) else { return Ok(None) };
    let bad =
        |error| exit::rejected(format!("the authorities (--ca, SAGA_CA) in {}: {error}", file.display()));
    fs::read(&file).map(Some).map_err(bad)
}

/// Reads a token from a file that only its owner may read, or only this process's group where root owns it.
pub fn token_in(file: &Path) -> anyhow::Result<Token> {
    let read = || -> io::Result<(Metadata, String)> { Ok((fs::metadata(file)?, fs::read_to_string(file)?)) };
    let (about, text) = read().context("the file cannot be read")?;
    let mode = about.permissions().mode();
    // Kubernetes mounts files of root, which the group of the pod may read.
    let is_mounted = about.uid() == 0 && !geteuid().is_root();
    if mode & if is_mounted { 0o037 } else { 0o077 } != 0 {
        bail!("others may read the file (mode {:o}): chmod 600 it", mode & 0o777);
    }
    Token::parse(text.trim()).context("the file holds no token (saga_…)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_comes_from_the_argument_or_a_private_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, token) = (folder.path().join("own.token"), Token::of([1; 32]));
        fs::write(&file, format!("{}\n", token.secret())).expect("written");
        let path = file.display().to_string();
        let of = |named: Option<&str>, set: Option<&str>| {
            let named = named.map(|named| TokenArgument(named.to_owned()));
            assert!(!format!("{named:?}").contains("saga_"));
            let access = Access::from_argument(named.as_ref(), |_| set.map(str::to_owned))
                .map_err(|error| error.to_string());
            access.map(|access| access.and_then(|access| access.token).map(|token| token.secret().to_owned()))
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
