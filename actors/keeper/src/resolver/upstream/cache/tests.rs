use super::*;

fn key(text: &str) -> Key {
    (text.parse().expect("a host name"), Family::V4)
}

fn at(seconds: u64) -> Moment {
    Moment::ORIGIN + Duration::from_secs(seconds)
}

fn addresses(until: u64) -> Addresses {
    Addresses {
        ips: ["192.0.2.1".parse().expect("an address")].into(),
        valid_until: at(until),
    }
}

fn silent() -> Outcome {
    Err(NameError::Unavailable("no answer".into()))
}

fn put(cache: &mut Cache, name: &str, until: u64, now: u64) {
    cache.insert(key(name), Ok(addresses(until)), at(until), at(now));
}

#[test]
fn an_answer_holds_for_its_ttl_and_not_a_moment_longer() {
    let mut cache = Cache::default();
    put(&mut cache, "origin.test", 30, 0);

    let before = cache.find(&key("origin.test"), at(30) - Duration::from_nanos(1));
    let after = cache.find(&key("origin.test"), at(30));

    assert!(matches!(before, Known::Fresh(Ok(found)) if found == addresses(30)));
    assert!(matches!(after, Known::Stale(found) if found == addresses(30)));
}

// DN-07
#[test]
fn addresses_are_kept_for_bad_times_until_their_grace_ends() {
    let mut cache = Cache::default();
    put(&mut cache, "origin.test", 1, 0);
    let end = at(1) + GRACE;

    let last = cache.find(&key("origin.test"), end - Duration::from_nanos(1));
    let gone = cache.find(&key("origin.test"), end);

    assert!(matches!(last, Known::Stale(_)));
    assert!(matches!(gone, Known::Nothing));
}

#[test]
fn a_negative_answer_has_no_grace() {
    let mut cache = Cache::default();
    cache.insert(key("gone.test"), Err(NameError::NoSuchName), at(5), at(0));

    let before = cache.find(&key("gone.test"), at(4));
    let after = cache.find(&key("gone.test"), at(5));

    assert!(matches!(before, Known::Fresh(Err(NameError::NoSuchName))));
    assert!(matches!(after, Known::Nothing));
}

// DN-11
#[test]
fn a_failure_leaves_older_addresses_in_use_and_holds_back_the_next_try() {
    let mut cache = Cache::default();
    put(&mut cache, "origin.test", 10, 0);
    cache.insert(key("origin.test"), silent(), at(22), at(20));

    let held_back = cache.find(&key("origin.test"), at(29));
    let next_try = cache.find(&key("origin.test"), at(30));

    assert!(matches!(held_back, Known::Fresh(Ok(found)) if found == addresses(10)));
    assert!(matches!(next_try, Known::Stale(found) if found == addresses(10)));

    cache.insert(key("origin.test"), silent(), at(702), at(700));
    let too_old = cache.find(&key("origin.test"), at(701));
    assert!(matches!(
        too_old,
        Known::Fresh(Err(NameError::Unavailable(_)))
    ));
}

#[test]
fn a_real_answer_ends_the_use_of_older_addresses() {
    let mut cache = Cache::default();
    put(&mut cache, "origin.test", 10, 0);
    cache.insert(
        key("origin.test"),
        Err(NameError::NoSuchName),
        at(25),
        at(20),
    );
    cache.insert(key("origin.test"), silent(), at(32), at(30));

    let found = cache.find(&key("origin.test"), at(31));

    assert!(matches!(
        found,
        Known::Fresh(Err(NameError::Unavailable(_)))
    ));
}

#[test]
fn families_are_remembered_apart() {
    let mut cache = Cache::default();
    put(&mut cache, "origin.test", 10, 0);
    let (name, family) = key("origin.test");

    assert!(matches!(
        cache.find(&(name, family.sibling()), at(0)),
        Known::Nothing
    ));
}

#[test]
fn a_full_cache_lets_go_of_what_is_over_and_then_of_what_ends_first() {
    let mut cache = Cache::default();
    for n in 0..CAPACITY as u64 {
        put(&mut cache, &format!("n{n}.test"), 100 + n, 0);
    }

    put(&mut cache, "new.test", 9_000, 0);

    assert_eq!(cache.entries.len(), CAPACITY);
    assert!(matches!(cache.find(&key("n0.test"), at(0)), Known::Nothing));
    assert!(matches!(
        cache.find(&key("n1.test"), at(0)),
        Known::Fresh(_)
    ));

    let much_later = 100_000;
    put(&mut cache, "newest.test", much_later + 1, much_later);
    assert_eq!(cache.entries.len(), 1);
}
