use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    text.parse().expect("a host name")
}

fn both(names: &Names, name: &Name) -> [IpAddr; 2] {
    [Family::V4, Family::V6].map(|family| names.synthetic(name, family).expect("room"))
}

#[test]
fn an_address_leads_back_to_its_name_in_both_families_and_in_mapped_form() {
    let names = Names::new(Seed::new(7));
    let origin = name("origin.test");

    let [v4, v6] = both(&names, &origin);

    let IpAddr::V4(plain) = v4 else {
        panic!("{v4} is not IPv4")
    };
    assert_eq!(names.name_of(v4), Some(origin.clone()));
    assert_eq!(names.name_of(v6), Some(origin.clone()));
    assert_eq!(
        names.name_of(plain.to_ipv6_mapped().into()),
        Some(origin.clone())
    );
    assert_eq!(names.len(), 1);
}

#[test]
fn an_address_nobody_was_given_has_no_name() {
    let names = Names::new(Seed::new(7));

    for address in [
        "198.18.0.0",
        "198.18.0.1",
        "198.19.255.255",
        "198.18.9.9",
        "198.17.255.255",
        "198.20.0.0",
        "127.0.0.1",
        "::1",
        "fd48:6f6c:6466:6173::",
        "fd48:6f6c:6466:6173::1",
        "fd48:6f6c:6466:6173:1::5",
        "fd48:6f6c:6466:6172::5",
    ] {
        let address = address.parse().expect("an address");
        assert_eq!(names.name_of(address), None, "{address}");
    }
}

#[test]
fn two_sandboxes_give_the_same_name_different_addresses() {
    let origin = name("origin.test");

    let first = both(&Names::new(Seed::new(1)), &origin);
    let second = both(&Names::new(Seed::new(2)), &origin);

    assert_ne!(first, second);
}

#[test]
fn a_full_table_refuses_new_names_and_keeps_the_old_ones() {
    let names = Names::new(Seed::new(3));
    let mut given = HashSet::new();
    for index in 0..CAPACITY {
        let fresh = both(&names, &name(&format!("h{index}.test")));
        assert!(given.insert(fresh[0]), "{} was given twice", fresh[0]);
    }
    let old = name("h0.test");
    let kept = both(&names, &old);

    assert_eq!(
        names.synthetic(&name("one-more.test"), Family::V4),
        Err(Full)
    );
    assert_eq!(both(&names, &old), kept);
    assert_eq!(names.name_of(kept[1]), Some(old));
    assert_eq!(names.len(), CAPACITY);
}

#[test]
fn threads_that_ask_at_once_get_the_same_address() {
    let names = Names::new(Seed::new(11));
    let wanted: Vec<Name> = (0..200).map(|n| name(&format!("n{n}.test"))).collect();

    let seen: Vec<Vec<[IpAddr; 2]>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| wanted.iter().map(|name| both(&names, name)).collect()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });

    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(names.len(), 200);
}

/// A workload that has cached an address never learns that its keeper is another one.
#[test]
fn a_new_keeper_knows_every_address_that_an_old_one_gave() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("names");
    let kept = || Names::kept(Seed::new(7), &path).expect("readable");
    let old = kept();
    let wanted: Vec<Name> = (0..300).map(|n| name(&format!("n{n}.test"))).collect();
    let given: Vec<_> = wanted.iter().map(|name| both(&old, name)).collect();
    drop(old);

    let new = kept();

    assert_eq!(new.len(), wanted.len());
    for (name, pair) in wanted.iter().zip(&given) {
        assert_eq!(new.name_of(pair[1]).as_ref(), Some(name));
        assert_eq!(&both(&new, name), pair);
    }
    both(&new, &name("late.test"));
    assert_eq!(kept().len(), wanted.len() + 1);
}

#[test]
fn a_torn_line_costs_one_name_and_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("names");
    std::fs::write(
        &path,
        "17 one.test\n18 two.te\n\n1 lo.test\n17 thief.test\n19 three.te",
    )
    .expect("w");

    let names = Names::kept(Seed::new(7), &path).expect("readable");
    let fresh = both(&names, &name("three.test"));
    drop(names);
    let again = Names::kept(Seed::new(7), &path).expect("readable");

    let seventeen = "198.18.0.17".parse().expect("an address");
    assert_eq!(again.name_of(seventeen), Some(name("one.test")));
    assert_eq!(both(&again, &name("three.test")), fresh);
    assert_eq!(again.name_of("198.18.0.1".parse().expect("one")), None);
    let torn = again.name_of("198.18.0.19".parse().expect("an address"));
    assert_eq!(torn, None, "a part of a name is another name");
}

proptest! {
    #[test]
    fn addresses_are_stable_injective_and_never_lo_itself(
        seed: u64,
        texts in proptest::collection::hash_set("[a-z]{1,12}\\.test", 1..200),
    ) {
        let names = Names::new(Seed::new(seed));
        let wanted: Vec<Name> = texts.iter().map(|text| name(text)).collect();
        let first: Vec<_> = wanted.iter().map(|name| both(&names, name)).collect();
        let again: Vec<_> = wanted.iter().map(|name| both(&names, name)).collect();
        prop_assert_eq!(&first, &again);

        let distinct: HashSet<IpAddr> = first.iter().flatten().copied().collect();
        prop_assert_eq!(distinct.len(), wanted.len() * 2);

        for (name, pair) in wanted.iter().zip(&first) {
            for address in pair {
                prop_assert!(Names::covers(*address));
                prop_assert_eq!(names.name_of(*address), Some(name.clone()));
            }
        }
        let own = ["198.18.0.1", "fd48:6f6c:6466:6173::1"];
        for own in own.map(|text| text.parse::<IpAddr>().expect("an address")) {
            prop_assert!(!distinct.contains(&own) && !Names::covers(own));
        }
    }
}
