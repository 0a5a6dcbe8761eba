//! Pure: what may be asked of the view of a saga, and what happens to it: facts are heard, humans settle.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::heard_fact::HeardFact;
use crate::settlement::{Settlement, Unsettlement};

/// What its services say of a saga, or an operator asks of it.
#[derive(Debug, Clone)]
pub enum SagaCommand {
    /// Keep what was said.
    Hear(HeardFact),
    /// Wait for nobody any more: the rest was settled outside.
    Settle(Settlement),
    /// It was not, after all.
    Unsettle(Unsettlement),
}

/// What happened to a saga, as its view keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum SagaEvent {
    /// A human has settled the rest outside.
    Settled(Settlement),
    /// That was taken back.
    Unsettled(Unsettlement),
    /// A fact was heard. Stored bare, as builds did that knew no other event.
    #[serde(untagged)]
    Heard(HeardFact),
}

impl SagaEvent {
    /// What was heard, if it is that.
    #[must_use]
    pub fn heard(self) -> Option<HeardFact> {
        match self {
            Self::Heard(fact) => Some(fact),
            Self::Settled(_) | Self::Unsettled(_) => None,
        }
    }
}

/// By its first member, at one go: what serde derives of an untagged variant reads every event into a copy first, and
/// nearly all of them are such.
impl<'de> Deserialize<'de> for SagaEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByItsFirstMember)
    }
}

struct ByItsFirstMember;

impl<'de> Visitor<'de> for ByItsFirstMember {
    type Value = SagaEvent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event of the view of a saga")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<SagaEvent, M::Error> {
        let first: Option<Name<'de>> = map.next_key()?;
        let event = match first.as_ref().map(|Name(name)| &**name) {
            Some("Settled") => SagaEvent::Settled(map.next_value()?),
            Some("Unsettled") => SagaEvent::Unsettled(map.next_value()?),
            Some(_) | None => {
                let fact = HeardFact::deserialize(MapAccessDeserializer::new(Again { first, map }));
                return fact.map(SagaEvent::Heard);
            }
        };
        match map.next_key::<IgnoredAny>()? {
            None => Ok(event),
            Some(_) => Err(M::Error::custom("something stands beside a settlement")),
        }
    }
}

/// The name of a member, of which there is no copy where it can be had without one.
#[derive(Deserialize)]
struct Name<'n>(#[serde(borrow)] Cow<'n, str>);

/// The members of a map of which the name of the first was read.
struct Again<'n, M> {
    first: Option<Name<'n>>,
    map: M,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for Again<'de, M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        match self.first.take() {
            Some(Name(first)) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.map.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(seed)
    }
}
