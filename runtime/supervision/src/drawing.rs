//! Trees as they are drawn in module heads.

use std::time::Duration;

use crate::{Intensity, Node, Restart, Strategy, Supervisor};

/// Draws a tree: a line for each of its members, indented by depth, with what it is beside it.
///
/// ```
/// use holdfast_supervision::{Child, Strategy, Supervisor, draw};
///
/// let tree = Supervisor::new("keeper", Strategy::RestForOne)
///     .child(Child::permanent("link"))
///     .supervisor(Supervisor::dynamic("sessions", 64));
/// assert_eq!(draw(&tree), "\
/// keeper        RestForOne, 3 in 60s
///   link        Permanent
///   sessions    Dynamic, at most 64, 3 in 60s");
/// ```
pub fn draw(tree: &Supervisor) -> String {
    let mut lines = Vec::new();
    outline(tree, 0, &mut lines);
    let column = lines.iter().map(|(name, _)| name.chars().count()).max();
    let column = column.unwrap_or(0) + 4;
    lines
        .iter()
        .map(|(name, what)| format!("{name:column$}{what}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Compares a tree with its drawing in the head of a module.
///
/// `module` is the source text, `include_str!("tree.rs")` in the module that describes the tree itself. The drawing
/// is the fenced `text` block of its `//!` lines that begins with the name of the root.
///
/// # Panics
///
/// When the head has no such drawing, or a different one; the message holds the one to put there.
#[track_caller]
pub fn assert_drawn(tree: &Supervisor, module: &str) {
    let right = draw(tree);
    let paste: Vec<String> = right.lines().map(|line| format!("//! {line}")).collect();
    let paste = paste.join("\n");
    let found = drawings(module)
        .into_iter()
        .find(|drawing| drawing.split_whitespace().next() == Some(&tree.id));
    assert!(
        found.is_some(),
        "no drawing of `{}` in the module head; it is:\n{paste}",
        tree.id
    );
    assert!(
        found.as_deref() == Some(&right),
        "the drawing of `{}` in the module head is out of date; it is:\n{paste}",
        tree.id
    );
}

fn outline(tree: &Supervisor, depth: usize, lines: &mut Vec<(String, String)>) {
    let name = |id: &str, depth: usize| format!("{:indent$}{id}", "", indent = 2 * depth);
    lines.push((
        name(&tree.id, depth),
        format!("{}, {}", strategy(tree.strategy), intensity(tree.intensity)),
    ));
    for node in &tree.children {
        match node {
            Node::Child(child) => {
                lines.push((
                    name(&child.id, depth + 1),
                    restart(child.restart).to_owned(),
                ));
            }
            Node::Supervisor(supervisor) => outline(supervisor, depth + 1, lines),
        }
    }
}

fn strategy(strategy: Strategy) -> String {
    let word = strategy.as_str();
    match strategy {
        Strategy::OneForOne | Strategy::OneForAll | Strategy::RestForOne => word.to_owned(),
        Strategy::Dynamic { most } => format!("{word}, at most {most}"),
    }
}

fn restart(restart: Restart) -> &'static str {
    match restart {
        Restart::Permanent => "Permanent",
        Restart::Transient => "Transient",
        Restart::Temporary => "Temporary",
    }
}

fn intensity(intensity: Intensity) -> String {
    match intensity {
        Intensity::AtMost { restarts, within } => format!("{restarts} in {}", span(within)),
        Intensity::Unlimited => "unlimited".to_owned(),
    }
}

fn span(span: Duration) -> String {
    if span.subsec_nanos() == 0 {
        format!("{}s", span.as_secs())
    } else {
        format!("{}ms", span.as_millis())
    }
}

/// The fenced `text` blocks of a module's `//!` lines.
fn drawings(module: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in module.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        match open.take() {
            None if line == "```text" => open = Some(Vec::new()),
            None => {}
            Some(block) if line == "```" => found.push(block.join("\n")),
            Some(mut block) => {
                block.push(line);
                open = Some(block);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Child;

    const HEAD: &str = "\
//! Who watches whom in one keeper.
//!
//! ```text
//! something else
//! ```
//!
//! ```text
//! keeper        RestForOne, 3 in 60s
//!   link        Permanent
//!   rulebook    Permanent
//!   outside     OneForOne, 20 in 60s
//!     uplink    Permanent
//! ```

use nothing;
";

    fn keeper() -> Supervisor {
        Supervisor::new("keeper", Strategy::RestForOne)
            .child(Child::permanent("link"))
            .child(Child::permanent("rulebook"))
            .supervisor(
                Supervisor::new("outside", Strategy::OneForOne)
                    .intensity(20, Duration::from_mins(1))
                    .child(Child::permanent("uplink")),
            )
    }

    #[test]
    fn a_drawing_that_is_right_passes() {
        assert_drawn(&keeper(), HEAD);
    }

    #[test]
    #[should_panic(expected = "out of date")]
    fn a_drawing_that_went_stale_is_refused() {
        assert_drawn(&keeper().child(Child::temporary("new")), HEAD);
    }

    #[test]
    #[should_panic(expected = "no drawing of `boundary`")]
    fn a_head_without_the_drawing_is_refused() {
        assert_drawn(&Supervisor::new("boundary", Strategy::OneForAll), HEAD);
    }
}
