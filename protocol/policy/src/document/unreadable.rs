//! Says why a text is no YAML that can be read, where, and what to write instead.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

use super::{MAX_ALIASES, MAX_DEPTH, MAX_NODES, Mark, SHORTEN};
use crate::problem::Complaint;

/// What the parser says of `text`, in the words of a policy's author, and its place.
pub(super) fn explain(error: &Error, text: &str) -> (Mark, Complaint) {
    let mark = error.location().map_or_else(Mark::default, Mark::from);
    if let Error::AliasError { error, .. } = error {
        return (mark, explain(error, text).1);
    }
    if let Some(complaint) = known(error) {
        return (mark, complaint);
    }
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    let bare = first.split(" at line ").next().unwrap_or(first);
    let message = format!("not readable as YAML: {bare}");
    if bare.contains("tab") {
        let fix = "indent with spaces";
        return (indenting_tab(text, mark), Complaint::new(message, fix));
    }
    let fix = at(text, mark)
        .and_then(by_character)
        .or_else(|| by_words(bare))
        .unwrap_or("put text with special characters in quotes, and begin the keys of one mapping in one column");
    (mark, Complaint::new(message, fix))
}

/// What the author can be told better than by the parser.
fn known(error: &Error) -> Option<Complaint> {
    if let Error::Budget { breach, .. } = error {
        return Some(exceeded(breach));
    }
    if let Error::AliasReplayLimitExceeded { .. } = error {
        return Some(too_many_values());
    }
    if let Error::MultipleDocuments { .. } = error {
        let fix = "keep one, without `---` after it";
        return Some(Complaint::new("there is more than one document", fix));
    }
    if let Error::MergeKeyNotAllowed { .. } = error {
        let fix = "write out what `<<` stands for";
        return Some(Complaint::new("merge keys are not supported", fix));
    }
    if let Error::NullIntoString { .. } = error {
        let fix = "give it a name or remove it";
        return Some(Complaint::new("a key is empty", fix));
    }
    if let Error::RecursiveReferencesRequireWeakTypes { .. } = error {
        let message = "an alias stands inside of what it stands for";
        return Some(Complaint::new(message, "write it out"));
    }
    None
}

fn exceeded(breach: &BudgetBreach) -> Complaint {
    if let BudgetBreach::Depth { .. } = breach {
        let message = format!("policy has more than {MAX_DEPTH} values in each other");
        return Complaint::new(message, "remove brackets: a rule needs no more than seven");
    }
    if let BudgetBreach::Aliases { .. }
    | BudgetBreach::Anchors { .. }
    | BudgetBreach::AliasAnchorRatio { .. } = breach
    {
        let message =
            format!("policy has more than {MAX_ALIASES} aliases, or more than 10 for each anchor");
        return Complaint::new(message, "write out what they stand for");
    }
    too_many_values()
}

fn too_many_values() -> Complaint {
    Complaint::new(format!("policy has more than {MAX_NODES} values"), SHORTEN)
}

/// What helps where no plain text can begin with this character.
fn by_character(here: char) -> Option<&'static str> {
    match here {
        '*' => Some("put text that begins with `*` in quotes: `\"*.example.com\"`"),
        '%' => Some("put text that begins with `%` in quotes, and remove lines that begin with it"),
        '&' | '@' | '`' | '|' | '>' => Some("put text that begins with this character in quotes"),
        '!' => Some("remove the tag, or put text that begins with `!` in quotes"),
        c if c.is_control() && c != '\n' => Some("remove the character"),
        _ => None,
    }
}

/// What helps, by the words in which the parser tells its kinds of errors apart.
fn by_words(bare: &str) -> Option<&'static str> {
    let advice = [
        (
            "unclosed bracket",
            "close it, or put text with a bracket in quotes",
        ),
        (
            "misplaced bracket",
            "remove it, or put text with a bracket in quotes",
        ),
        (
            "unclosed quote",
            "close it with the quote that it begins with",
        ),
        ("after double-quoted", "put the whole text in quotes"),
        ("after single-quoted", "put the whole text in quotes"),
        (
            "quoted scalar",
            "write `\\\\` for a backslash, or use single quotes, in which it stands for itself",
        ),
        ("anchor", "give the anchor a name, and before its aliases"),
        ("tag", "remove the tag: no value of a policy needs one"),
        ("handle", "remove the tag: no value of a policy needs one"),
        ("invalid", "remove the tag: no value of a policy needs one"),
        ("string scalar", "write one plain text as the key"),
        ("expected ':'", "write `key: value`"),
        ("flow", "separate entries with `,` and close the bracket"),
        (
            "mapping",
            "begin the keys of one mapping in one column, and put text with `: ` in quotes",
        ),
    ];
    let fitting = advice.into_iter().find(|(words, _)| bare.contains(words));
    fitting.map(|(_, fix)| fix)
}

/// The first tab that indents from `mark` on: the parser may name the end of the line before.
fn indenting_tab(text: &str, mark: Mark) -> Mark {
    let from = mark.line.saturating_sub(1);
    let found = (from..)
        .zip(text.lines().skip(from as usize))
        .find_map(|(number, line)| {
            let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
            let tab = line[..blank].find('\t')?;
            Some(Mark {
                line: number + 1,
                column: u32::try_from(tab).unwrap_or(u32::MAX).saturating_add(1),
            })
        });
    found.unwrap_or(mark)
}

/// The character at `mark`.
fn at(text: &str, mark: Mark) -> Option<char> {
    let line = text.lines().nth(mark.line.checked_sub(1)? as usize)?;
    line.chars().nth(mark.column.checked_sub(1)? as usize)
}
