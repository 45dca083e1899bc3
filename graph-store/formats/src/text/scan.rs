//! A cursor over a piece of text that reads numbers without searching for the ends of lines first.

use super::LineError;

/// A cursor that reads fields and ends of lines.
pub(crate) struct Scan<'t> {
    text: &'t [u8],
    at: usize,
    /// Lines before the cursor.
    line: u64,
}

impl<'t> Scan<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0, line: 0 }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Lines passed.
    pub(crate) fn lines(&self) -> u64 {
        self.line
    }

    /// The rest of the current line, without its newline; it stays unread.
    pub(crate) fn line(&self) -> &'t [u8] {
        self.text[self.at..].split(|&b| b == b'\n').next().unwrap_or_default()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Skips blanks and tabs, and the carriage return of a Windows line.
    pub(crate) fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips the separator of two fields: blanks, with at most one comma or semicolon among them.
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

    /// Skips the rest of the line and its newline.
    pub(crate) fn next_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |i| i + 1);
        self.line += 1;
    }

    /// Reads a whole number that ends at a separator or the end of the line.
    pub(crate) fn whole(&mut self) -> Option<u64> {
        let start = self.at;
        let mut value = 0u64;
        // Eight bytes at a time while they are all digits.
        while let Some(word) = self.word() {
            let digits = digits(word);
            if self.at - start + digits as usize > 19 {
                break;
            }
            value = value * POWERS[digits as usize] + eight_digits(word, digits);
            self.at += digits as usize;
            if digits < 8 {
                return (self.at > start && self.at_field_end()).then_some(value);
            }
        }
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

    /// The next eight bytes, the first one lowest.
    fn word(&self) -> Option<u64> {
        self.text.get(self.at..self.at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes were taken")))
    }

    /// Reads a line of two whole numbers of at most 16 digits with one byte between them that `separates`: the plain form of
    /// an edge. Any other line stays unread.
    #[inline]
    pub(crate) fn plain_pair(&mut self, separates: impl Fn(u8) -> bool) -> Option<(u64, u64)> {
        let start = self.at;
        let pair = self.plain(separates).and_then(|source| Some((source, self.plain(|end| end == b'\n')?)));
        match pair {
            Some(_) => self.line += 1,
            None => self.at = start,
        }
        pair
    }

    /// Returns to the beginning of the previous line.
    #[cold]
    pub(crate) fn line_before(&mut self) {
        self.at = self.text[..self.at.saturating_sub(1)].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        self.line -= 1;
    }

    /// A number of at most 16 digits and one byte behind it that `ends` it.
    #[inline]
    fn plain(&mut self, ends: impl Fn(u8) -> bool) -> Option<u64> {
        let word = self.word()?;
        let count = digits(word);
        let mut value = eight_digits(word, count);
        self.at += count as usize;
        if count == 8 {
            let word = self.word()?;
            let count = digits(word);
            value = value * POWERS[count as usize] + eight_digits(word, count);
            self.at += count as usize;
        } else if count == 0 {
            return None;
        }
        let end = self.peek()?;
        self.at += 1;
        ends(end).then_some(value)
    }

    /// Reads a field up to its separator.
    pub(crate) fn field(&mut self) -> &'t [u8] {
        let start = self.at;
        while !self.at_field_end() {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// A field that is a whole number.
    pub(crate) fn whole_of(field: &[u8]) -> Option<u64> {
        let mut scan = Scan::new(field);
        let value = scan.whole()?;
        scan.is_at_end().then_some(value)
    }

    fn at_field_end(&self) -> bool {
        matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b';'))
    }

    /// The error of the current line; `what` gets an excerpt of it.
    #[cold]
    pub(crate) fn error(&self, what: impl FnOnce(&str) -> String, cure: &'static str) -> LineError {
        let before = self.text[..self.at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let line = self.text[before..].split(|&b| b == b'\n').next().unwrap_or_default();
        LineError { line: self.line, what: what(&excerpt(line)), cure }
    }
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Number of leading digits among eight bytes.
#[inline]
fn digits(word: u64) -> u32 {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The high bit of a byte is set when the byte is below '0', above '9' or no ASCII. The subtraction borrows from a byte
    // only after one that is below '0', which ends the digits anyway.
    let below = word.wrapping_sub(0x3030_3030_3030_3030);
    let above = (word & !HIGH).wrapping_add(0x4646_4646_4646_4646);
    ((below | above | word) & HIGH).trailing_zeros() / 8
}

/// The value of the first `count` of eight digits: they are combined to pairs, then fours, then all eight.
#[inline]
fn eight_digits(word: u64, count: u32) -> u64 {
    if count == 0 {
        return 0;
    }
    // The missing digits become leading zeros.
    let digits = (word << (64 - 8 * count)) & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// The value of a field that is a real number, correctly rounded.
#[inline]
pub(crate) fn real(field: &[u8]) -> Option<f32> {
    fast_float2::parse(field).ok()
}

/// At most forty characters of a line, escaped for a message.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(160)]);
    let mut short: String = text.trim().chars().take(40).flat_map(char::escape_debug).collect();
    if text.trim().chars().count() > 40 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
