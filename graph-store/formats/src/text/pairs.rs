//! Lines of two node ids and, perhaps, a weight.

use morphgl_graph_store::MAX_NODES;
use morphgl_ingest::Edges;

use super::{
    EdgeColumns, Layout, LineError, NEIGHBORS, NO_COMMAS, Scan, Separator, TEXT_IDS, attribute, fields, has_comma,
    real, with_attributes,
};

/// The form of the lines, and of their edges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairsFormat {
    pub(crate) layout: Layout,
    /// Whether the weight's column is read; otherwise it is skipped.
    pub(crate) weighted: bool,
    /// Whether a line may have any number of fields beside those that are read; otherwise as many as the first one.
    pub(crate) any_count: bool,
    pub(crate) ids: IdFormat,
}

/// From the ids of a list to numbers of nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdFormat {
    /// The id of the first node: subtracted from every id.
    pub(crate) first: u64,
    /// Exclusive limits of the numbers of sources and of targets, where the number of nodes is known.
    pub(crate) limits: Option<[u64; 2]>,
    /// Added to the numbers of targets, where these are nodes of another kind than sources.
    pub(crate) offset: u64,
}

impl IdFormat {
    /// Ids as they are.
    pub(crate) const ALL: Self = Self { first: 0, limits: None, offset: 0 };

    /// What is added to the ids of a column, of sources or of targets.
    fn offset_of(&self, column: usize) -> u64 {
        if column == SOURCE { 0 } else { self.offset }
    }

    /// The number of the node with id `read` in a column; `None` where it is outside of the limits.
    fn number(&self, read: u64, column: usize) -> Option<u64> {
        let number = read.checked_sub(self.first).filter(|&number| self.limits.is_none_or(|l| number < l[column]))?;
        number.checked_add(self.offset_of(column))
    }
}

const SOURCE: usize = 0;
const TARGET: usize = 1;

/// Edges of a piece of text.
#[derive(Debug, Default)]
pub(crate) struct Pairs<I> {
    pub(crate) sources: Vec<I>,
    pub(crate) targets: Vec<I>,
    pub(crate) weights: Vec<f32>,
    /// Number of weights that are whole numbers which f32 does not represent: they are rounded.
    pub(crate) rounded: u64,
}

/// A node id of some width.
pub(crate) trait Id: Copy + Send + Sync + Ord {
    fn from_u64(id: u64) -> Option<Self>;

    fn to_u64(self) -> u64;
}

impl Id for u32 {
    fn from_u64(id: u64) -> Option<Self> {
        (id < MAX_NODES).then_some(id as u32)
    }

    fn to_u64(self) -> u64 {
        self.into()
    }
}

impl Id for u64 {
    fn from_u64(id: u64) -> Option<Self> {
        Some(id)
    }

    fn to_u64(self) -> u64 {
        self
    }
}

impl<I: Id> Pairs<I> {
    /// No edges yet, and capacity for `edges` without weights.
    pub(crate) fn with_capacity(edges: usize) -> Self {
        Self { sources: Vec::with_capacity(edges), targets: Vec::with_capacity(edges), weights: Vec::new(), rounded: 0 }
    }

    pub(crate) fn push(&mut self, source: I, target: I) {
        self.sources.push(source);
        self.targets.push(target);
    }

    /// Keeps the edges between ids that satisfy `keep`; calls `left_out` with number and ends of each other one.
    pub(crate) fn retain(&mut self, keep: impl Fn(I) -> bool, mut left_out: impl FnMut(usize, [I; 2])) {
        let mut kept = 0;
        for i in 0..self.sources.len() {
            let (source, target) = (self.sources[i], self.targets[i]);
            if !(keep(source) && keep(target)) {
                left_out(i, [source, target]);
                continue;
            }
            (self.sources[kept], self.targets[kept]) = (source, target);
            if let Some(&weight) = self.weights.get(i) {
                self.weights[kept] = weight;
            }
            kept += 1;
        }
        self.sources.truncate(kept);
        self.targets.truncate(kept);
        self.weights.truncate(kept);
    }

    /// Parses whole lines; skips empty ones and those that begin with `#` or `%`.
    pub(crate) fn parse(text: &[u8], format: PairsFormat) -> Result<Self, LineError> {
        let mut scan = Scan::new(text);
        // A line has nine bytes or more in any file where this matters.
        let mut pairs = Self::with_capacity(text.len() / 9);
        let plain_layout = format.layout.is_plain();
        let bare = plain_layout && format.layout.columns.weight.is_none();
        while !scan.is_at_end() {
            // Fast path: nearly every line of nearly every file is two numbers; the rest of the loop reads any line.
            if bare {
                let id = |read: u64, column| format.ids.number(read, column).and_then(I::from_u64);
                let take = |source, target| match (id(source, SOURCE), id(target, TARGET)) {
                    (Some(source), Some(target)) => {
                        pairs.push(source, target);
                        true
                    }
                    _ => false,
                };
                scan.plain_pairs(|b| matches!(b, b',' | b' ' | b'\t' | b';'), take);
                if scan.is_at_end() {
                    break;
                }
            }
            scan.blanks();
            if matches!(scan.peek(), None | Some(b'#' | b'%' | b'\n')) {
                // A comment, or nothing.
            } else if !plain_layout || scan.peek() == Some(b'"') {
                pairs.parse_fields(&scan, format)?;
            } else {
                let line = scan.clone();
                if let Err(error) = pairs.parse_plain(&mut scan, format) {
                    // Ids such as 1.0 and 1e+05 are read field by field.
                    pairs.weights.truncate(pairs.sources.len());
                    pairs.parse_fields(&line, format).map_err(|_| error)?;
                }
            }
            scan.next_line();
        }
        Ok(pairs)
    }

    /// Parses the current line of a plain layout.
    fn parse_plain(&mut self, scan: &mut Scan<'_>, format: PairsFormat) -> Result<(), LineError> {
        let whole = scan.whole();
        let source = checked_id(scan, whole, SOURCE, format)?;
        scan.separator();
        let whole = scan.whole();
        let target = checked_id(scan, whole, TARGET, format)?;
        if format.layout.columns.weight.is_some() && (format.weighted || !format.any_count) {
            scan.separator();
            let field = scan.field();
            if format.weighted {
                self.push_weight(scan, field, format)?;
            } else if field.is_empty() {
                return Err(count_error(scan, format));
            }
        }
        scan.blanks();
        if !scan.at_line_end() && !format.any_count {
            return Err(count_error(scan, format));
        }
        self.push(source, target);
        Ok(())
    }

    /// Parses the fields of the current line, which may be quoted, empty or in any order.
    fn parse_fields(&mut self, scan: &Scan<'_>, format: PairsFormat) -> Result<(), LineError> {
        let Layout { separator, columns: EdgeColumns { source, target, weight }, count, attributes, .. } =
            format.layout;
        let (mut values, mut number) = ([&[][..]; 3], 0);
        let mut line = scan.line();
        if attributes {
            let Some((ids, dictionary)) = with_attributes(line) else {
                let what = |line: &str| format!("expected two node ids and {{…}}, found \"{line}\"");
                return Err(scan.error(what, "correct the line"));
            };
            line = ids;
            values[2] = attribute(dictionary, "weight").unwrap_or_default();
        }
        for field in fields(line, separator) {
            for (column, value) in [Some(source), Some(target), weight].into_iter().zip(&mut values) {
                if column == Some(number) {
                    *value = field;
                }
            }
            number += 1;
        }
        // Tabs at the end of a line may be blanks, or separate empty fields.
        let tabs = line.iter().rev().take_while(|b| b.is_ascii_whitespace()).filter(|&&b| b == b'\t').count();
        let empty = if separator == Separator::Byte(b'\t') { tabs } else { 0 };
        if !(number..=number + empty).contains(&count) && !format.any_count {
            return Err(count_error(scan, format));
        }
        let id = |column: usize| checked_id(scan, whole_number(values[column]), column, format);
        let (source, target) = (id(SOURCE)?, id(TARGET)?);
        if format.weighted {
            self.push_weight(scan, values[2], format)?;
        }
        self.push(source, target);
        Ok(())
    }

    fn push_weight(&mut self, scan: &Scan<'_>, field: &[u8], format: PairsFormat) -> Result<(), LineError> {
        let Some(weight) = real(field) else {
            if has_comma(field) {
                return Err(comma_error(scan));
            }
            let what = |line: &str| format!("expected two node ids and a weight, found \"{line}\"");
            let is_short = field.is_empty() && !format.layout.attributes;
            let cure = if is_short { NEIGHBORS } else { "correct the line, or import with --drop-weights" };
            return Err(scan.error(what, cure));
        };
        if !(weight.is_finite() && weight >= 0.0) {
            let what = |_: &str| format!("the weight {weight} is not a finite number of at least 0");
            return Err(scan.error(what, "correct it, or import with --drop-weights"));
        }
        // From 2^24 on f32 does not represent every whole number.
        if weight >= 16_777_216.0 && Scan::whole_of(field).is_some_and(|exact| weight as u64 != exact) {
            self.rounded += 1;
        }
        self.weights.push(weight);
        Ok(())
    }
}

fn comma_error(scan: &Scan<'_>) -> LineError {
    scan.error(|line| format!("a comma within a number: \"{line}\""), NO_COMMAS)
}

/// The error of a line that has another number of fields than the first one.
fn count_error(scan: &Scan<'_>, format: PairsFormat) -> LineError {
    let line = scan.whole_line();
    let separates = |byte: &u8| line.contains(byte) && line.split(|b| b == byte).any(has_comma);
    if [b';', b'\t'].iter().any(separates) {
        return comma_error(scan);
    }
    let Layout { count, named, .. } = format.layout;
    let cure = if named { "correct the line, or import with --ignore-columns" } else { NEIGHBORS };
    scan.error(|line| format!("expected {count} columns as on the first line, found \"{line}\""), cure)
}

/// The value of a field that is a whole number, however programs spell it: `7`, `007`, `7.0` of pandas, `1e+05` of R.
///
/// An exponent needs its sign, which no hash in hexadecimal has; a number above 2^53 needs all of its digits.
pub(crate) fn whole_number(field: &[u8]) -> Option<u64> {
    /// Up to here a double holds every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(value) = Scan::whole_of(field) {
        return Some(value);
    }
    let (digits, exponent) = match field.iter().position(|b| b.eq_ignore_ascii_case(&b'e')) {
        Some(at) => (&field[..at], field[at + 1..].strip_prefix(b"+")?),
        None => (field, &b"0"[..]),
    };
    let (whole, fraction) = match digits.iter().position(|&b| b == b'.') {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &b""[..]),
    };
    let are_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || exponent.is_empty() || ![whole, fraction, exponent].into_iter().all(are_digits) {
        return None;
    }
    let value: f64 = fast_float2::parse(field).ok()?;
    (value.fract() == 0.0 && value <= EXACT).then_some(value as u64)
}

fn checked_id<I: Id>(scan: &Scan<'_>, whole: Option<u64>, column: usize, format: PairsFormat) -> Result<I, LineError> {
    let Some(read) = whole else {
        let lengths: Vec<usize> = fields(scan.whole_line(), format.layout.separator).map(<[u8]>::len).collect();
        let cure = match lengths.as_slice() {
            [_] => NEIGHBORS,
            _ if lengths.contains(&0) => "correct the line",
            _ => TEXT_IDS,
        };
        return Err(scan.error(|line| format!("expected two node ids, found \"{line}\""), cure));
    };
    let format = format.ids;
    if read < format.first {
        let what = |_: &str| format!("the node id {read} is below the first id {}", format.first);
        return Err(scan.error(what, "correct the line, or count ids from 0 by --first-id 0"));
    }
    if let Some(limit) = format.limits.map(|limits| limits[column]).filter(|&limit| read - format.first >= limit) {
        let column = if format.offset > 0 { " in its column" } else { "" };
        let what = |_: &str| format!("node {read} does not exist, there are {limit} nodes{column}");
        return Err(scan.error(what, "correct the line or the number of nodes"));
    }
    format.number(read, column).and_then(I::from_u64).ok_or_else(|| {
        let what = |_: &str| format!("the node id {read} does not fit {} bits", 8 * size_of::<I>());
        scan.error(what, if size_of::<I>() < 8 { "import with --ids compact" } else { TEXT_IDS })
    })
}

impl Pairs<u32> {
    /// The edges, with weights if `weighted`.
    pub(crate) fn edges(&self, weighted: bool) -> Edges<'_> {
        Edges { sources: &self.sources, targets: &self.targets, weights: weighted.then_some(&self.weights) }
    }
}
