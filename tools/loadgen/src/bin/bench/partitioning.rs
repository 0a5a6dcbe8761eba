//! Pure: deterministic simulation of partitioned work with hot products.
//!
//! *By product*: each product belongs to one partition, and an order involves every partition that has one of its lines.
//! *By order*: an order belongs to one partition, which has a share of the stock of every product, and takes over some of
//! the share of another partition when its own runs low.

use anyhow::ensure;
use clap::Args;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, Args)]
pub struct World {
    /// Number of orders.
    #[arg(long, default_value_t = 200_000)]
    orders: usize,
    /// Number of products.
    #[arg(long, default_value_t = 1_000)]
    products: usize,
    /// Exponent of Zipf's law for the choice of products, in hundredths. With 100, the second product is ordered half as
    /// often as the first.
    #[arg(long, default_value_t = 100)]
    zipf: u32,
    /// Stock of each product in percent of its demand.
    #[arg(long, default_value_t = 102)]
    stock: usize,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Numbers of partitions.
const PARTITIONS: [usize; 3] = [1, 4, 16];
/// Maximum number of lines of an order, of one piece each.
const MAX_LINES: u64 = 3;
/// Fraction of its initial share below which a partition takes over stock.
const LOW_FRACTION: usize = 10;

type Order = Vec<usize>;

/// # Errors
/// If there are no orders or no products.
pub fn simulate(world: &World) -> anyhow::Result<Value> {
    ensure!(world.orders > 0 && world.products > 0, "at least one order and one product are needed");
    let orders = orders(world);
    let rows: Vec<Value> =
        PARTITIONS.into_iter().map(|partitions| compare(world, &orders, partitions)).collect();
    Ok(json!({
        "orders": world.orders,
        "products": world.products,
        "zipf_hundredths": world.zipf,
        "hottest_product_percent": percent(demand(world, &orders).into_iter().max().unwrap_or(0), lines(&orders)),
        "partitions": rows,
    }))
}

fn compare(world: &World, orders: &[Order], partitions: usize) -> Value {
    let by_product = by_product(orders, partitions);
    let kept = by_order(world, orders, partitions, false);
    let moved = by_order(world, orders, partitions, true);
    json!({
        "partitions": partitions,
        "by_product": {
            "speedup_hundredths": by_product.speedup_hundredths,
            "orders_in_several_percent": percent(by_product.in_several, orders.len()),
        },
        "by_order": {
            "speedup_hundredths": partitions * 100,
            "rejected_with_stock_permille": permille(kept.rejected_with_stock, orders.len()),
            "with_moves": {
                "rejected_with_stock_permille": permille(moved.rejected_with_stock, orders.len()),
                "moves_permille": permille(moved.moves, orders.len()),
            },
        },
    })
}

struct ByProduct {
    /// Speed-up over one partition in hundredths; the busiest partition limits it.
    speedup_hundredths: usize,
    /// Orders with lines in more than one partition.
    in_several: usize,
}

fn by_product(orders: &[Order], partitions: usize) -> ByProduct {
    let (mut work, mut in_several) = (vec![0_usize; partitions], 0);
    for order in orders {
        let mut involved = order.iter().map(|product| home(*product, partitions)).collect::<Vec<_>>();
        involved.sort_unstable();
        involved.dedup();
        in_several += usize::from(involved.len() > 1);
        involved.into_iter().for_each(|partition| work[partition] += 1);
    }
    let most = work.into_iter().max().unwrap_or(1).max(1);
    ByProduct { speedup_hundredths: orders.len() * 100 / most, in_several }
}

/// Partition of a product (Fibonacci hashing; Knuth, The Art of Computer Programming 3, 6.4).
fn home(product: usize, partitions: usize) -> usize {
    let mixed = (product as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or_default() % partitions
}

#[derive(Default)]
struct ByOrder {
    /// Orders rejected although another partition had stock.
    rejected_with_stock: usize,
    /// Transfers of stock between partitions.
    moves: usize,
}

fn by_order(world: &World, orders: &[Order], partitions: usize, may_move: bool) -> ByOrder {
    let first: Vec<usize> = demand(world, orders)
        .iter()
        .map(|demand| (demand * world.stock / 100).div_ceil(partitions))
        .collect();
    let mut shares = vec![first.clone(); partitions];
    let mut dice = Dice(world.seed ^ 0xd1ce);
    let mut result = ByOrder::default();
    for order in orders {
        let here = dice.below(partitions as u64);
        for product in order {
            let is_low = shares[here][*product] * LOW_FRACTION <= first[*product];
            if may_move
                && is_low
                && let Some(from) = richest(&shares, *product, here)
            {
                // Afterwards both have the same.
                let some = (shares[from][*product] - shares[here][*product]).div_ceil(2);
                shares[from][*product] -= some;
                shares[here][*product] += some;
                result.moves += 1;
            }
        }
        if order.iter().all(|product| shares[here][*product] > 0) {
            order.iter().for_each(|product| shares[here][*product] -= 1);
        } else if order.iter().all(|product| shares.iter().any(|share| share[*product] > 0)) {
            result.rejected_with_stock += 1;
        }
    }
    result
}

/// Partition with the most stock of a product, if it has stock to transfer.
fn richest(shares: &[Vec<usize>], product: usize, but: usize) -> Option<usize> {
    let others = (0..shares.len()).filter(|partition| *partition != but);
    let most = others.max_by_key(|partition| shares[*partition][product])?;
    (shares[most][product] > shares[but][product] + 1).then_some(most)
}

/// Demand for each product.
fn demand(world: &World, orders: &[Order]) -> Vec<usize> {
    let mut demand = vec![0; world.products];
    orders.iter().flatten().for_each(|product| demand[*product] += 1);
    demand
}

fn lines(orders: &[Order]) -> usize {
    orders.iter().map(Vec::len).sum()
}

#[expect(clippy::float_arithmetic, reason = "Zipf's law has an exponent that is no whole number")]
fn orders(world: &World) -> Vec<Order> {
    let exponent = f64::from(world.zipf) / 100.0;
    let mut sum = 0.0;
    // Cumulative demand by rank.
    let mut up_to = Vec::with_capacity(world.products);
    let ranks = u32::try_from(world.products).unwrap_or(u32::MAX);
    for rank in 1..=ranks {
        sum += 1.0 / f64::from(rank).powf(exponent);
        up_to.push(sum);
    }
    let mut dice = Dice(world.seed);
    let mut product = || {
        let drawn = f64::from(u32::try_from(dice.next() >> 32).unwrap_or(u32::MAX)) / 4_294_967_296.0 * sum;
        up_to.partition_point(|up_to| *up_to <= drawn).min(world.products - 1)
    };
    let mut lengths = Dice(world.seed ^ 0x11e5);
    let order = |_| {
        let mut order: Order = (0..=lengths.below(MAX_LINES)).map(|_| product()).collect();
        order.sort_unstable();
        order.dedup();
        order
    };
    (0..world.orders).map(order).collect()
}

fn percent(part: usize, of: usize) -> usize {
    part * 100 / of.max(1)
}

fn permille(part: usize, of: usize) -> usize {
    part * 1_000 / of.max(1)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, sides: u64) -> usize {
        usize::try_from(self.next() % sides).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: World = World { orders: 20_000, products: 100, zipf: 100, stock: 102, seed: 1 };

    #[test]
    fn one_partition_has_no_speedup_and_rejects_nothing_in_stock() {
        let orders = orders(&WORLD);
        let one = by_product(&orders, 1);
        assert_eq!((one.speedup_hundredths, one.in_several), (100, 0));
        assert_eq!(by_order(&WORLD, &orders, 1, false).rejected_with_stock, 0);
    }

    #[test]
    fn hot_products_limit_the_speedup_by_product() {
        let speedup = |zipf| by_product(&orders(&World { zipf, ..WORLD }), 16).speedup_hundredths;
        assert!(speedup(0) > speedup(100) && speedup(100) > speedup(150), "the hotter the slower");
        // All orders of one product are in one partition.
        assert_eq!(by_product(&vec![vec![7]; 100], 16).speedup_hundredths, 100);
    }

    #[test]
    fn transfers_of_stock_reduce_rejections() {
        let orders = orders(&WORLD);
        let (kept, moved) = (by_order(&WORLD, &orders, 16, false), by_order(&WORLD, &orders, 16, true));
        assert!(kept.rejected_with_stock > 0 && kept.moves == 0);
        assert!(moved.rejected_with_stock < kept.rejected_with_stock / 4 && moved.moves > 0);
    }

    #[test]
    fn result_depends_on_the_seed_only() {
        let of = |seed| simulate(&World { seed, ..WORLD }).expect("a world").to_string();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(simulate(&World { products: 0, ..WORLD }).is_err());
    }
}
