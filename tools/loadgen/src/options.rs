//! Pure: command-line options of a load run.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use strum::{EnumString, VariantNames};

use cli::args::duration;
use devstack::options::Target;

const MAX_LENGTH: Duration = Duration::from_hours(2);
const MAX_RATE: u32 = 100_000;
/// Each client may have a connection.
pub const MAX_CLIENTS: u32 = 4_096;

#[derive(Debug, Args)]
pub struct LoadOptions {
    /// Orders per second.
    #[arg(long, value_parser = rate, required_unless_present_any = ["clients", "rest"])]
    pub rate: Option<u32>,
    /// Closed loop instead of a rate: N clients, each of which sends an order when its previous one has ended.
    #[arg(long, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: Option<u32>,
    /// Continue at another rate, e.g. 500=20s (may be repeated).
    #[arg(long, value_name = "RATE=LENGTH", value_parser = then, conflicts_with_all = ["clients", "rest"])]
    pub then: Vec<(u32, Duration)>,
    /// Length of the measured part.
    #[arg(long, default_value = "60s", value_parser = run_length)]
    pub duration: Duration,
    /// Length of the warm-up, which is not measured.
    #[arg(long, default_value = "0s", value_parser = duration)]
    pub warmup: Duration,
    /// Kinds of orders in percent: happy, declined, out_of_stock, cancelled.
    #[arg(long, value_name = "KIND=PERCENT,…", default_value = "happy=90,declined=5,out_of_stock=5")]
    pub mix: Mix,
    /// Time limit for orders in flight after the last one.
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = run_length)]
    pub drain: Duration,
    /// Tolerate orders that are rejected with 503 and Retry-After.
    #[arg(long)]
    pub may_shed: bool,
    /// Add the values of each second to --json.
    #[arg(long, requires = "json")]
    pub timeline: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
    /// Send N orders one after another instead, each measured from POST to CONFIRMED.
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "clients"], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rest: Option<u32>,
}

fn run_length(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    match length {
        Duration::ZERO => Err("must be longer than 0s".to_owned()),
        length if length > MAX_LENGTH => Err(format!("at most {}s", MAX_LENGTH.as_secs())),
        length => Ok(length),
    }
}

fn rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rate @ 1..=MAX_RATE) => Ok(rate),
        _ => Err(format!("must be a whole number from 1 to {MAX_RATE}, in orders per second")),
    }
}

fn then(text: &str) -> Result<(u32, Duration), String> {
    let (per_second, length) = text.split_once('=').ok_or("write it like 500=20s")?;
    Ok((rate(per_second)?, run_length(length)?))
}

/// Intended outcome of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Confirmed.
    Happy,
    /// Cancelled, as the bank declines the payment.
    Declined,
    /// Cancelled, as a product is out of stock.
    OutOfStock,
    /// Cancelled by its customer shortly after the answer.
    Cancelled,
}

/// Percentages of the kinds, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix([u64; 4]);

impl Mix {
    pub const HAPPY: Self = Self([100, 0, 0, 0]);

    /// Kind of an order by its number. Kinds are spread evenly, and every hundred orders have the exact percentages.
    pub const fn kind(&self, number: u64) -> Kind {
        let Self([happy, declined, out_of_stock, _]) = *self;
        // 61 and 100 are coprime, so a hundred numbers in a row hit every slot once.
        let slot = number % 100 * 61 % 100;
        if slot < happy {
            Kind::Happy
        } else if slot < happy + declined {
            Kind::Declined
        } else if slot < happy + declined + out_of_stock {
            Kind::OutOfStock
        } else {
            Kind::Cancelled
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares = [0_u64; 4];
        for part in text.split(',') {
            let (name, share) =
                part.split_once('=').ok_or("write it like happy=90,declined=5,out_of_stock=5")?;
            let percent = share.parse().map_err(|_| format!("{share:?} is not a whole percentage"))?;
            let kind: Kind = name
                .trim()
                .parse()
                .map_err(|_| format!("unknown kind {name:?}; kinds are {}", Kind::VARIANTS.join(", ")))?;
            shares[kind as usize] = percent;
        }
        match shares.into_iter().fold(0, u64::saturating_add) {
            100 => Ok(Self(shares)),
            all => Err(format!("the percentages add up to {all}, not to 100")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundred_orders_have_exact_percentages() {
        let mix: Mix = "happy=80,declined=7,out_of_stock=3,cancelled=10".parse().expect("a mix");
        let count = |kind| (300..400).filter(|number| mix.kind(*number) == kind).count();
        let kinds = [Kind::Happy, Kind::Declined, Kind::OutOfStock, Kind::Cancelled];
        assert_eq!(kinds.map(count), [80, 7, 3, 10]);
    }

    #[test]
    fn invalid_mix_and_rate_are_rejected() {
        for bad in [
            "",
            "happy",
            "happy=90",
            "happy=101",
            "happy=-1,declined=101",
            "lucky=100",
            "happy=50.5,declined=49.5",
        ] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
        assert!("happy=100".parse::<Mix>().is_ok());
        assert!(
            rate("0").is_err() && rate("-1").is_err() && rate("fast").is_err() && rate("1000") == Ok(1000)
        );
    }

    #[test]
    fn kinds_are_spread_evenly() {
        let mix: Mix = "happy=50,declined=25,out_of_stock=25".parse().expect("a mix");
        for first in 0..300 {
            let happy = (first..first + 10).filter(|number| mix.kind(*number) == Kind::Happy).count();
            assert!((4..=6).contains(&happy), "{happy} of the ten from {first} on");
        }
        assert!((0..200).all(|number| Mix::HAPPY.kind(number) == Kind::Happy));
    }

    #[test]
    fn length_and_rate_are_bounded() {
        assert_eq!(run_length("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(run_length("2h"), Ok(MAX_LENGTH));
        for bad in ["0s", "7201s", "long"] {
            assert!(run_length(bad).is_err(), "{bad}");
        }
        assert_eq!((rate("1"), rate("100000")), (Ok(1), Ok(MAX_RATE)));
        assert!(rate("100001").is_err());
        assert_eq!(then("500=20s"), Ok((500, Duration::from_secs(20))));
        for bad in ["500", "500=", "=20s", "0=20s", "500=0s"] {
            assert!(then(bad).is_err(), "{bad}");
        }
    }
}
