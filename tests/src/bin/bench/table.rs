//! The table: rows as they come, printed once at the end.

/// Rows that were asked for.
pub(crate) struct Table {
    wanted: Vec<String>,
    few: bool,
    rows: Vec<String>,
}

impl Table {
    pub(crate) fn new(mut wanted: Vec<String>) -> Self {
        let all = wanted.len();
        wanted.retain(|word| word != "--few");
        Self {
            few: wanted.len() < all,
            wanted,
            rows: Vec::new(),
        }
    }

    /// Whether little is to be done.
    pub(crate) fn is_few(&self) -> bool {
        self.few
    }

    /// Whether a group of rows was asked for.
    pub(crate) fn wants(&self, group: &str) -> bool {
        let wanted =
            self.wanted.is_empty() || self.wanted.iter().any(|it| group.starts_with(&**it));
        if wanted {
            say(&mut std::io::stderr(), &format!("measuring: {group}\n"));
        }
        wanted
    }

    /// One figure beside the native one. The ratio is inside divided by native.
    pub(crate) fn beside(&mut self, what: &str, unit: &str, native: f64, inside: f64) {
        let ratio = if native > 0.0 {
            format!("{:.2}", inside / native)
        } else {
            "–".to_owned()
        };
        self.rows.push(format!(
            "| {what} | {unit} | {native:.1} | {inside:.1} | {ratio} |"
        ));
    }

    /// One figure that has no native counterpart.
    pub(crate) fn alone(&mut self, what: &str, unit: &str, figure: f64) {
        self.rows
            .push(format!("| {what} | {unit} | – | {figure:.1} | – |"));
    }

    pub(crate) fn print(&self) {
        let mut out = std::io::stdout();
        say(
            &mut out,
            "| what | unit | native | Holdfast | ratio |\n|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            say(&mut out, &format!("{row}\n"));
        }
    }
}

fn say(out: &mut impl std::io::Write, text: &str) {
    // A reader that left is told by the exit of the next write's process, not by a panic here.
    drop(out.write_all(text.as_bytes()));
}

/// The middle of some figures.
pub(crate) fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The figure that one in a hundred exceeds.
pub(crate) fn ninety_ninth(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let at = figures.len().saturating_sub(1 + figures.len() / 100);
    figures.get(at).copied().unwrap_or(f64::NAN)
}
