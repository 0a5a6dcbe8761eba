//! Pure: the one table of who may ask for what: which routes need a token, and of which role.
//!
//! What customers ask of the shop (`/api/orders`, `/api/products`, …) needs none. A new route below one of the guarded
//! paths is a line here; one that is forgotten needs the highest role, and a test that walks all routes names it.

use saga_core::access::Role::{Admin, Operator, Viewer};
use saga_core::access::{Access, Role, Rule};

/// What is guarded, and what it needs.
pub static ACCESS: Access = Access { guarded: &["/api/admin/", "/internal/"], rules: &RULES };

/// Whoever looks is a viewer, whoever mends an operator. What was said is changed, and what the services decide is
/// overruled, by admins alone: edits, breakers, faults, what the audit is to overlook. A forced replay is one of
/// these, and admin asks for the role where it is forced. Who settles something outside is an operator, like who gives it
/// up: the audit accepts no more by it than what was wrong then, and lists who did it.
const RULES: [Rule; 68] = [
    // What operators ask of admin: to look,
    rule(Viewer, "GET", "/api/admin/overview"),
    rule(Viewer, "GET", "/api/admin/services"),
    rule(Viewer, "GET", "/api/admin/sagas"),
    rule(Viewer, "GET", "/api/admin/sagas/{id}"),
    rule(Viewer, "GET", "/api/admin/dlq"),
    rule(Viewer, "GET", "/api/admin/dlq/count"),
    rule(Viewer, "GET", "/api/admin/dlq/groups"),
    rule(Viewer, "GET", "/api/admin/dlq/{id}"),
    rule(Viewer, "GET", "/api/admin/dlq/redrive"),
    rule(Viewer, "GET", "/api/admin/dlq/redrive/{id}"),
    rule(Viewer, "GET", "/api/admin/dlq/redrive/{id}/events"),
    rule(Viewer, "GET", "/api/admin/breakers"),
    rule(Viewer, "GET", "/api/admin/faults"),
    rule(Viewer, "GET", "/api/admin/outbox"),
    rule(Viewer, "GET", "/api/admin/audit"),
    rule(Viewer, "GET", "/api/admin/audit/log"),
    rule(Viewer, "GET", "/api/admin/push"),
    // to mend,
    rule(Operator, "POST", "/api/admin/dlq/{id}/replay"),
    rule(Operator, "POST", "/api/admin/dlq/{id}/notes"),
    rule(Operator, "POST", "/api/admin/dlq/{id}/restore"),
    rule(Operator, "DELETE", "/api/admin/dlq/{id}"),
    rule(Operator, "POST", "/api/admin/dlq/replay"),
    rule(Operator, "POST", "/api/admin/dlq/notes"),
    rule(Operator, "POST", "/api/admin/dlq/restore"),
    rule(Operator, "POST", "/api/admin/dlq/discard"),
    rule(Operator, "POST", "/api/admin/dlq/redrive"),
    rule(Operator, "POST", "/api/admin/dlq/redrive/{id}/pause"),
    rule(Operator, "POST", "/api/admin/dlq/redrive/{id}/resume"),
    rule(Operator, "POST", "/api/admin/dlq/redrive/{id}/cancel"),
    rule(Operator, "POST", "/api/admin/dlq/{id}/settle"),
    rule(Operator, "POST", "/api/admin/dlq/{id}/unsettle"),
    rule(Operator, "POST", "/api/admin/dlq/settle"),
    rule(Operator, "POST", "/api/admin/dlq/unsettle"),
    rule(Operator, "POST", "/api/admin/payments/{order}/settle"),
    rule(Operator, "POST", "/api/admin/payments/{order}/unsettle"),
    rule(Operator, "POST", "/api/admin/sagas/{id}/settle"),
    rule(Operator, "POST", "/api/admin/sagas/{id}/unsettle"),
    rule(Operator, "POST", "/api/admin/sagas/{id}/extend"),
    rule(Operator, "POST", "/api/admin/sagas/extend"),
    rule(Operator, "POST", "/api/admin/outbox/{service}/retry"),
    rule(Operator, "POST", "/api/admin/outbox/{service}/republish"),
    rule(Operator, "POST", "/api/admin/push/test"),
    // and to overrule.
    rule(Admin, "POST", "/api/admin/dlq/{id}/edit"),
    rule(Admin, "POST", "/api/admin/breakers/{service}/{name}"),
    rule(Admin, "POST", "/api/admin/faults"),
    rule(Admin, "DELETE", "/api/admin/faults"),
    rule(Admin, "DELETE", "/api/admin/faults/{service}"),
    rule(Admin, "DELETE", "/api/admin/faults/{service}/{id}"),
    rule(Admin, "POST", "/api/admin/audit/baselines"),
    // What admin asks of the services, which is the same.
    rule(Viewer, "GET", "/internal/stats"),
    rule(Viewer, "GET", "/internal/health"),
    rule(Viewer, "GET", "/internal/verify"),
    rule(Viewer, "GET", "/internal/position"),
    rule(Viewer, "GET", "/internal/changes"),
    rule(Viewer, "GET", "/internal/outbox"),
    rule(Viewer, "GET", "/internal/dead-letters"),
    rule(Viewer, "GET", "/internal/breakers"),
    rule(Viewer, "GET", "/internal/faults"),
    rule(Viewer, "GET", "/internal/ledger"),
    rule(Viewer, "GET", "/internal/ledger/catalogue"),
    rule(Viewer, "GET", "/internal/ledger/reservations"),
    rule(Viewer, "GET", "/internal/ledger/stock"),
    rule(Operator, "POST", "/internal/outbox/retry"),
    rule(Operator, "POST", "/internal/outbox/republish"),
    rule(Admin, "POST", "/internal/breakers/{name}"),
    rule(Admin, "POST", "/internal/faults"),
    rule(Admin, "DELETE", "/internal/faults"),
    rule(Admin, "DELETE", "/internal/faults/{id}"),
];

const fn rule(role: Role, method: &'static str, path: &'static str) -> Rule {
    Rule { method, path, role }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_stands_there_once_and_is_guarded() {
        for (place, rule) in RULES.iter().enumerate() {
            let twin =
                RULES[..place].iter().find(|other| (other.method, other.path) == (rule.method, rule.path));
            assert_eq!(twin, None);
            assert_eq!(ACCESS.needs(rule.method, rule.path), Some(rule.role));
        }
    }

    #[test]
    fn whoever_looks_is_a_viewer_and_whoever_changes_something_is_none() {
        for rule in RULES {
            assert_eq!(rule.role == Viewer, rule.method == "GET", "{rule:?}");
        }
        assert_eq!(ACCESS.needs("POST", "/api/orders"), None);
    }
}
