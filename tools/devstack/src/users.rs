//! Shell: users of the broker and their permissions, derived from what the services declare.

use admin::service::AdminService;
use contract::FactType;
use contract::topology::{OPERATOR, PARTICIPANTS, Participant, producers};
use inventory::service::InventoryService;
use order::service::OrderService;
use payment::service::PaymentService;
use saga_core::access::Role;
use saga_core::service::Service;
use saga_engine::nats::Permissions;

/// User as which sagactl reads the streams.
pub const SAGACTL: &str = "sagactl";

/// Name of the token by which admin calls the services.
pub const INTERNAL: &str = "internal";

/// Services that call others, each with the name and the role of its token.
pub fn callers() -> impl Iterator<Item = (&'static str, &'static str, Role)> {
    let callers = PARTICIPANTS.iter().filter(|participant| !participant.calls.is_empty());
    callers.map(|Participant { name, .. }| match *name {
        OPERATOR => (OPERATOR, INTERNAL, Role::Admin),
        name => (name, name, Role::Operator),
    })
}

/// Name of the token by which Prometheus reads metrics.
pub const PROMETHEUS: &str = "prometheus";

/// File with a user's key for the broker, in its credentials folder.
pub const KEY: &str = "broker.nk";

/// File with a user's token for the services, in the same folder.
pub const TOKEN: &str = "http.token";

/// All users: each service with a stream, and sagactl.
pub fn all() -> Vec<(&'static str, Permissions)> {
    vec![
        user::<AdminService>(),
        user::<OrderService>(),
        user::<InventoryService>(),
        user::<PaymentService>(),
        (SAGACTL, Permissions::of_reader(SAGACTL, producers().filter(|producer| *producer != OPERATOR))),
    ]
}

fn user<S: Service>() -> (&'static str, Permissions) {
    let facts = FactType::published_by(S::NAME).map(FactType::message_type);
    (S::NAME, Permissions::of_service::<S>(facts))
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn every_producer_and_sagactl_are_users() {
        let names: Vec<_> = all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, producers().chain([SAGACTL]).collect::<Vec<_>>());
    }

    #[test]
    fn users_publish_only_their_own_facts_and_delete_no_stream() {
        let users = all();
        for (name, permissions) in &users {
            let facts: Vec<_> =
                permissions.publish.iter().filter(|subject| !subject.starts_with('$')).collect();
            let (own, kept_traces) = (format!("{name}."), format!("trace.kept.{name}"));
            let is_own = |subject: &&String| subject.starts_with(&own) || **subject == kept_traces;
            assert!(facts.iter().copied().all(|subject| is_own(&subject)), "{name}: {facts:?}");
            assert!(facts.iter().all(|subject| !subject.contains('>')), "{name}: {facts:?}");
            let own = format!("_INBOX.{name}.>");
            let read = ["order.>", "inventory.>", "payment.>"].into_iter().filter(|_| *name == SAGACTL);
            assert_eq!(
                permissions.subscribe,
                iter::once(own).chain(read.map(str::to_owned)).collect::<Vec<_>>()
            );
            let deletes = |subject: &&String| subject.contains("DELETE") || subject.contains("PURGE");
            // A service creates a consumer of its own anew, if somebody has changed it.
            let is_own_consumer = |subject: &String| {
                let consumer = subject.strip_prefix("$JS.API.CONSUMER.DELETE.");
                let of = consumer.and_then(|consumer| consumer.split('.').nth(1));
                of.is_some_and(|consumer| consumer.starts_with(&format!("{name}-")))
            };
            let mut deleted = permissions.publish.iter().filter(deletes);
            assert_eq!(deleted.find(|subject| !is_own_consumer(subject)), None, "{name}");
        }
        let reader = &users[4].1.publish;
        let is_read = |subject: &String| {
            subject.starts_with("$JS.API.STREAM.INFO.") || subject.starts_with("$JS.API.STREAM.MSG.GET.")
        };
        assert!(reader.iter().all(is_read), "{reader:?}");
        let order = &users[1].1.publish;
        for needed in [
            "order.created",
            "order.dead_lettered",
            "$JS.API.STREAM.CREATE.ORDER",
            "$JS.API.CONSUMER.CREATE.PAYMENT.order-confirmation",
            "$JS.API.CONSUMER.MSG.NEXT.INVENTORY.order-cancellation-inventory",
            "$JS.ACK.ADMIN.order-operations.>",
            "$JS.API.CONSUMER.CREATE.ADVISORY.order-advisories",
            "trace.kept.order",
            "$JS.API.STREAM.MSG.GET.TRACE",
        ] {
            assert!(order.iter().any(|subject| subject == needed), "{needed} is not among {order:#?}");
        }
        assert!(users[0].1.publish.contains(&"admin.replay_requested.*".to_owned()));
    }
}
