//! Shell: the users of the broker, and what each may do there: it follows from what the services declare.

use contract::FactType;
use saga_engine::nats::Permissions;

/// The user as which this program reads the streams.
pub const SAGACTL: &str = "sagactl";

/// The name of the token by which admin asks the services.
pub const INTERNAL: &str = "internal";

/// Who reads the metrics of every service.
pub const PROMETHEUS: &str = "prometheus";

/// In the folder of one of these: the seed by which it gets in at the broker.
pub const KEY: &str = "broker.nk";

/// In the same folder: the token by which it asks the services.
pub const TOKEN: &str = "http.token";

/// Every user, by name: each service that takes part in the messaging, and this program.
pub fn all() -> Vec<(&'static str, Permissions)> {
    let tells = |service| FactType::said_by(service).map(FactType::message_type);
    vec![
        (admin::NAME, Permissions::of_service::<admin::policy::AdminService>(tells(admin::NAME))),
        (order::NAME, Permissions::of_service::<order::service::OrderService>(tells(order::NAME))),
        (
            inventory::NAME,
            Permissions::of_service::<inventory::service::InventoryService>(tells(inventory::NAME)),
        ),
        (payment::NAME, Permissions::of_service::<payment::service::PaymentService>(tells(payment::NAME))),
        (SAGACTL, Permissions::of_reader(SAGACTL, [order::NAME, inventory::NAME, payment::NAME])),
    ]
}

#[cfg(test)]
mod tests {
    use contract::topology::producers;

    use super::*;

    #[test]
    fn everybody_who_takes_part_in_the_messaging_is_a_user() {
        let names: Vec<_> = all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, producers().chain([SAGACTL]).collect::<Vec<_>>());
    }

    /// What each may say is what it says, and nobody may say what another does; nobody deletes or empties a stream.
    #[test]
    fn nobody_may_say_what_another_says() {
        let users = all();
        for (name, permissions) in &users {
            let facts: Vec<_> =
                permissions.publish.iter().filter(|subject| !subject.starts_with('$')).collect();
            assert!(
                facts.iter().all(|subject| subject.starts_with(&format!("{name}."))),
                "{name}: {facts:?}"
            );
            assert!(facts.iter().all(|subject| !subject.contains('>')), "{name}: {facts:?}");
            let own = format!("_INBOX.{name}.>");
            assert_eq!(permissions.subscribe, [own]);
            let is_deadly =
                |subject: &&String| subject.contains("STREAM.DELETE") || subject.contains("PURGE");
            assert_eq!(permissions.publish.iter().find(is_deadly), None, "{name}");
        }
        let order = &users[1].1.publish;
        for needed in [
            "order.created",
            "order.dead_lettered",
            "$JS.API.STREAM.CREATE.ORDER",
            "$JS.API.CONSUMER.CREATE.PAYMENT.order-confirmation",
            "$JS.API.CONSUMER.MSG.NEXT.INVENTORY.order-cancellation-inventory",
            "$JS.ACK.ADMIN.order-operations.>",
            "$JS.API.CONSUMER.CREATE.ADVISORY.order-advisories",
        ] {
            assert!(order.iter().any(|subject| subject == needed), "{needed} is not among {order:#?}");
        }
        assert!(users[0].1.publish.contains(&"admin.replay_requested.*".to_owned()));
    }
}
