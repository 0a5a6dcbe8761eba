//! Shell: the file of the tokens, and the tokens of the services and sagactl themselves.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use saga_core::access::{Issued, Role, Token, Tokens};

use super::secret_file::{create_private_dir, random_bytes, rewrite_private, write_private};
use super::system::System;
use super::users::{self, SAGACTL};

/// Requests per second of a service: reconciliation reads page after page without a pause, and each order is charged.
pub const INTERNAL_RATE: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");

/// Turns tokens on: creates their file, and valid tokens for the services that call others and for sagactl.
pub fn create_own(system: &System) -> anyhow::Result<()> {
    create_private_dir(&system.credentials_dir())?;
    for (_, name, role) in users::callers() {
        ensure(&system.tokens_file(), &system.token_of(name), name, role, Some(INTERNAL_RATE))?;
    }
    ensure(&system.tokens_file(), &system.token_of(SAGACTL), SAGACTL, Role::Admin, None)?;
    Ok(())
}

/// Issues the token in the file `own` unless it holds a valid one. Returns `true` if it was issued.
pub fn ensure(
    all: &Path,
    own: &Path,
    name: &str,
    role: Role,
    rate: Option<NonZeroU32>,
) -> anyhow::Result<bool> {
    change(all, true, |tokens| {
        let existing = fs::read_to_string(own).ok().and_then(|text| Token::parse(text.trim()));
        if existing.is_some_and(|token| tokens.holder(&token, Timestamp::now()).is_ok()) {
            return Ok(false);
        }
        tokens.revoke(name);
        let token = issue(tokens, name, role, None, rate)?;
        write_private(own, format!("{}\n", token.secret()).as_bytes())
            .with_context(|| format!("{} cannot be written", own.display()))?;
        Ok(true)
    })
}

/// Issues a token. Only its digest is stored.
pub fn issue(
    tokens: &mut Tokens,
    name: &str,
    role: Role,
    expires: Option<Timestamp>,
    rate: Option<NonZeroU32>,
) -> anyhow::Result<Token> {
    let (token, created) = (Token::of(random_bytes()?), Timestamp::now());
    tokens.issue(Issued { name: name.to_owned(), role, sha256: token.digest(), created, expires, rate })?;
    Ok(token)
}

/// Reads the file of the tokens.
pub fn read(file: &Path) -> anyhow::Result<Tokens> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    Tokens::read(&text).map_err(|why| anyhow::anyhow!("{} is damaged: {why}", file.display()))
}

/// Changes the file of the tokens under a lock. Creates it if it `may_be_new`.
pub fn change<T>(
    file: &Path,
    may_be_new: bool,
    change: impl FnOnce(&mut Tokens) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let unwritable = || format!("{} cannot be written", file.display());
    let _lock = lock(&file.with_extension("lock"))?;
    let mut tokens = match file.try_exists() {
        Ok(true) => read(file)?,
        Ok(false) if may_be_new => Tokens::default(),
        Ok(false) => bail!("{} does not exist", file.display()),
        Err(error) => return Err(error).with_context(unwritable),
    };
    let answer = change(&mut tokens)?;
    rewrite_private(file, tokens.written().as_bytes()).with_context(unwritable)?;
    Ok(answer)
}

/// Takes the lock. Another user, often root, may have created it: read access is enough.
fn lock(path: &Path) -> anyhow::Result<File> {
    let open = || match File::create(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => File::open(path),
        opened => opened,
    };
    let taken = open().and_then(|lock| lock.lock().map(|()| lock));
    taken.with_context(|| {
        let (about, path) = (fs::metadata(path), path.display());
        match about {
            Ok(about) => format!(
                "the lock {path}, which belongs to uid {}, cannot be taken: run this as that user, or change its \
                 owner with chown \"$USER\" {path}",
                about.uid()
            ),
            Err(_) => format!("{path} cannot be written"),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn file_keeps_its_owner_group_and_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens.json");
        let issued = |name: &str| {
            change(&file, true, |tokens| issue(tokens, name, Role::Viewer, None, None)).expect("issued");
            let there = fs::metadata(&file).expect("it is there");
            (there.permissions().mode() & 0o777, there.uid(), there.gid())
        };
        let (mode, own, group) = issued("one");
        assert_eq!(mode, 0o600, "a new one is nobody else's business");
        // Only root may give a file away.
        let owner = if chown(&file, Some(4711), Some(4712)).is_ok() { (4711, 4712) } else { (own, group) };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        assert_eq!(issued("other"), (0o640, owner.0, owner.1));
    }

    #[test]
    fn tokens_differ_and_the_file_holds_only_digests() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens.json");
        let made = |name: &str| change(&file, true, |tokens| issue(tokens, name, Role::Viewer, None, None));
        let (one, other) = (made("one").expect("issued"), made("other").expect("issued"));
        assert!(!one.digest().is(&other.digest()));
        assert!(made("one").is_err(), "there is one of that name");
        let text = fs::read_to_string(&file).expect("it is there");
        assert!(!text.contains("saga_") && !text.contains(&one.secret()[5..]));
        assert_eq!(read(&file).expect("it was written here").all().len(), 2);
        assert!(change(&folder.path().join("none"), false, |_| Ok(())).is_err());
    }
}
