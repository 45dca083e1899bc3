//! Lines of a METIS graph, and whether a text is one.

use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};

use crate::files::invalid;
use crate::text::{Chunks, LineError, Scan, excerpt, parse_next, real};
use crate::{Silent, random};

/// What the first line promises.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) num_nodes: u64,
    /// Undirected edges.
    num_edges: u64,
    /// Number of vertex sizes and weights before the neighbours of a line.
    vertex_numbers: usize,
    pub(super) weighted: bool,
}

/// The rows of a piece of text.
#[derive(Debug, Default)]
struct NodeLines {
    degrees: Vec<u32>,
    neighbors: Vec<u32>,
    weights: Vec<f32>,
}

/// Whether a text is surely a METIS graph: as many lines and neighbours as its first line promises, each edge on both of its
/// ends' lines, no self-loops.
pub(crate) fn is_graph(source: &Path) -> bool {
    let check = || -> Result<bool> {
        let mut chunks = Chunks::open(source, "read", CHECK_MEMORY, &Silent)?;
        let header = header(&mut chunks, source)?;
        let mut has_loops = false;
        rows(&mut chunks, source, header, |sources, targets, _| {
            has_loops |= sources.iter().zip(targets).any(|(u, v)| u == v);
            Ok(())
        })?;
        Ok(header.num_edges > 0 && !has_loops)
    };
    check().unwrap_or(false)
}

/// Memory of the check whether a file is METIS: a list of edges fails it within the first chunk.
const CHECK_MEMORY: u64 = 16 << 20;

/// Reads the lines of all nodes, and calls `push` with the sources, targets and weights of some of them at a time.
pub(super) fn rows(
    chunks: &mut Chunks<'_>,
    source: &Path,
    header: Header,
    mut push: impl FnMut(&[u32], &[u32], &[f32]) -> Result<()>,
) -> Result<()> {
    let cure = "correct the first line or download the file again; a list of edges is read with `morphgl import edges`";
    let wrong = |what: String| invalid(source, what, cure);
    let (mut num_nodes, mut num_neighbors, mut balance) = (0u64, 0u64, 0u64);
    let mut rows = Vec::new();
    while let Some(pieces) = parse_next(chunks, |text| lines(text, header))? {
        for piece in pieces {
            rows.clear();
            for degree in piece.degrees {
                if num_nodes < header.num_nodes {
                    rows.extend(std::iter::repeat_n(num_nodes as u32, degree as usize));
                    num_nodes += 1;
                } else if degree > 0 {
                    return wrong(format!("more than the {} nodes that the first line promises", header.num_nodes));
                }
            }
            for (&u, &v) in piece.neighbors.iter().zip(&rows) {
                balance = balance.wrapping_add(mark(u, v)).wrapping_sub(mark(v, u));
            }
            num_neighbors += rows.len() as u64;
            push(&piece.neighbors, &rows, &piece.weights)?;
        }
    }
    if num_nodes != header.num_nodes {
        return wrong(format!("{num_nodes} nodes, but the first line promises {}", header.num_nodes));
    }
    if u128::from(num_neighbors) != 2 * u128::from(header.num_edges) {
        let promised = header.num_edges;
        return wrong(format!(
            "{num_neighbors} neighbours, but the first line promises {promised} edges, each listed twice"
        ));
    }
    if balance != 0 {
        let cure = "list every edge on the lines of both its ends, or import the graph as an edge list";
        return invalid(source, "an edge is listed on one end's line only", cure);
    }
    Ok(())
}

/// A number that differs for (u, v) and (v, u): summed over a graph with both, the differences cancel; over any other they
/// cancel with a probability of 2^-64.
fn mark(u: u32, v: u32) -> u64 {
    random::hash(u64::from(u) << 32 | u64::from(v), 0)
}

/// The numbers of the first line.
pub(super) fn header(chunks: &mut Chunks<'_>, source: &Path) -> Result<Header> {
    const CURE: &str = "check that this is a METIS graph; a list of edges is read with `morphgl import edges`";
    let Some((line, number)) = chunks.peek_content(b"%")? else {
        return invalid(source, "the file is empty", CURE);
    };
    let text = String::from_utf8_lossy(line);
    let header = parse_header(&text.split_ascii_whitespace().collect::<Vec<_>>()).ok_or_else(|| {
        let what = format!("expected nodes, edges and perhaps fmt and ncon, found \"{}\"", excerpt(line));
        Error::invalid(source, Position::Line(number), what, CURE)
    })?;
    chunks.skip_line();
    Ok(header)
}

fn parse_header(words: &[&str]) -> Option<Header> {
    if !(2..=4).contains(&words.len()) {
        return None;
    }
    let (num_nodes, num_edges) = (words[0].parse().ok()?, words[1].parse().ok()?);
    let fmt = words.get(2).unwrap_or(&"0");
    if num_nodes > MAX_NODES || fmt.len() > 3 || !fmt.bytes().all(|b| matches!(b, b'0' | b'1')) {
        return None;
    }
    let digit = |place: usize| fmt.len() > place && fmt.as_bytes()[fmt.len() - 1 - place] == b'1';
    let ncon = words.get(3).map_or(Some(1), |w| w.parse::<u16>().ok())?;
    let vertex_numbers = usize::from(digit(2)) + if digit(1) { usize::from(ncon) } else { 0 };
    Some(Header { num_nodes, num_edges, vertex_numbers, weighted: digit(0) })
}

fn lines(text: &[u8], header: Header) -> std::result::Result<NodeLines, LineError> {
    let mut scan = Scan::new(text);
    let mut lines = NodeLines::default();
    while !scan.is_at_end() {
        scan.blanks();
        if scan.peek() != Some(b'%') {
            line(&mut scan, header, &mut lines)?;
        }
        scan.next_line();
    }
    Ok(lines)
}

fn line(scan: &mut Scan<'_>, header: Header, lines: &mut NodeLines) -> std::result::Result<(), LineError> {
    const CURE: &str = "correct the line";
    let before = lines.neighbors.len();
    // After the last node there may be empty lines, which have no numbers either.
    let vertex_numbers = if scan.at_line_end() { 0 } else { header.vertex_numbers };
    for _ in 0..vertex_numbers {
        if scan.whole().is_none() {
            let n = header.vertex_numbers;
            let what = |line: &str| format!("expected {n} whole numbers before the neighbours, found \"{line}\"");
            return Err(scan.error(what, CURE));
        }
        scan.blanks();
    }
    while !scan.at_line_end() {
        match scan.whole() {
            Some(id) if (1..=header.num_nodes).contains(&id) => lines.neighbors.push((id - 1) as u32),
            Some(id) => {
                let what = |_: &str| format!("node {id} does not exist, there are {}, from 1", header.num_nodes);
                return Err(scan.error(what, CURE));
            }
            None => return Err(scan.error(|line| format!("expected node ids, found \"{line}\""), CURE)),
        }
        scan.blanks();
        if header.weighted {
            let Some(weight) = real(scan.field()).filter(|w| w.is_finite() && *w >= 0.0) else {
                let what = |line: &str| format!("expected a weight of at least 0 after every id, found \"{line}\"");
                return Err(scan.error(what, CURE));
            };
            lines.weights.push(weight);
            scan.blanks();
        }
    }
    let degree = u32::try_from(lines.neighbors.len() - before).expect("a piece of text has less than 2^32 numbers");
    lines.degrees.push(degree);
    Ok(())
}
