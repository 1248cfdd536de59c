//! Holds the manual to what is read: its examples load, and it names every key there is.

use crate::network::keys;
use crate::policy::Policy;
use crate::sample::policy;
use crate::verdict::Reason;
use crate::{filesystem, process, resolver};

const MANUAL: &str = include_str!("../../../docs/policy.md");

fn examples() -> impl Iterator<Item = &'static str> {
    MANUAL
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
}

// PO-12
#[test]
fn each_example_of_the_manual_loads() {
    assert!(examples().count() >= 2);
    for example in examples() {
        assert_eq!(policy(&policy(example).expanded()), policy(example));
    }
}

// PO-12
#[test]
fn the_manual_names_every_key_and_every_reason() {
    let all = [
        Policy::KEYS,
        filesystem::KEYS,
        filesystem::LANDLOCK_KEYS,
        process::KEYS,
        process::LIMIT_KEYS,
        keys::RULE,
        keys::ENDPOINT,
        keys::BINARY,
        resolver::KEYS,
    ];
    let known = all.iter().flat_map(|keys| keys.known.iter().copied());
    let refused = all
        .iter()
        .flat_map(|keys| keys.refused.iter().map(|(key, _)| *key));
    let reasons = [
        Reason::HostNotAllowed,
        Reason::PortNotAllowed,
        Reason::BinaryNotAllowed,
        Reason::IdentityUnobservable,
        Reason::AddressRefused,
        Reason::AddressPrivate,
        Reason::AddressNotListed,
    ];
    for word in known.chain(refused).chain(reasons.map(Reason::as_str)) {
        // By itself, with a key below it or above it, or in a mapping.
        let forms = [
            format!("`{word}`"),
            format!("`{word}."),
            format!(".{word}`"),
            format!("{{{word}: "),
        ];
        let named = forms.iter().any(|form| MANUAL.contains(form));
        assert!(named, "{word}");
    }
}
