use proptest::prelude::*;

use super::*;

fn path(pattern: &str) -> Glob {
    Glob::new(pattern, '/').expect("a glob")
}

#[test]
fn a_pattern_without_wildcards_matches_itself_alone() {
    let curl = path("/usr/bin/curl");
    assert!(curl.matches("/usr/bin/curl"));
    assert!(!curl.matches("/usr/bin/curl2") && !curl.matches("/usr/bin/cur"));
    assert_eq!(curl.literal(), Some("/usr/bin/curl"));
}

// PO-04
#[test]
fn a_star_stays_within_one_segment() {
    let python = path("/usr/bin/python3*");
    assert!(python.matches("/usr/bin/python3") && python.matches("/usr/bin/python3.12"));
    assert!(!python.matches("/usr/bin/python3/x"));
    assert!(path("/usr/lib/jvm/*/bin/java").matches("/usr/lib/jvm/17/bin/java"));
    assert!(!path("/usr/lib/jvm/*/bin/java").matches("/usr/lib/jvm/17/jre/bin/java"));
}

#[test]
fn two_stars_cross_segments() {
    let nix = path("/nix/store/**/bin/git");
    assert!(nix.matches("/nix/store/a/bin/git") && nix.matches("/nix/store/a/b/bin/git"));
    assert!(!nix.matches("/nix/store/bin/git"));
    assert!(path("/opt/**").matches("/opt/a/b") && !path("/opt/**").matches("/opt"));
}

#[test]
fn a_question_mark_is_one_character_that_is_not_the_separator() {
    assert!(path("/a?c").matches("/abc"));
    assert!(!path("/a?c").matches("/ac") && !path("/a?c").matches("/a/c"));
}

#[test]
fn a_set_is_one_of_its_characters_and_never_the_separator() {
    assert!(path("/v[0-9a]").matches("/v7") && path("/v[0-9a]").matches("/va"));
    assert!(!path("/v[0-9a]").matches("/vb"));
    assert!(path("/v[!0-9]").matches("/vb") && !path("/v[^0-9]").matches("/v7"));
    assert!(!path("/v[!0-9]").matches("/v/"));
    assert!(path("/v[a-]").matches("/v-"));
}

#[test]
fn a_backslash_takes_the_next_character_as_it_is() {
    assert_eq!(path(r"/a\*b").literal(), Some("/a*b"));
    assert!(path(r"/a[\]]").matches("/a]"));
}

#[test]
fn a_malformed_pattern_is_refused_with_its_reason() {
    let bad = |p: &str| Glob::new(p, '/').expect_err(p);
    assert_eq!(bad("/a["), BadGlob::Open);
    assert_eq!(bad("/a[b"), BadGlob::Open);
    assert_eq!(bad("/a[]"), BadGlob::EmptySet);
    assert_eq!(bad("/a[z-a]"), BadGlob::Backwards);
    assert_eq!(bad("/a\\"), BadGlob::Escape);
    assert_eq!(bad("/a**"), BadGlob::PartialCrossing);
    assert_eq!(bad("/**a"), BadGlob::PartialCrossing);
    assert_eq!(bad("/***"), BadGlob::PartialCrossing);
    assert_eq!(bad(&format!("/*{}", "a".repeat(255))), BadGlob::Long);
}

#[test]
fn the_longest_pattern_still_matches() {
    let tail = "a".repeat(254);
    assert!(path(&format!("/*{tail}")).matches(&format!("/x{tail}")));
}

#[test]
fn a_pattern_made_to_backtrack_costs_no_more_than_length_times_length() {
    let pattern = path(&format!("/{}b", "*a".repeat(100)));
    assert!(!pattern.matches(&format!("/{}", "a".repeat(4000))));
}

/// The dialect as its definition reads, trying everything.
fn naive(pattern: &[char], text: &[char]) -> bool {
    let runs = |rest: &[char], across: bool| {
        (0..=text.len())
            .take_while(|n| across || !text[..*n].contains(&'/'))
            .any(|n| naive(rest, &text[n..]))
    };
    match pattern {
        [] => text.is_empty(),
        ['*', '*', rest @ ..] => runs(rest, true),
        ['*', rest @ ..] => runs(rest, false),
        ['?', rest @ ..] => matches!(text, [c, tail @ ..] if *c != '/' && naive(rest, tail)),
        [own, rest @ ..] => matches!(text, [c, tail @ ..] if c == own && naive(rest, tail)),
    }
}

proptest! {
    #[test]
    fn matching_agrees_with_the_definition(pattern in "[ab/*?]{0,8}", text in "[ab/]{0,8}") {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        if let Ok(glob) = Glob::new(&pattern, '/') {
            prop_assert_eq!(glob.matches(&text), naive(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn reading_any_text_as_a_pattern_never_panics(pattern in "\\PC{0,40}", text in "\\PC{0,40}") {
        if let Ok(glob) = Glob::new(&pattern, '.') {
            let _ = glob.matches(&text);
        }
    }

    #[test]
    fn an_escaped_text_matches_itself(text in "\\PC{0,20}") {
        let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
        prop_assert!(Glob::new(&escaped, '/').expect("a glob").matches(&text));
    }
}
