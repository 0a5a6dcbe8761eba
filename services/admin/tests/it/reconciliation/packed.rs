//! Pure: ledger pages in JSON and MessagePack.

use axum::body::to_bytes;
use contract::money::{Currency, Money};
use jiff::{SignedDuration, Timestamp};
use saga_engine::host::queries::{Encoding, Folds, Page};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::shop::{CANCELLED, CONFIRMED, Shop};

fn page<T: Clone>(entries: &[T]) -> Page<T> {
    let folds = Folds { kind: "thing".to_owned(), rows: u64::MAX, differing: vec!["thing/ä\n".to_owned()] };
    Page {
        entries: entries.to_vec(),
        next: Some("\0".to_owned()),
        unreadable: vec!["thing/1".to_owned()],
        purged_before: Some(Uuid::max()),
        folds: Some(folds),
    }
}

async fn same<T: Clone + PartialEq + std::fmt::Debug + Serialize + DeserializeOwned>(entries: &[T]) {
    for encoding in [Encoding::Json, Encoding::MessagePack] {
        let page = page(entries);
        let (parts, body) = page.encode(encoding).expect("an answer").into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        let read = Page::<T>::decode(&parts.headers, &body).expect("a page");
        assert_eq!(read.entries, entries, "{encoding:?}");
        assert_eq!(
            (&read.next, &read.unreadable, read.purged_before),
            (&page.next, &page.unreadable, page.purged_before)
        );
        assert_eq!(read.folds, page.folds);
        for cut in 0..body.len() {
            assert!(Page::<T>::decode(&parts.headers, &body[..cut]).is_err(), "{encoding:?}, cut at {cut}");
        }
    }
}

#[tokio::test]
async fn entries_are_equal_in_json_and_message_pack() {
    let mut shop = Shop::consistent();
    let extreme = Money::new(i64::MIN, Currency::JPY);
    shop.orders[CONFIRMED].total = extreme;
    shop.orders[CONFIRMED].published[0].at = Timestamp::MIN;
    shop.orders[CONFIRMED].published[1].at = Timestamp::MAX;
    shop.orders[CONFIRMED].deadline = Timestamp::UNIX_EPOCH - SignedDuration::from_nanos(1);
    shop.orders[CANCELLED].customer = "\u{0}\"ä\u{1F600}".to_owned();
    shop.orders[CANCELLED].payment = uuid::Uuid::max();
    shop.reservations[CONFIRMED].lines[0].quantity = u32::MAX;
    shop.stock[0].on_hand = u64::MAX;
    shop.stock[0].version = i64::MIN;
    shop.stock[1].unit_price = None;
    shop.payments[CONFIRMED].captured = vec![extreme; 3];
    shop.payments[CANCELLED].resolved_manually = true;
    shop.charges[0].amount = None;
    same(&shop.orders).await;
    same(&shop.reservations).await;
    same(&shop.payments).await;
    same(&shop.charges).await;
    same(&shop.stock).await;
    same(&shop.copies).await;
}
