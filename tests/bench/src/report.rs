//! One line per measurement: JSON for machines, a table for people.

use std::{fs, io::Write as _, path::PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

/// One measurement: ours beside a reference of the same run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// What was measured.
    pub name: String,
    /// Our figure.
    pub ours: f64,
    /// The reference's figure in the same run, or the stated bound.
    pub reference: f64,
    /// What the reference is.
    pub against: String,
    /// Unit of both figures.
    pub unit: String,
    /// How many times better (or, for bounds, the share of the bound that is used).
    pub ratio: f64,
    /// The bar, as a sentence.
    pub bar: String,
    /// Whether the bar was reached; `None` where there is no bar.
    pub met: Option<bool>,
}

/// How far the figures of one side lie apart.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    least: f64,
    most: f64,
    runs: usize,
}

impl Spread {
    fn of(figures: &[f64]) -> Self {
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { least, most, runs: figures.len() }
    }

    fn text(self) -> String {
        format!("{}…{} of {}", figure(self.least), figure(self.most), self.runs)
    }
}

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

impl Better {
    /// How many times better ours is.
    pub(crate) fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::Less => theirs / ours,
            Self::More => ours / theirs,
        }
    }
}

/// The same thing done by us and by the reference in turns, several times.
pub(crate) struct Pairs {
    /// What was measured.
    pub name: String,
    /// Our figures.
    pub ours: Vec<f64>,
    /// The reference's.
    pub reference: Vec<f64>,
    /// What the reference is.
    pub against: String,
    /// Unit of all figures.
    pub unit: String,
    /// Which figures are the better ones.
    pub better: Better,
    /// The bar, as a sentence.
    pub bar: String,
}

/// A line as it is written down, with the spread where the figures are medians.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    line: &'a Line,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<[Spread; 2]>,
}

/// Collects lines, and keeps each on disk as soon as it is known.
pub(crate) struct Report {
    lines: Vec<Line>,
    file: fs::File,
}

impl Report {
    /// Begins `target/bench/results.jsonl` anew.
    pub(crate) fn begin() -> Result<Self> {
        let path = results_path()?;
        fs::create_dir_all(path.parent().context("folder of the results")?)?;
        Ok(Self { lines: Vec::new(), file: fs::File::create(path)? })
    }

    /// Adds what was measured in turns: the medians, and how far the figures lie apart. `met` is asked with our figures and the
    /// ratio of the medians.
    pub(crate) fn compare(&mut self, pairs: Pairs, met: impl FnOnce(&[f64], f64) -> bool) -> Result<()> {
        self.turns(pairs, |ours, ratio| Some(met(ours, ratio)))
    }

    /// The same where there is no bar.
    pub(crate) fn show(&mut self, pairs: Pairs) -> Result<()> {
        self.turns(Pairs { bar: "-".to_owned(), ..pairs }, |_, _| None)
    }

    fn turns(&mut self, pairs: Pairs, met: impl FnOnce(&[f64], f64) -> Option<bool>) -> Result<()> {
        let Pairs { name, mut ours, mut reference, against, unit, better, bar } = pairs;
        let spread = [Spread::of(&ours), Spread::of(&reference)];
        let (middle, theirs) = (median(&mut ours), median(&mut reference));
        let ratio = better.ratio(middle, theirs);
        let name = format!("{name}, median ({}; reference {})", spread[0].text(), spread[1].text());
        let met = met(&ours, ratio);
        let line = Line { name, ours: middle, reference: theirs, against, unit, ratio, bar, met };
        self.tell(line, Some(spread))
    }

    /// Adds one measurement.
    pub(crate) fn add(&mut self, line: Line) -> Result<()> {
        self.tell(line, None)
    }

    fn tell(&mut self, line: Line, spread: Option<[Spread; 2]>) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&Told { line: &line, spread })?)?;
        eprintln!(
            "    {}: {} {} (against {} {}), ratio {:.2}",
            line.name,
            figure(line.ours),
            line.unit,
            figure(line.reference),
            line.against,
            line.ratio
        );
        self.lines.push(line);
        Ok(())
    }

    /// Prints the table; returns how many bars were missed.
    pub(crate) fn table(&self) -> (String, usize) {
        let width = self.lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for line in &self.lines {
            let verdict = match line.met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "-",
            };
            text.push_str(&format!(
                "{:width$}  {:>12} {:<10} {:>12} {:<34} {:>8.2}  {:<7} {}\n",
                line.name,
                figure(line.ours),
                line.unit,
                figure(line.reference),
                line.against,
                line.ratio,
                verdict,
                line.bar
            ));
        }
        (text, self.lines.iter().filter(|line| line.met == Some(false)).count())
    }
}

fn figure(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// `target/bench/results.jsonl`, beside the running binary's profile folder.
fn results_path() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let target = this.ancestors().nth(2).context("target folder")?;
    Ok(target.join("bench/results.jsonl"))
}

/// Median of some figures.
pub(crate) fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value below which `share` (0…1) of the figures lie.
pub(crate) fn percentile(figures: &mut [f64], share: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a sample"
    )]
    let index = ((figures.len() as f64) * share) as usize;
    figures.get(index.min(figures.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
