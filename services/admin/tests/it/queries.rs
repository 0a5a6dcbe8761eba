//! Shell: filters in lists and groups of the API.

use serde_json::json;

use crate::given::{ORDER, announced, dead_refund};
use crate::harness::each;
use crate::routes::{admin_with, numbered};

#[tokio::test]
async fn filters_find_exactly_the_matching_dead_letters() {
    let admin = admin_with(12).await;
    let dead = numbered(3);
    admin.post(&format!("/dlq/{}/replay", dead.id), &json!({}), 202).await;
    admin.delete(&format!("/dlq/{}?reason=hopeless", numbered(4).id), 200).await;
    admin.receives(&announced(&dead_refund(0))).await;
    let at = |number| numbered(number).last_failed_at;
    for (query, wanted) in [
        ("", 13),
        ("status=REPLAYING", 1),
        ("status=DISCARDED,REPLAYING", 2),
        ("status=RESOLVED", 0),
        ("status=PENDING&step=payment-refund", 4),
        ("service=payment", 13),
        ("service=order", 0),
        ("type=OrderCancelled", 13),
        ("type=OrderCreated", 0),
        ("fingerprint=f-charge", 8),
        (&format!("saga={ORDER}"), 1),
        (&format!("failed_after={}", at(9)), 4),
        (&format!("failed_before={}", at(9)), 9),
        (&format!("failed_after={}&failed_before={}", at(2), at(5)), 3),
        ("text=TIMED%20OUT", 4),
        ("text=no%20route", 8),
        ("text=said%20%22no%22", 12),
        ("text=ordercancelled", 13),
        // Names of members, other fields and payloads are not what is looked in.
        ("text=fingerprint", 0),
        ("text=payment-refund", 0),
        ("text=timed%20out&status=PENDING&limit=1", 1),
    ] {
        let page = admin.get(&format!("/dlq?{query}")).await;
        assert_eq!(each(&page["dead_letters"], "id").len(), wanted, "{query}: {page}");
    }
}

/// Text is searched a thousand dead letters at a time.
#[tokio::test]
async fn text_filter_finds_the_last_of_many() {
    let admin = admin_with(1_002).await;
    let page = admin.get("/dlq?text=call%200:").await;
    assert_eq!(each(&page["dead_letters"], "id"), [numbered(0).id.to_string()]);
}
