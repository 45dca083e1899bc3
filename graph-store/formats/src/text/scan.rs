//! A cursor over a piece of text that reads numbers without searching for the ends of lines first.

use super::LineError;

/// A cursor that reads fields and ends of lines.
#[derive(Clone)]
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

    /// Reads lines of the plain form of an edge: two whole numbers of at most 16 digits, and one byte between them that
    /// `separates`. Stops at the first line of another form, at the first that `take` refuses, and where fewer bytes are left
    /// than the longest such line has; the line at which it stops stays unread.
    #[inline]
    pub(crate) fn plain_pairs(&mut self, separates: impl Fn(u8) -> bool, mut take: impl FnMut(u64, u64) -> bool) {
        let (mut at, mut lines) = (self.at, 0);
        while let Some(text) = self.text.get(at..).and_then(<[u8]>::first_chunk) {
            let Some((source, separator)) = plain(text, 0) else { break };
            let Some((target, end)) = plain(text, separator + 1) else { break };
            if !separates(text[separator]) || text[end] != b'\n' || !take(source, target) {
                break;
            }
            at += end + 1;
            lines += 1;
        }
        self.at = at;
        self.line += lines;
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

    /// The current line from its beginning, without its newline.
    pub(crate) fn whole_line(&self) -> &'t [u8] {
        let before = self.text[..self.at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        self.text[before..].split(|&b| b == b'\n').next().unwrap_or_default()
    }

    /// The error of the current line; `what` gets an excerpt of it.
    #[cold]
    pub(crate) fn error(&self, what: impl FnOnce(&str) -> String, cure: &'static str) -> LineError {
        LineError { line: self.line, what: what(&excerpt(self.whole_line())), cure }
    }
}

/// Bytes of the longest plain line: two numbers of 16 digits, each with the separator or newline after it.
const PLAIN: usize = 34;

/// A number of at most 16 digits at `from`, and the index of the byte behind it; `None` without a digit.
#[inline(always)]
fn plain(text: &[u8; PLAIN], from: usize) -> Option<(u64, usize)> {
    let word =
        |at: usize| text.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes were taken")));
    let low = word(from)?;
    let count = digits(low);
    let value = eight_digits(low, count);
    match count {
        0 => None,
        8 => {
            let high = word(from + 8)?;
            let more = digits(high);
            Some((value * POWERS[more as usize] + eight_digits(high, more), from + 8 + more as usize))
        }
        _ => Some((value, from + count as usize)),
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

/// Whether a field is a number with a decimal comma, or with separators of thousands.
pub(crate) fn has_comma(field: &[u8]) -> bool {
    let (whole, part) = field.split_at(field.iter().position(|&b| b == b',').unwrap_or(field.len()));
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits(whole.strip_prefix(b"-").unwrap_or(whole))
        && part.get(1..).is_some_and(|part| part.split(|&b| b == b',').all(digits))
}

/// Cure for numbers with commas.
pub(crate) const NO_COMMAS: &str = "write numbers with decimal points and without separators of thousands";

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
