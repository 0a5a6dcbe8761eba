//! Pure: the six processes of a local system: their names and their ports.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, IntoEnumIterator as _};

/// One process of the local system. Its name is that of its program, its log and its folder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum, Display, EnumIter,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Member {
    /// The broker.
    Nats,
    /// The simulated card processor.
    Bank,
    /// Orders and their deadlines.
    Order,
    /// Products, stock, reservations.
    Inventory,
    /// Payments.
    Payment,
    /// The operator's view.
    Admin,
}

impl Member {
    /// All, in the order in which they start.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// All but the broker.
    pub fn services() -> impl Iterator<Item = Self> {
        Self::iter().filter(|member| *member != Self::Nats)
    }

    /// Their names in one line.
    pub fn names(members: impl IntoIterator<Item = Self>) -> String {
        members.into_iter().map(|member| member.to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Where each listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    nats: u16,
    bank: u16,
    order: u16,
    inventory: u16,
    payment: u16,
    admin: u16,
}

impl Ports {
    /// The ports that the documentation names.
    pub const STANDARD: Self =
        Self { admin: 8080, order: 8081, inventory: 8082, payment: 8083, bank: 8084, nats: 4222 };

    /// Six ports in a row. `base` is at most 65530.
    pub const fn from_base(base: u16) -> Self {
        Self {
            admin: base,
            order: base.saturating_add(1),
            inventory: base.saturating_add(2),
            payment: base.saturating_add(3),
            bank: base.saturating_add(4),
            nats: base.saturating_add(5),
        }
    }

    /// Where this one listens.
    pub const fn of(&self, member: Member) -> u16 {
        match member {
            Member::Nats => self.nats,
            Member::Bank => self.bank,
            Member::Order => self.order,
            Member::Inventory => self.inventory,
            Member::Payment => self.payment,
            Member::Admin => self.admin,
        }
    }
}
