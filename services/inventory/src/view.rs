//! Pure: a product as the API shows it.

use contract::money::Money;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::Product;

/// A product and its stock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProductView {
    /// Stock keeping unit of the product.
    pub sku: String,
    /// Name of the product, for people.
    pub name: String,
    /// Price of one piece, as new orders pay it.
    pub unit_price: Money,
    /// Pieces free to be ordered.
    pub on_hand: u32,
    /// Pieces reserved for orders in flight.
    pub reserved: u32,
    /// Pieces sold and not put back.
    pub sold: u32,
    /// All pieces ever supplied: on hand + reserved + sold.
    pub supplied: u32,
    /// True if the monitor replenishes the product.
    pub replenish: bool,
}

impl ProductView {
    /// Builds the view; `None` if the product is not listed.
    #[must_use]
    pub fn of(sku: &str, product: &Product) -> Option<Self> {
        let listing = product.listing.as_ref()?;
        Some(Self {
            sku: sku.to_owned(),
            name: listing.name.clone(),
            unit_price: listing.unit_price,
            on_hand: product.on_hand,
            reserved: product.reserved,
            sold: product.sold,
            supplied: product.supplied,
            replenish: listing.replenish,
        })
    }
}
