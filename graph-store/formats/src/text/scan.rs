//! A cursor over a piece of text that reads numbers without looking for the ends of lines first.

use super::LineError;

/// Reads fields and ends of lines.
pub(crate) struct Scan<'t> {
    text: &'t [u8],
    at: usize,
    /// Lines behind the cursor.
    line: u64,
}

impl<'t> Scan<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0, line: 0 }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Passes over blanks and tabs, and the carriage return of a Windows line.
    pub(crate) fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over what separates two fields: blanks, with at most one comma or semicolon among them.
    pub(crate) fn separator(&mut self) {
        self.blanks();
        if matches!(self.peek(), Some(b',' | b';')) {
            self.at += 1;
            self.blanks();
        }
    }

    pub(crate) fn at_line_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n'))
    }

    /// Passes over the rest of the line and its newline.
    pub(crate) fn next_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |i| i + 1);
        self.line += 1;
    }

    /// Reads a whole number that ends at a separator or the end of the line.
    pub(crate) fn whole(&mut self) -> Option<u64> {
        let start = self.at;
        let mut value = 0u64;
        while let Some(digit) = self.peek().map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
            // Nineteen digits cannot overflow.
            value = if self.at - start < 19 {
                value * 10 + u64::from(digit)
            } else {
                value.checked_mul(10)?.checked_add(u64::from(digit))?
            };
            self.at += 1;
        }
        (self.at > start && self.at_field_end()).then_some(value)
    }

    /// Reads a real number.
    pub(crate) fn real(&mut self) -> Option<f32> {
        let start = self.at;
        while !self.at_field_end() {
            self.at += 1;
        }
        std::str::from_utf8(&self.text[start..self.at]).ok()?.parse().ok()
    }

    fn at_field_end(&self) -> bool {
        matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b';'))
    }

    /// Says what is wrong with the current line.
    #[cold]
    pub(crate) fn error(&self, what: impl FnOnce(&str) -> String, cure: &'static str) -> LineError {
        let before = self.text[..self.at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let line = self.text[before..].split(|&b| b == b'\n').next().unwrap_or_default();
        LineError { line: self.line, what: what(&excerpt(line)), cure }
    }
}

/// At most forty characters of a line, fit to be printed.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(160)]);
    let mut short: String = text.trim().chars().take(40).flat_map(char::escape_debug).collect();
    if text.trim().chars().count() > 40 {
        short.push('…');
    }
    short
}
