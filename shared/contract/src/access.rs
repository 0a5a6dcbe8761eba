//! Pure: the rules of authorization: every route of every service, and the role that it requires.
//!
//! A route without a rule requires the highest role, and a test that walks all routes names it. Probes, metrics and the
//! documentation are the engine's, and are not listed.

use saga_core::access::Role::{Admin, Operator, Viewer};
use saga_core::access::{Access, Role, Rule};

/// Rules of all routes of all services.
pub static ACCESS: Access = Access { rules: &RULES };

/// Customers order, viewers read, operators repair, admins overrule: edits, breakers, faults, accepted discrepancies.
///
/// A forced replay requires an admin too, which admin checks where it is forced. Operators may resolve manually:
/// reconciliation accepts only the discrepancies known then, and lists who accepted them.
const RULES: [Rule; 100] = [
    // Requests of customers, who know the id of their order and no other.
    open("POST", "/api/orders"),
    open("GET", "/api/orders/{id}"),
    open("POST", "/api/orders/{id}/cancel"),
    open("GET", "/api/products"),
    open("GET", "/api/products/{sku}"),
    // Requests of operators to the shop: read,
    rule(Viewer, "GET", "/api/orders"),
    rule(Viewer, "GET", "/api/orders/{id}/events"),
    rule(Viewer, "GET", "/api/products/{sku}/events"),
    rule(Viewer, "GET", "/api/reservations/{order}"),
    rule(Viewer, "GET", "/api/reservations/{order}/events"),
    rule(Viewer, "GET", "/api/payments"),
    rule(Viewer, "GET", "/api/payments/{id}"),
    rule(Viewer, "GET", "/api/payments/{id}/events"),
    // and change stock, prices and money.
    rule(Operator, "POST", "/api/products"),
    rule(Operator, "POST", "/api/products/{sku}/restock"),
    rule(Operator, "PUT", "/api/products/{sku}/price"),
    rule(Operator, "POST", "/api/payments/{id}/refund"),
    // Requests of payment to the bank, and of those who audit it.
    rule(Operator, "POST", "/v1/charges"),
    rule(Operator, "POST", "/v1/charges/{key}/refund"),
    rule(Operator, "POST", "/v1/charges/{key}/reverse"),
    rule(Operator, "POST", "/v1/charges/{key}/close"),
    rule(Viewer, "GET", "/v1/charges"),
    rule(Viewer, "GET", "/v1/charges/{key}"),
    rule(Viewer, "GET", "/v1/ledger"),
    // Requests of operators to admin: read,
    rule(Viewer, "GET", "/api/admin/overview"),
    rule(Viewer, "GET", "/api/admin/live"),
    rule(Viewer, "GET", "/api/admin/session"),
    rule(Viewer, "GET", "/api/admin/services"),
    rule(Viewer, "GET", "/api/admin/sagas"),
    rule(Viewer, "GET", "/api/admin/sagas/{id}"),
    rule(Viewer, "GET", "/api/admin/sagas/{id}/records"),
    rule(Viewer, "GET", "/api/admin/payments/{order}"),
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
    rule(Viewer, "GET", "/api/admin/reconciliation"),
    rule(Viewer, "GET", "/api/admin/audit"),
    rule(Viewer, "GET", "/api/admin/notifications"),
    // repair,
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
    rule(Operator, "POST", "/api/admin/dlq/{id}/resolve"),
    rule(Operator, "POST", "/api/admin/dlq/{id}/withdraw-resolution"),
    rule(Operator, "POST", "/api/admin/dlq/resolve"),
    rule(Operator, "POST", "/api/admin/dlq/withdraw-resolution"),
    rule(Operator, "POST", "/api/admin/payments/{order}/resolve"),
    rule(Operator, "POST", "/api/admin/payments/{order}/withdraw-resolution"),
    rule(Operator, "POST", "/api/admin/sagas/{id}/resolve"),
    rule(Operator, "POST", "/api/admin/sagas/{id}/withdraw-resolution"),
    rule(Operator, "POST", "/api/admin/sagas/{id}/extend"),
    rule(Operator, "POST", "/api/admin/sagas/extend"),
    rule(Operator, "POST", "/api/admin/outbox/{service}/retry"),
    rule(Operator, "POST", "/api/admin/outbox/{service}/republish"),
    rule(Operator, "POST", "/api/admin/notifications/test"),
    rule(Operator, "POST", "/api/admin/findings/acknowledge"),
    // overrule
    rule(Admin, "POST", "/api/admin/audit/processes"),
    rule(Admin, "POST", "/api/admin/dlq/{id}/edit"),
    rule(Admin, "POST", "/api/admin/breakers/{service}/{name}"),
    rule(Admin, "POST", "/api/admin/faults"),
    rule(Admin, "DELETE", "/api/admin/faults"),
    rule(Admin, "DELETE", "/api/admin/faults/{service}"),
    rule(Admin, "DELETE", "/api/admin/faults/{service}/{id}"),
    rule(Admin, "POST", "/api/admin/reconciliation/baselines"),
    // Requests of admin to the services, in the same order.
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
    rule(Viewer, "GET", "/internal/bank-ledger"),
    rule(Viewer, "GET", "/internal/ledger/catalogue"),
    rule(Viewer, "GET", "/internal/ledger/reservations"),
    rule(Viewer, "GET", "/internal/ledger/stock"),
    rule(Operator, "POST", "/internal/outbox/retry"),
    rule(Operator, "POST", "/internal/outbox/republish"),
    rule(Operator, "POST", "/internal/traces"),
    rule(Admin, "POST", "/internal/breakers/{name}"),
    rule(Admin, "POST", "/internal/faults"),
    rule(Admin, "DELETE", "/internal/faults"),
    rule(Admin, "DELETE", "/internal/faults/{id}"),
];

const fn rule(role: Role, method: &'static str, path: &'static str) -> Rule {
    Rule { method, path, role: Some(role) }
}

/// Makes the rule for a route of customers, who have no token.
const fn open(method: &'static str, path: &'static str) -> Rule {
    Rule { method, path, role: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_unique() {
        for (place, rule) in RULES.iter().enumerate() {
            let twin =
                RULES[..place].iter().find(|other| (other.method, other.path) == (rule.method, rule.path));
            assert_eq!(twin, None);
            assert_eq!(ACCESS.needs(rule.method, rule.path), rule.role);
        }
    }

    #[test]
    fn get_requires_viewer_and_changes_require_more() {
        for rule in RULES.iter().filter(|rule| rule.role.is_some()) {
            assert_eq!(rule.role == Some(Viewer), rule.method == "GET", "{rule:?}");
        }
    }

    /// An addition here lets anybody in who reaches the port.
    #[test]
    fn customers_order_and_see_products() {
        let open = RULES.iter().filter(|rule| rule.role.is_none());
        let open: Vec<_> = open.map(|rule| format!("{} {}", rule.method, rule.path)).collect();
        let wanted = [
            "POST /api/orders",
            "GET /api/orders/{id}",
            "POST /api/orders/{id}/cancel",
            "GET /api/products",
            "GET /api/products/{sku}",
        ];
        assert_eq!(open, wanted);
    }
}
