//! YAML as a tree in which every value knows where it stands, so that a wrong value is found as well as a wrong word.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, Spanned, Tagged};
use std::fmt;

use crate::problem::{Complaint, Findings};

mod place;
mod unreadable;

pub(crate) use place::{Fields, Keys, Named, Place};

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    value: Value,
    mark: Mark,
    /// That of the value, or of the key before it.
    tag: Option<String>,
}

/// A place in the text, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

#[derive(Clone, Debug)]
enum Value {
    Null,
    Boolean(bool),
    Integer(i128),
    Fraction,
    /// More than any number here can be.
    Huge,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
struct Key {
    name: String,
    mark: Mark,
}

/// Reads one document. What is not YAML, or too much of it, goes to `findings`.
pub(crate) fn read(text: &str, findings: &mut Findings) -> Option<Node> {
    if text.len() > MAX_BYTES {
        let message = format!("policy is longer than {MAX_BYTES} bytes");
        let complaint = Complaint::new(message, SHORTEN);
        findings.add_at(Mark::default(), "", complaint);
        return None;
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_depth: MAX_DEPTH,
            // One more than is taken, so that the second is reported as what it is.
            max_documents: 2,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 4 * MAX_NODES },
        // Both are reported from the tree, with both places.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Error,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        strict_booleans: true,
        // They are reported from the tree, the supported ones too.
        reject_unsupported_tags: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spelt<Value>>(text, options) {
        Ok(spelt) => {
            let node = Node::from(spelt);
            node.tags(findings);
            Some(node)
        }
        Err(error) => {
            let (mark, complaint) = unreadable::explain(&error, text);
            findings.add_at(mark, "", complaint);
            None
        }
    }
}

impl From<Location> for Mark {
    fn from(location: Location) -> Self {
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            line: narrow(location.line()),
            column: narrow(location.column()),
        }
    }
}

/// A value with its tag and its place, as the parser gives it.
type Spelt<T> = Tagged<Spanned<T>>;

impl From<Spelt<Value>> for Node {
    fn from(Tagged(spanned, tag): Spelt<Value>) -> Self {
        Self {
            mark: spanned.referenced.into(),
            value: spanned.value,
            tag,
        }
    }
}

impl Node {
    /// Notes each tag in it: what a value is, its own form says.
    fn tags(&self, findings: &mut Findings) {
        if let Some(tag) = &self.tag {
            let short = tag.replacen("tag:yaml.org,2002:", "!!", 1);
            let message = format!("tags are not supported, and this has `{short}`");
            let fix = "remove the tag; text that looks like something else stands in quotes";
            findings.add_at(self.mark, "", Complaint::new(message, fix));
        }
        match &self.value {
            Value::List(items) => items.iter().for_each(|node| node.tags(findings)),
            Value::Map(entries) => entries.iter().for_each(|(_, node)| node.tags(findings)),
            Value::Null
            | Value::Boolean(_)
            | Value::Integer(_)
            | Value::Fraction
            | Value::Huge
            | Value::Text(_) => {}
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Boolean(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Integer(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Integer(value.into()))
            }

            fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
                Ok(Value::Integer(value))
            }

            fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
                Ok(Value::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(if value.abs() >= LEAST_HUGE {
                    Value::Huge
                } else {
                    Value::Fraction
                })
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<Spelt<Value>>()? {
                    items.push(item.into());
                }
                Ok(Value::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(Tagged(key, tag)) = map.next_key::<Spelt<String>>()? {
                    let mut value = Node::from(map.next_value::<Spelt<Value>>()?);
                    value.tag = tag.or(value.tag);
                    let key = Key {
                        name: key.value,
                        mark: key.referenced.into(),
                    };
                    entries.push((key, value));
                }
                Ok(Value::Map(entries))
            }

            fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Value, E> {
                Err(E::custom("binary data has no place in a policy"))
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}

/// A policy of a thousand rules is a tenth of each.
const MAX_BYTES: usize = 1 << 20;
const MAX_NODES: usize = 50_000;
const MAX_ALIASES: usize = 1_000;
const MAX_DEPTH: usize = 32;
const SHORTEN: &str = "shorten it: one wildcard, range or directory stands for all that is in it";
/// From here on a number that is read as a fraction is one without: integers below fit.
const LEAST_HUGE: f64 = 9_223_372_036_854_775_808.0;

#[cfg(test)]
mod tests;
