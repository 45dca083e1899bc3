//! What a person sees: results on stdout, progress and remarks on stderr.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use morphgl_formats::Progress;

use super::Outcome;

/// How much is shown, and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    pub(crate) quiet: bool,
    pub(crate) json: bool,
}

impl Show {
    /// Prints a command's outcome.
    pub(crate) fn result(self, outcome: &Outcome) -> ExitCode {
        let text = if self.json { format!("{:#}\n", outcome.json) } else { outcome.text.clone() };
        let mut stdout = std::io::stdout().lock();
        let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        if let Some(error) = &outcome.unwritten {
            self.error(error);
        }
        match printed {
            Ok(()) if outcome.failed || outcome.unwritten.is_some() => ExitCode::FAILURE,
            Ok(()) => ExitCode::SUCCESS,
            // The reader of a pipe left, as `head` does: nothing is wrong.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(e) => {
                self.error(&anyhow::anyhow!("stdout: {e}"));
                ExitCode::FAILURE
            }
        }
    }

    /// Prints an error on one line.
    pub(crate) fn error(self, error: &anyhow::Error) {
        let _ = writeln!(std::io::stderr(), "error: {}", one_line(error));
    }

    /// Prints a remark on stderr.
    pub(crate) fn say(self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Prints a line of a result that grows while the command runs; nothing where the result is JSON.
    pub(crate) fn line(self, text: impl Display) {
        if !self.json {
            // A reader that left is noticed when the result is printed.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    }

    /// A progress bar on stderr; hidden when quiet or when stderr is not a terminal.
    pub(crate) fn bar(self, template: &str, total: u64) -> ProgressBar {
        if self.quiet || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template(template).expect("the template is a constant of ours");
        bar.set_style(style.progress_chars("━━╌"));
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// An error and its causes on one line; context that repeats what its cause says is left out.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string().replace('\n', " ");
        // An error of ours says in its own words what the system's says.
        let said = cause.split(" (os error").next().unwrap_or_default().to_lowercase();
        if !text.to_lowercase().contains(&said) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

/// Shows the stages of an import or a generation as bars, one after the other.
#[derive(Debug)]
pub(crate) struct Stages {
    show: Show,
    bar: Mutex<ProgressBar>,
}

const KNOWN: &str = "{msg:22} {bar:40} {percent:>3}%  {human_pos}/{human_len}  {per_sec}  {eta}";
const UNKNOWN: &str = "{msg:22} {spinner} {human_pos}  {per_sec}";

impl Stages {
    pub(crate) fn new(show: Show) -> Self {
        Self { show, bar: Mutex::new(ProgressBar::hidden()) }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends the last stage.
    pub(crate) fn finish(&self) {
        self.bar().finish_and_clear();
    }
}

impl Progress for Stages {
    fn stage(&self, name: &str, total: Option<u64>) {
        let mut bar = self.bar();
        bar.finish_and_clear();
        *bar = self.show.bar(if total.is_some() { KNOWN } else { UNKNOWN }, total.unwrap_or(0));
        bar.set_message(name.to_string());
    }

    fn advance(&self, n: u64) {
        self.bar().inc(n);
    }
}

/// A table with aligned columns; the first is left-aligned, the others right-aligned where `numbers`.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], left: &[usize]) -> String {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).chain([header[c].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(c, (cell, &w))| if left.contains(&c) { format!("{cell:<w$}") } else { format!("{cell:>w$}") });
        let text = padded.collect::<Vec<_>>().join("  ");
        format!("{}\n", text.trim_end())
    };
    let mut text = line(header.to_vec());
    rows.iter().for_each(|row| text += &line(row.iter().map(String::as_str).collect()));
    text
}

/// Bytes in the unit that suits them.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = n as f64;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A whole number with its thousands apart.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|c| std::str::from_utf8(c).expect("digits are ASCII")).collect();
    groups.join(",")
}
