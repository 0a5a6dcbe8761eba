//! Pure: roles, and the rules for routes.

use serde::{Deserialize, Serialize};

/// Role of a token's holder. Each role includes the one before.
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
    /// May read everything, and change nothing.
    Viewer,
    /// May repair: replay, discard, resolve, extend, annotate.
    Operator,
    /// May overrule: edit messages, force breakers, inject faults.
    Admin,
}

impl Role {
    /// True if this role includes `needed`.
    #[must_use]
    pub fn may(self, needed: Self) -> bool {
        self >= needed
    }
}

/// Rule that decides who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Method, such as `GET`. `HEAD` follows the rule for `GET`.
    pub method: &'static str,
    /// Path as the router has it, such as `/internal/breakers/{name}`.
    pub path: &'static str,
    /// Lowest role that may use the route; `None` for a route of customers, who have no token.
    pub role: Option<Role>,
}

/// Rules of all routes of a system.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Rules. A route without a rule requires the highest role, so that no omission opens a route.
    pub rules: &'static [Rule],
}

impl Access {
    /// Default of a service without rules: every route requires the highest role.
    pub const CLOSED: Self = Self { rules: &[] };

    /// Required role of a route; `None` if it is open to customers.
    ///
    /// `path` is the route that the router matched. The requested path may be written in many ways.
    #[must_use]
    pub fn needs(&self, method: &str, path: &str) -> Option<Role> {
        self.rule(method, path).map_or(Some(Role::Admin), |rule| rule.role)
    }

    /// Finds the rule for a route.
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
        rules: &[
            Rule { method: "GET", path: "/internal/faults", role: Some(Role::Viewer) },
            Rule { method: "POST", path: "/internal/faults", role: Some(Role::Operator) },
            Rule { method: "POST", path: "/api/orders", role: None },
        ],
    };

    #[test]
    fn role_includes_lower_roles_only() {
        for (index, role) in Role::VARIANTS.iter().enumerate() {
            let may: Vec<_> = Role::VARIANTS.iter().filter(|needed| role.may(**needed)).collect();
            assert_eq!(may.len(), index + 1, "{role}: {may:?}");
        }
        let names: Vec<_> = Role::VARIANTS.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["viewer", "operator", "admin"]);
    }

    #[test]
    fn route_without_rule_needs_highest_role() {
        for (method, path, needed) in [
            ("GET", "/internal/faults", Some(Role::Viewer)),
            ("HEAD", "/internal/faults", Some(Role::Viewer)),
            ("POST", "/internal/faults", Some(Role::Operator)),
            ("DELETE", "/internal/faults", Some(Role::Admin)),
            ("GET", "/internal/anything", Some(Role::Admin)),
            ("GET", "/api/admin/sagas", Some(Role::Admin)),
            ("POST", "/api/orders", None),
            ("GET", "/api/orders", Some(Role::Admin)),
            ("GET", "/api/orders/{id}", Some(Role::Admin)),
        ] {
            assert_eq!(ACCESS.needs(method, path), needed, "{method} {path}");
        }
        assert_eq!(Access::CLOSED.needs("GET", "/internal/faults"), Some(Role::Admin));
    }
}
