//! Lines of two node ids and, perhaps, a weight.

use morphgl_graph_store::MAX_NODES;
use morphgl_ingest::Edges;

use super::{EdgeColumns, Layout, LineError, Scan, attribute, fields, real, with_attributes};

/// The form of the lines, and of their edges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairsFormat {
    pub(crate) layout: Layout,
    /// Whether the weight's column is read.
    pub(crate) weighted: bool,
    /// Whether further columns are skipped; refused otherwise.
    pub(crate) more_columns: bool,
    /// The id of the first node: subtracted from every id.
    pub(crate) first_id: u64,
    /// Number of nodes, where it is known.
    pub(crate) num_nodes: Option<u64>,
}

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
}

impl Id for u32 {
    fn from_u64(id: u64) -> Option<Self> {
        (id < MAX_NODES).then_some(id as u32)
    }
}

impl Id for u64 {
    fn from_u64(id: u64) -> Option<Self> {
        Some(id)
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

    /// Parses whole lines; skips empty ones and those that begin with `#` or `%`.
    pub(crate) fn parse(text: &[u8], format: PairsFormat) -> Result<Self, LineError> {
        let mut scan = Scan::new(text);
        // A line has nine bytes or more in any file where this matters.
        let mut pairs = Self::with_capacity(text.len() / 9);
        let limit = format.num_nodes.unwrap_or(u64::MAX);
        let plain_layout = format.layout.is_plain();
        while !scan.is_at_end() {
            // Fast path: nearly every line of nearly every file is two numbers; the rest of the loop reads any line.
            if plain_layout && !format.weighted {
                let id = |read: u64| read.checked_sub(format.first_id).filter(|&id| id < limit).and_then(I::from_u64);
                let take = |source, target| match (id(source), id(target)) {
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
                pairs.parse_plain(&mut scan, format)?;
            }
            scan.next_line();
        }
        Ok(pairs)
    }

    /// Parses the current line of a plain layout.
    fn parse_plain(&mut self, scan: &mut Scan<'_>, format: PairsFormat) -> Result<(), LineError> {
        let whole = scan.whole();
        let source = checked_id(scan, whole, format)?;
        scan.separator();
        let whole = scan.whole();
        let target = checked_id(scan, whole, format)?;
        if format.weighted {
            scan.separator();
            let field = scan.field();
            self.push_weight(scan, field)?;
        }
        scan.blanks();
        if !scan.at_line_end() && !format.more_columns {
            let cure = "correct the line, or import with --drop-weights";
            return Err(columns_error(scan, 2 + usize::from(format.weighted), cure));
        }
        self.push(source, target);
        Ok(())
    }

    /// Parses the fields of the current line, which may be quoted, empty or in any order.
    fn parse_fields(&mut self, scan: &Scan<'_>, format: PairsFormat) -> Result<(), LineError> {
        let Layout { separator, columns: EdgeColumns { source, target, weight }, count, attributes } = format.layout;
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
        if number != count && !format.more_columns {
            let cure = "correct the line, or say which columns are read by --src and --dst";
            return Err(columns_error(scan, count, cure));
        }
        let [source, target] = [values[0], values[1]].map(|field| checked_id(scan, Scan::whole_of(field), format));
        if format.weighted {
            self.push_weight(scan, values[2])?;
        }
        self.push(source?, target?);
        Ok(())
    }

    fn push_weight(&mut self, scan: &Scan<'_>, field: &[u8]) -> Result<(), LineError> {
        let Some(weight) = real(field) else {
            let what = |line: &str| format!("expected two node ids and a weight, found \"{line}\"");
            return Err(scan.error(what, "correct or remove the line"));
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

fn columns_error(scan: &Scan<'_>, count: usize, cure: &'static str) -> LineError {
    scan.error(|line| format!("expected {count} columns as on the first line, found \"{line}\""), cure)
}

fn checked_id<I: Id>(scan: &Scan<'_>, whole: Option<u64>, format: PairsFormat) -> Result<I, LineError> {
    let Some(read) = whole else {
        let what = |line: &str| format!("expected two node ids, found \"{line}\"");
        return Err(scan.error(what, "correct or remove the line"));
    };
    let Some(id) = read.checked_sub(format.first_id) else {
        let what = |_: &str| format!("the node id {read} is below the first id {}", format.first_id);
        return Err(scan.error(what, "correct the line or count ids from 0"));
    };
    if let Some(n) = format.num_nodes.filter(|&n| id >= n) {
        let what = |_: &str| format!("node {read} does not exist, there are {n} nodes");
        return Err(scan.error(what, "correct the line or the number of nodes"));
    }
    I::from_u64(id).ok_or_else(|| {
        let what = |_: &str| format!("the node id {read} does not fit 32 bits");
        scan.error(what, "import with compact ids")
    })
}

impl Pairs<u32> {
    /// The edges, with weights if `weighted`.
    pub(crate) fn edges(&self, weighted: bool) -> Edges<'_> {
        Edges { sources: &self.sources, targets: &self.targets, weights: weighted.then_some(&self.weights) }
    }
}
