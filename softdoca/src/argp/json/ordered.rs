//! Objects whose keys keep the order of the file: programs are called in this order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

/// Keys and values in order; no key twice.
#[derive(Debug)]
pub(super) struct Object<V>(pub(super) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Object<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = Object<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of flags")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<V>, A::Error> {
                let mut pairs: Vec<(String, V)> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if pairs.iter().any(|(known, _)| *known == key) {
                        return Err(A::Error::custom(format_args!(
                            "the key \"{key}\" is there twice"
                        )));
                    }
                    pairs.push((key, map.next_value()?));
                }
                Ok(Object(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}
