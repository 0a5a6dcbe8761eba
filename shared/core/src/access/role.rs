//! Pure: roles, and what each route needs of whoever asks.

use serde::{Deserialize, Serialize};

/// What the holder of a token may do. Each may do what the one before may.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Looks, and changes nothing.
    Viewer,
    /// Mends what got stuck: replays, discards, settles, extends, notes.
    Operator,
    /// Changes what was said, and goes against what the services would decide: edits, forced breakers, faults.
    Admin,
}

impl Role {
    /// Whether this role is enough where `needed` is.
    #[must_use]
    pub fn may(self, needed: Self) -> bool {
        self >= needed
    }
}

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its method, such as `GET`; `HEAD` needs what `GET` does.
    pub method: &'static str,
    /// Its path as the router has it, such as `/internal/breakers/{name}`.
    pub path: &'static str,
    /// The role that is enough.
    pub role: Role,
}

/// Which routes are guarded, and what each of them needs.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// What guarded paths begin with; every other is open to anybody.
    pub guarded: &'static [&'static str],
    /// What they need. A guarded route that is not among them needs the highest role: nothing is open by oversight.
    pub rules: &'static [Rule],
}

impl Access {
    /// For a service of which nothing is said: what lies below `/internal/` needs the highest role.
    pub const CLOSED: Self = Self { guarded: &["/internal/"], rules: &[] };

    /// The role that a route needs; `None` when it is open. `path` is the one that the router matched, not the one that
    /// was asked for, which may be written in many ways.
    #[must_use]
    pub fn needs(&self, method: &str, path: &str) -> Option<Role> {
        if !self.guarded.iter().any(|beginning| path.starts_with(beginning)) {
            return None;
        }
        Some(self.rule(method, path).map_or(Role::Admin, |rule| rule.role))
    }

    /// The rule for a route.
    #[must_use]
    pub fn rule(&self, method: &str, path: &str) -> Option<&'static Rule> {
        let method = if method == "HEAD" { "GET" } else { method };
        self.rules.iter().find(|rule| rule.method == method && rule.path == path)
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    const ACCESS: Access = Access {
        guarded: &["/internal/", "/api/admin/"],
        rules: &[
            Rule { method: "GET", path: "/internal/faults", role: Role::Viewer },
            Rule { method: "POST", path: "/internal/faults", role: Role::Operator },
        ],
    };

    #[test]
    fn each_role_may_what_the_one_before_may_and_no_more() {
        for (place, role) in Role::VARIANTS.iter().enumerate() {
            let may: Vec<_> = Role::VARIANTS.iter().filter(|needed| role.may(**needed)).collect();
            assert_eq!(may.len(), place + 1, "{role}: {may:?}");
        }
        let names: Vec<_> = Role::VARIANTS.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["viewer", "operator", "admin"]);
    }

    #[test]
    fn what_no_rule_names_is_for_the_highest_role_or_not_guarded_at_all() {
        for (method, path, needed) in [
            ("GET", "/internal/faults", Some(Role::Viewer)),
            ("HEAD", "/internal/faults", Some(Role::Viewer)),
            ("POST", "/internal/faults", Some(Role::Operator)),
            ("DELETE", "/internal/faults", Some(Role::Admin)),
            ("GET", "/internal/anything", Some(Role::Admin)),
            ("GET", "/api/admin/sagas", Some(Role::Admin)),
            ("POST", "/api/orders", None),
            ("GET", "/livez", None),
        ] {
            assert_eq!(ACCESS.needs(method, path), needed, "{method} {path}");
        }
        assert_eq!(Access::CLOSED.needs("GET", "/internal/faults"), Some(Role::Admin));
    }
}
