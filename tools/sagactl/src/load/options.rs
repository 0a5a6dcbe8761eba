//! Pure: rate and mix, as people write them.

use std::str::FromStr;

/// More than one machine can send.
const HIGHEST_RATE: u32 = 100_000;

/// What becomes of an order, by its own doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is confirmed.
    Happy,
    /// The bank declines its card.
    Declined,
    /// One of its products is sold out.
    OutOfStock,
}

/// Shares in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    happy: u64,
    declined: u64,
    out_of_stock: u64,
}

impl Mix {
    /// The kind of the order with this number. Kinds are spread evenly, and every hundred has the exact shares.
    pub fn kind(&self, number: u64) -> Kind {
        // 61 has no factor in common with 100, so a hundred numbers in a row hit every slot once.
        let slot = number % 100 * 61 % 100;
        if slot < self.happy {
            Kind::Happy
        } else if slot < self.happy + self.declined {
            Kind::Declined
        } else {
            Kind::OutOfStock
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Self { happy: 0, declined: 0, out_of_stock: 0 };
        for part in text.split(',') {
            let (name, share) =
                part.split_once('=').ok_or("write it like happy=90,declined=5,out_of_stock=5")?;
            let percent = share.parse().map_err(|_| format!("{share:?} is no whole percentage"))?;
            match name.trim() {
                "happy" => mix.happy = percent,
                "declined" => mix.declined = percent,
                "out_of_stock" => mix.out_of_stock = percent,
                _ => {
                    return Err(format!(
                        "there is no kind {name:?}; kinds are happy, declined, out_of_stock"
                    ));
                }
            }
        }
        let all = [mix.happy, mix.declined, mix.out_of_stock].into_iter().fold(0, u64::saturating_add);
        if all == 100 { Ok(mix) } else { Err(format!("the shares make {all} %, they must make 100 %")) }
    }
}

/// Orders per second.
pub fn rate(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rate @ 1..=HIGHEST_RATE) => Ok(rate),
        _ => Err(format!("must be a whole number from 1 to {HIGHEST_RATE}, in orders per second")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundred_orders_have_the_exact_shares() {
        let mix: Mix = "happy=90,declined=7,out_of_stock=3".parse().expect("a mix");
        let count = |kind| (300..400).filter(|number| mix.kind(*number) == kind).count();
        assert_eq!([Kind::Happy, Kind::Declined, Kind::OutOfStock].map(count), [90, 7, 3]);
    }

    #[test]
    fn a_mix_that_makes_no_sense_is_refused() {
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
}
