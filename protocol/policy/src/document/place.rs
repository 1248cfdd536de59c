//! Walks a document by name and type, and notes what is not as expected with its path.

use std::collections::{HashMap, HashSet};

use super::{Key, Mark, Node, Value};
use crate::problem::{Complaint, Findings, nearest};

/// A value together with its path in the policy.
#[derive(Clone, Debug)]
pub(crate) struct Place<'d> {
    node: &'d Node,
    path: String,
}

/// The keys that a mapping may have.
pub(crate) struct Keys {
    /// What the mapping is, with its article: "an endpoint".
    pub(crate) what: &'static str,
    pub(crate) known: &'static [&'static str],
    /// Keys that `OpenShell` has and this version has not, with the reason.
    pub(crate) refused: &'static [(&'static str, &'static str)],
}

/// A value under a name that the author chose.
pub(crate) struct Named<'d> {
    pub(crate) name: &'d str,
    /// The place of the name.
    mark: Mark,
    pub(crate) place: Place<'d>,
}

/// A mapping whose keys have been checked.
pub(crate) struct Fields<'d> {
    place: Place<'d>,
    entries: &'d [(Key, Node)],
    /// Whether one of the keys is unknown: it may be a slip for one that seems to be missing.
    misspelt: bool,
}

impl<'d> Place<'d> {
    pub(crate) fn root(node: &'d Node) -> Self {
        Self {
            node,
            path: String::new(),
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn mark(&self) -> Mark {
        self.node.mark
    }

    /// The mapping here, if all its keys are known, given once, and have a value. Otherwise what can be used of it.
    pub(crate) fn fields(&self, keys: &Keys, findings: &mut Findings) -> Option<Fields<'d>> {
        let entries = self.entries(keys.what, findings)?;
        let mut misspelt = false;
        for (key, _) in entries {
            let name = key.name.as_str();
            if keys.known.contains(&name) {
                continue;
            }
            let path = self.join(name);
            let refused = keys.refused.iter().find(|(refused, _)| *refused == name);
            misspelt |= refused.is_none();
            let complaint = match refused {
                Some((_, reason)) => Complaint::new(
                    format!("`{name}` is not supported by this version: {reason}"),
                    format!("remove `{name}`"),
                ),
                None => unknown(name, keys),
            };
            findings.add_at(key.mark, &path, complaint);
        }
        Some(Fields {
            place: self.clone(),
            entries,
            misspelt,
        })
    }

    /// The mapping here, whose keys are names that the author chose: those that have a value, each at its first place. The others
    /// have been noted.
    pub(crate) fn named(&self, what: &str, findings: &mut Findings) -> Option<Vec<Named<'d>>> {
        let entries = self.entries(what, findings)?;
        let mut seen = HashSet::new();
        let mut named = Vec::new();
        for (key, node) in entries {
            if seen.insert(&key.name) && !matches!(node.value, Value::Null) {
                named.push(Named {
                    name: &key.name,
                    mark: key.mark,
                    place: self.child(&key.name, node),
                });
            }
        }
        Some(named)
    }

    pub(crate) fn list(&self, what: &str, findings: &mut Findings) -> Option<Vec<Place<'d>>> {
        match &self.node.value {
            Value::List(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(n, node)| Self {
                        node,
                        path: format!("{}[{n}]", self.path),
                    })
                    .collect(),
            ),
            Value::Map(_) => self.mistyped(what, "write each entry after `- `", findings),
            Value::Null
            | Value::Boolean(_)
            | Value::Integer(_)
            | Value::Fraction
            | Value::Huge
            | Value::Text(_) => self.mistyped(what, "write it in brackets: `[…]`", findings),
        }
    }

    pub(crate) fn text(&self, what: &str, findings: &mut Findings) -> Option<&'d str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            Value::Integer(_) | Value::Fraction | Value::Huge | Value::Boolean(_) => {
                self.mistyped(what, "put it in quotes if it is meant as text", findings)
            }
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.mistyped(what, "write one text", findings)
            }
        }
    }

    pub(crate) fn boolean(&self, findings: &mut Findings) -> Option<bool> {
        if let Value::Boolean(value) = self.node.value {
            return Some(value);
        }
        let fix = "write `true` or `false`, without quotes";
        self.mistyped("`true` or `false`", fix, findings)
    }

    /// The number here, if it is one. Notes nothing: what else it may be, the caller knows.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        if let Value::Integer(value) = self.node.value {
            Some(value)
        } else {
            None
        }
    }

    /// The text here, if it is one.
    pub(crate) fn as_text(&self) -> Option<&'d str> {
        if let Value::Text(text) = &self.node.value {
            Some(text)
        } else {
            None
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, Value::List(items) if items.is_empty())
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// Notes that something else was expected, and what is there.
    pub(crate) fn mistyped<T>(
        &self,
        expected: &str,
        fix: &str,
        findings: &mut Findings,
    ) -> Option<T> {
        let found = match &self.node.value {
            Value::Null => "nothing",
            Value::Boolean(_) => "a boolean",
            Value::Integer(_) => "a number",
            Value::Fraction => "a fraction",
            Value::Huge => "a number that is too large",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        };
        findings.add(
            self,
            Complaint::new(format!("expected {expected}, found {found}"), fix),
        );
        None
    }

    fn entries(&self, what: &str, findings: &mut Findings) -> Option<&'d [(Key, Node)]> {
        let Value::Map(entries) = &self.node.value else {
            return self.mistyped(
                &format!("{what} (a mapping)"),
                "write `key: value` lines",
                findings,
            );
        };
        let mut first: HashMap<&str, Mark> = HashMap::new();
        for (key, node) in entries {
            let path = self.join(&key.name);
            if let Some(earlier) = first.get(key.name.as_str()) {
                let message = format!(
                    "key `{}` is given twice, first at line {}",
                    key.name, earlier.line
                );
                findings.add_at(key.mark, &path, Complaint::new(message, "keep one of them"));
            } else {
                first.insert(&key.name, key.mark);
            }
            if matches!(node.value, Value::Null) {
                let message = format!("`{}` has no value", key.name);
                findings.add_at(
                    key.mark,
                    &path,
                    Complaint::new(message, "give it one or remove the key"),
                );
            }
        }
        Some(entries)
    }

    fn child(&self, key: &str, node: &'d Node) -> Self {
        Self {
            node,
            path: self.join(key),
        }
    }

    fn join(&self, key: &str) -> String {
        let plain = key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let shown = if plain && !key.is_empty() {
            key.to_owned()
        } else {
            format!("{key:?}")
        };
        if self.path.is_empty() {
            shown
        } else {
            format!("{}.{shown}", self.path)
        }
    }
}

impl Named<'_> {
    /// Notes a problem with the name.
    pub(crate) fn complain(&self, complaint: Complaint, findings: &mut Findings) {
        findings.add_at(self.mark, self.place.path(), complaint);
    }
}

impl<'d> Fields<'d> {
    /// The value of a key that is there and has one.
    pub(crate) fn get(&self, name: &str) -> Option<Place<'d>> {
        let (_, node) = self.entries.iter().find(|(key, _)| key.name == name)?;
        (!matches!(node.value, Value::Null)).then(|| self.place.child(name, node))
    }

    /// Whether the key is there, with a value or without.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| key.name == name)
    }

    /// Whether the author has left out `name`, and not just written it wrong.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        !self.misspelt && !self.has(name)
    }

    pub(crate) fn place(&self) -> &Place<'d> {
        &self.place
    }
}

fn unknown(name: &str, keys: &Keys) -> Complaint {
    let refused = keys.refused.iter().map(|(key, _)| *key);
    let suggestion = match nearest(name, keys.known.iter().copied().chain(refused)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("{} has {}", keys.what, listed(keys.known)),
    };
    Complaint::new(format!("unknown key `{name}`"), suggestion)
}

fn listed(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
