//! Output: results on stdout, progress and remarks on stderr.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use morphgl_formats::Progress;
use morphgl_platform::limit_cure;

use super::Outcome;
use crate::ranks::Ranks;
pub(crate) use crate::words::{bytes, one_line, plural};

/// Amount and form of the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    pub(crate) quiet: bool,
    pub(crate) json: bool,
}

impl Show {
    /// Prints a command's outcome, at rank 0 of a run of several; returns the exit status.
    pub(super) fn result(self, outcome: &Outcome, ranks: Option<&Ranks>) -> u8 {
        let text = match self.json {
            _ if ranks.is_some_and(|ranks| !ranks.is_first()) => String::new(),
            true => printable(&format!("{:#}\n", outcome.json), escape_json).into_owned(),
            false => printable(&outcome.text, char::escape_default).into_owned(),
        };
        let mut stdout = std::io::stdout().lock();
        let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        if let Some(error) = &outcome.unwritten {
            self.error(error, ranks);
        }
        match printed {
            Ok(()) if outcome.failed || outcome.unwritten.is_some() => 1,
            Ok(()) => 0,
            // The reader closed the pipe, as `head` does: no failure.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => 0,
            Err(e) => {
                self.error(&anyhow::anyhow!("stdout: {e}"), ranks);
                1
            }
        }
    }

    /// Prints an error on one line, with the rank in a run of several.
    pub(crate) fn error(self, error: &anyhow::Error, ranks: Option<&Ranks>) {
        let rank = ranks.map(|ranks| format!("{}: ", ranks.own_name())).unwrap_or_default();
        // In one piece: other ranks print into the same terminal.
        let mut line = printable(&format!("{rank}error: {}", one_line(error)), char::escape_default).into_owned();
        let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
        if let Some(cure) = io.and_then(limit_cure).filter(|cure| !line.contains(cure)) {
            line.extend(["; ", cure]);
        }
        line.push('\n');
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Prints a remark on stderr.
    pub(crate) fn say(self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{}", printable(&text.to_string(), char::escape_default));
        }
    }

    /// Prints a line of a result that grows while the command runs; nothing where the result is JSON.
    pub(crate) fn line(self, text: impl Display) {
        if !self.json {
            // A closed pipe is handled when the result is printed.
            let _ = writeln!(std::io::stdout(), "{}", printable(&text.to_string(), char::escape_default));
        }
    }

    /// A progress bar on stderr; hidden when quiet or when stderr is not a terminal.
    pub(crate) fn bar(self, template: &str, total: u64) -> ProgressBar {
        if self.quiet || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template(template).expect("a constant template");
        bar.set_style(style.progress_chars("━━╌"));
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// A text with control characters but newline and tab escaped: names from outside could set colours, titles or text of a terminal.
fn printable<E: Iterator<Item = char>>(text: &str, escape: impl Fn(char) -> E) -> Cow<'_, str> {
    let is_raw = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_raw) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    text.chars().for_each(|c| if is_raw(c) { escaped.extend(escape(c)) } else { escaped.push(c) });
    escaped.into()
}

/// A control character in a JSON string, where `serde_json` leaves those from U+007F on as they are.
fn escape_json(c: char) -> std::vec::IntoIter<char> {
    format!("\\u{:04x}", u32::from(c)).chars().collect::<Vec<_>>().into_iter()
}

/// Progress bars of the stages of an import or a generation, one after the other.
#[derive(Debug)]
pub(crate) struct Stages {
    show: Show,
    bar: Mutex<ProgressBar>,
}

const WITH_TOTAL: &str = "{msg:22} {bar:40} {percent:>3}%  {human_pos}/{human_len}  {per_sec}  {eta}";
const WITHOUT_TOTAL: &str = "{msg:22} {spinner} {human_pos}  {per_sec}";

impl Stages {
    pub(crate) fn new(show: Show) -> Self {
        Self { show, bar: Mutex::new(ProgressBar::hidden()) }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the progress of a stage; begins it where it is not the current one.
    pub(crate) fn set(&self, name: &str, done: u64, total: u64) {
        let is_new = self.bar().message() != name;
        if is_new {
            self.stage(name, Some(total));
        }
        self.bar().set_position(done);
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
        *bar = self.show.bar(if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL }, total.unwrap_or(0));
        bar.set_message(name.to_string());
    }

    fn advance(&self, n: u64) {
        self.bar().inc(n);
    }
}

/// A table with aligned columns, those of the indices `left` to the left, the others to the right.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], left: &[usize]) -> String {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).chain([header[c].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let pad = |(c, (cell, &w)): (usize, (&&str, &usize))| match left.contains(&c) {
            true => format!("{cell:<w$}"),
            false => format!("{cell:>w$}"),
        };
        let text: Vec<String> = cells.iter().zip(&widths).enumerate().map(pad).collect();
        format!("{}\n", text.join("  ").trim_end())
    };
    let mut text = line(header.to_vec());
    rows.iter().for_each(|row| text += &line(row.iter().map(String::as_str).collect()));
    text
}
