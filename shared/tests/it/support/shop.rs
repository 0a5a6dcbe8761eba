//! The service that the tests run: it keeps shelves, hears what inventory says, and calls a supplier.
//!
//! Its misbehaviour is scripted by what it is given, so that it stays pure as every service is.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use shared::contract::{Fact, FactType, OrderConfirmed, StockLine, StockReplenished};
use shared::engine::Input;
use shared::envelope::Envelope;
use shared::row::{RowKey, RowKind};
use shared::service::{Heard, OPERATIONS, Refusal, Service, Step, Subscription};
use shared::unit::Unit;
use uuid::Uuid;

use super::shelf::{Nothing, Shelf, ShelfCommand};

/// Putting this many pieces anywhere panics.
pub const UNLUCKY: u32 = 13;
/// Looking for the rows of a message about this sku panics.
pub const UNREADABLE: &str = "unreadable";

/// A look at this shelf, when its time has come, panics.
pub const CURSED: &str = "cursed";

/// Fills shelves. Stands for work that ends up with the supplier.
pub const FILLING: &Step = &STEPS[0];
/// Hears the same as [`FILLING`], and says that it did.
pub const LISTENING: &Step = &STEPS[1];
/// Hears what operators wish.
pub const OPERATING: &Step = &STEPS[2];

/// What the shop calls.
pub const SUPPLIER: &str = "supplier";

static STEPS: [Step; 3] = [
    Step { name: "shelf-filling", hears: &[REPLENISHMENTS], needs: &[SUPPLIER] },
    Step { name: "shelf-listening", hears: &[REPLENISHMENTS], needs: &[] },
    Step { name: "shop-operations", hears: OPERATIONS, needs: &[] },
];
const REPLENISHMENTS: Subscription =
    Subscription { producer: "inventory", facts: &[FactType::StockReplenished] };

/// The service.
#[derive(Debug)]
pub struct Shop;

/// What may be asked of it.
#[derive(Debug, Clone)]
pub enum ShopCommand {
    List(&'static str),
    Put(&'static str, u32),
    CheckAt(&'static str, Timestamp),
    /// Calls the supplier, and gives up when the supplier does not answer.
    Supply(&'static str),
    /// Calls the supplier, and cannot do without an answer.
    Insist(&'static str),
}

/// What it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub pieces: i64,
}

/// What the supplier is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    sku: String,
}

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nothing is no quantity")
    }
}

impl Service for Shop {
    const NAME: &'static str = "order";
    type Command = ShopCommand;
    type Reply = Reply;
    type Rejection = Nothing;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Shelf>()]
    }

    fn steps() -> &'static [Step] {
        &STEPS
    }

    fn reads(&self, heard: &Heard<'_, ShopCommand>) -> Vec<RowKey> {
        assert_ne!(sku_of(heard).as_deref(), Some(UNREADABLE), "reads of this sku panic");
        sku_of(heard).map(RowKey::of::<Shelf>).into_iter().collect()
    }

    fn react(&self, heard: &Heard<'_, ShopCommand>, unit: &mut Unit<'_>) -> Result<Reply, Refusal<Nothing>> {
        let Some(sku) = sku_of(heard) else {
            return Err(Refusal::Broken("not for this shop".to_owned()));
        };
        match heard {
            Heard::Command(ShopCommand::List(_)) => {
                unit.decide::<Shelf>(&sku, &ShelfCommand::List)?;
            }
            Heard::Command(ShopCommand::Put(_, pieces)) => put(unit, &sku, *pieces)?,
            Heard::Command(ShopCommand::CheckAt(_, at)) => {
                unit.decide::<Shelf>(&sku, &ShelfCommand::PlanCheck(*at))?;
            }
            Heard::Command(ShopCommand::Supply(_)) => {
                unit.note("supply", &Wanted { sku: sku.clone() });
            }
            Heard::Command(ShopCommand::Insist(_)) => {
                unit.note("insist", &Wanted { sku: sku.clone() });
            }
            Heard::Message(step, _) if step.name == LISTENING.name => {
                let order = unit.correlation_id();
                unit.publish(Fact::OrderConfirmed(OrderConfirmed { order, lines: vec![] }));
            }
            Heard::Message(_, message) => {
                let Fact::StockReplenished(fact) = &message.fact else { return Ok(Reply::default()) };
                if !unit.row::<Shelf>(&sku).listed {
                    return Err(Refusal::NotYet(format!("shelf {sku:?} is not listed yet")));
                }
                put(unit, &sku, fact.quantity)?;
            }
            Heard::Called { answer: Ok(answer), .. } => {
                let pieces = answer.as_u64().and_then(|pieces| u32::try_from(pieces).ok());
                put(unit, &sku, pieces.unwrap_or(0))?;
            }
            Heard::Called { kind: "insist", answer: Err(reason), .. } => {
                return Err(Refusal::Broken(format!("no supply: {}", reason.reason())));
            }
            Heard::Called { answer: Err(_), .. } => {
                unit.decide::<Shelf>(&sku, &ShelfCommand::GiveUp)?;
            }
            Heard::Due(_) => {
                assert!(!sku.starts_with(CURSED), "nobody looks at a cursed shelf and lives");
                unit.decide::<Shelf>(&sku, &ShelfCommand::Check)?;
            }
        }
        Ok(Reply { pieces: unit.row::<Shelf>(&sku).pieces })
    }
}

/// Puts pieces on a shelf and says so.
fn put(unit: &mut Unit<'_>, sku: &str, pieces: u32) -> Result<(), Nothing> {
    unit.decide::<Shelf>(sku, &ShelfCommand::Put(pieces))?;
    let lines = vec![StockLine { sku: sku.to_owned(), quantity: pieces }];
    unit.publish(Fact::OrderConfirmed(OrderConfirmed { order: unit.correlation_id(), lines }));
    // Late on purpose: what the input did so far must vanish with it.
    assert_ne!(pieces, UNLUCKY, "an unlucky number of pieces");
    Ok(())
}

fn sku_of(heard: &Heard<'_, ShopCommand>) -> Option<String> {
    match heard {
        Heard::Command(
            ShopCommand::List(sku)
            | ShopCommand::Put(sku, _)
            | ShopCommand::CheckAt(sku, _)
            | ShopCommand::Supply(sku)
            | ShopCommand::Insist(sku),
        ) => Some((*sku).to_owned()),
        Heard::Message(_, message) => {
            let Fact::StockReplenished(fact) = &message.fact else { return None };
            Some(fact.sku.clone())
        }
        Heard::Called { payload, .. } => {
            serde_json::from_str::<Wanted>(payload).ok().map(|wanted| wanted.sku)
        }
        Heard::Due(key) => Some(key.id.clone()),
    }
}

/// The envelope in which inventory says that `pieces` of `sku` came in.
pub fn replenished(id: Uuid, sku: &str, pieces: u32) -> Bytes {
    let fact = StockReplenished { sku: sku.to_owned(), quantity: pieces, on_hand: pieces };
    let envelope = Envelope {
        id,
        message_type: FactType::StockReplenished.name().to_owned(),
        version: FactType::StockReplenished.version(),
        producer: "inventory".to_owned(),
        correlation_id: id,
        causation_id: id,
        occurred_at: Timestamp::UNIX_EPOCH,
        data: to_raw_value(&fact).expect("a fact has a JSON form"),
    };
    Bytes::from(serde_json::to_vec(&envelope).expect("an envelope has a JSON form"))
}

/// `payload` as [`FILLING`] hears it the first time.
pub fn heard(payload: Bytes) -> Input<Shop> {
    Input::message(FILLING, payload, Uuid::from_u128(404), 0)
}
