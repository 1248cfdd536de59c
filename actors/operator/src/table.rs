//! Tables that fit: no row is ever wrapped, and what is too long ends with an ellipsis.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use holdfast_kernel::terminal;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::config::Config;
use crate::output::is_obeyed;

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(headings: impl Into<Vec<&'static str>>) -> Self {
        Self {
            headings: headings.into(),
            rows: Vec::new(),
        }
    }

    /// One more row, a cell for each heading.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells: Vec<String> = cells.into();
        assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows
            .push(cells.iter().map(|cell| cut(&one_line(cell))).collect());
    }

    /// The table in at most `width` columns; `None` for as many as it takes.
    ///
    /// The widest columns give way first, and only as far as the heading.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let mut columns: Vec<usize> = (0..self.headings.len())
            .map(|place| {
                let cells = self.rows.iter().map(|row| row[place].width());
                cells
                    .chain([self.headings[place].width()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        if let Some(width) = width {
            self.squeeze(&mut columns, width);
        }
        let mut text = String::new();
        let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (cell, column) in row.iter().zip(&columns) {
                let cell = fitting(cell, *column);
                let padding = column - cell.width() + GAP;
                line.push_str(&cell);
                line.extend(std::iter::repeat_n(' ', padding));
            }
            let line = fitting(line.trim_end(), width.unwrap_or(usize::MAX));
            let _infallible = writeln!(text, "{line}");
        }
        text
    }

    fn squeeze(&self, columns: &mut [usize], width: usize) {
        let gaps = GAP * columns.len().saturating_sub(1);
        while columns.iter().sum::<usize>() + gaps > width {
            let shrinkable = |(place, column): &(usize, &usize)| {
                **column > self.headings[*place].width().max(NARROWEST)
            };
            let widest = columns
                .iter()
                .enumerate()
                .filter(shrinkable)
                .max_by_key(|(_, column)| **column)
                .map(|(place, _)| place);
            match widest {
                Some(place) => columns[place] -= 1,
                None => return,
            }
        }
    }
}

/// The width that output has to fit: `COLUMNS`, or that of the terminal; `None` when nobody looks at it.
pub(crate) fn width(config: &Config) -> Option<usize> {
    let given = config.variable("COLUMNS");
    let given = given.and_then(|text| text.to_str()?.parse().ok());
    let given = given.filter(|columns| *columns > 0);
    given.or_else(|| {
        let out = io::stdout();
        let size = out
            .is_terminal()
            .then(|| terminal::size(&out).unwrap_or_default());
        size.map(|size| size.columns.into())
    })
}

/// A text in at most `width` columns.
pub(crate) fn fitting(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut fitting = String::new();
    let mut left = width.saturating_sub(1);
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        fitting.push(character);
    }
    if width > 0 {
        fitting.push('…');
    }
    fitting
}

/// What a cell may hold: no line ends, nothing that moves the cursor.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(is_obeyed, " ")
}

/// A cell that is bounded in any case: characters that take no column count too.
fn cut(text: &str) -> String {
    let bounded: String = text.chars().take(WIDEST + 1).collect();
    fitting(&bounded, WIDEST)
}

const GAP: usize = 2;

/// No column gets narrower than this for the sake of others.
const NARROWEST: usize = 4;

/// No cell gets wider than this, however much room there is: whoever wants all of it asks for the document.
const WIDEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["NAME", "REASON", "AGE"]);
        table.row([
            "qa".into(),
            "DescriptorPressure: 3 of\n1024 are free".into(),
            "5m".into(),
        ]);
        table.row([
            "a-sandbox-with-a-long-name".into(),
            String::new(),
            "3h".into(),
        ]);
        table
    }

    #[test]
    fn with_room_nothing_is_cut() {
        assert_eq!(
            table().text(None),
            "NAME                        REASON                                  AGE\n\
             qa                          DescriptorPressure: 3 of 1024 are free  5m\n\
             a-sandbox-with-a-long-name                                          3h\n"
        );
    }

    #[test]
    fn every_row_fits_into_every_width() {
        for width in 1..90 {
            for line in table().text(Some(width)).lines() {
                assert!(line.width() <= width, "{line:?} is wider than {width}");
            }
        }
        assert_eq!(
            table().text(Some(40)),
            "NAME               REASON            AGE\n\
             qa                 DescriptorPress…  5m\n\
             a-sandbox-with-a…                    3h\n"
        );
    }

    #[test]
    fn wide_characters_count_as_two() {
        assert_eq!(fitting("漢字漢字", 5), "漢字…");
        assert_eq!(fitting("abc", 0), "");
        assert_eq!(one_line("a\x1b[31mb\tc\u{202e}d"), "a [31mb c d");
    }

    #[test]
    fn a_cell_of_any_length_is_cut() {
        let mut table = Table::new(["COMMAND", "AGE"]);
        table.row(["x".repeat(200_000), "1s".into()]);
        table.row(["y".into(), "2s".into()]);

        for line in table.text(None).lines() {
            assert!(line.width() <= WIDEST + GAP + 3, "{}", line.len());
        }
        assert!(table.text(Some(60)).lines().all(|line| line.width() <= 60));
    }
}
