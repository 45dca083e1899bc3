//! The stream of typed edges into a graph.

use std::ops::Range;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{DatasetWriter, Error, Position, Result, Types};

use crate::csc::Buffered;
use crate::records::{Numbered, Record, Sorted, Timed, Weighted};
use crate::sort::Sorter;

/// Options of a typed graph, and the memory to build it in.
#[derive(Debug, Clone, Copy)]
pub struct TypedOptions {
    /// Whether weights are stored.
    pub weighted: bool,
    /// Whether times are stored.
    pub timed: bool,
    /// Whether edges are numbered by the rows of their features.
    pub numbered: bool,
    /// Keeps the first of several edges of one type between the same nodes.
    pub drop_duplicates: bool,
    /// Bytes for edges and the buffers of their sort.
    pub memory: u64,
}

/// An edge of a typed graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TypedEdge {
    /// Number of the edge's type.
    pub edge_type: u16,
    /// Source node.
    pub source: u32,
    /// Target node.
    pub target: u32,
    /// Weight, ignored where none are stored.
    pub weight: f32,
    /// Time, ignored where none are stored.
    pub time: i64,
    /// The row of its features among those of its type, ignored where no edges have features.
    pub id: u32,
}

/// Takes typed edges in any order, sorts them within the memory budget and writes them as CSC.
///
/// Row `v` lists the edges into `v` by their type, and by their source within a type; equal edges stay in the order they were
/// pushed in. A record's key has the target above a code, which numbers the sources of each edge type into the target's type, one
/// edge type after another.
#[derive(Debug)]
pub struct TypedCscBuilder {
    codes: Codes,
    options: TypedOptions,
    sorter: AnySorter,
    pushed: u64,
}

/// Codes of edge types and sources.
#[derive(Debug)]
struct Codes {
    types: Types,
    /// First code of each edge type.
    first: Vec<u64>,
    /// Edge types into each node type, in order.
    into: Vec<Vec<u16>>,
    /// Bits of a code.
    bits: u32,
}

impl Codes {
    fn new(types: Types) -> Self {
        let mut total = vec![0u64; types.node_types().len()];
        let mut into = vec![Vec::new(); total.len()];
        let mut first = Vec::new();
        for edge_type in 0..types.edge_types().len() {
            let [source, target] = types.ends(edge_type);
            first.push(total[target]);
            total[target] += types.node_types()[source].count;
            into[target].push(edge_type as u16);
        }
        let highest = total.iter().max().map_or(0, |&total| total.saturating_sub(1));
        let bits = u64::BITS - highest.leading_zeros();
        Self { types, first, into, bits }
    }

    /// Whether the highest key fits 64 bits.
    fn fit(&self) -> bool {
        let highest = self.types.num_nodes().saturating_sub(1) as u64;
        self.bits + (u64::BITS - highest.leading_zeros()) <= u64::BITS
    }

    fn key(&self, edge: &TypedEdge) -> u64 {
        let edge_type = usize::from(edge.edge_type);
        let [source, target] = self.types.ends(edge_type).map(|of| self.types.range(of));
        assert!(source.contains(&edge.source) && target.contains(&edge.target), "{edge:?} is not of its type");
        let code = self.first[edge_type] + u64::from(edge.source - source.start);
        u64::from(edge.target).checked_shl(self.bits).unwrap_or(0) | code
    }

    fn target(&self, key: u64) -> u32 {
        key.checked_shr(self.bits).unwrap_or(0) as u32
    }

    /// Edge type and source of a key, and all codes of its type.
    fn decode(&self, key: u64) -> (u16, u32, Range<u64>) {
        let into = &self.into[self.types.node_type(self.target(key))];
        let code = self.code(key);
        // Of types without sources, which share their first code with the next, the last one that begins there has the code.
        let edge_type = into[into.partition_point(|&of| self.first[usize::from(of)] <= code) - 1];
        let first = self.first[usize::from(edge_type)];
        let sources = self.types.range(self.types.ends(usize::from(edge_type))[0]);
        let codes = first..first + sources.len() as u64;
        (edge_type, sources.start + (code - first) as u32, codes)
    }

    fn code(&self, key: u64) -> u64 {
        key & 1u64.checked_shl(self.bits).unwrap_or(0).wrapping_sub(1)
    }
}

#[derive(Debug)]
enum AnySorter {
    Plain(Sorter<u64>),
    Weighted(Sorter<Weighted>),
    Timed(Sorter<Timed>),
    Numbered(Sorter<Numbered>),
}

/// A record of a typed edge.
trait TypedRecord: Record {
    fn of(key: u64, edge: &TypedEdge) -> Self;
    fn time(self) -> i64;
}

impl TypedRecord for u64 {
    fn of(key: u64, _: &TypedEdge) -> Self {
        key
    }

    fn time(self) -> i64 {
        i64::MIN
    }
}

impl TypedRecord for Weighted {
    fn of(key: u64, edge: &TypedEdge) -> Self {
        Self::new(key, edge.weight)
    }

    fn time(self) -> i64 {
        i64::MIN
    }
}

impl TypedRecord for Timed {
    fn of(key: u64, edge: &TypedEdge) -> Self {
        [key, edge.time as u64, edge.weight.to_bits().into()]
    }

    fn time(self) -> i64 {
        self[1] as i64
    }
}

impl TypedRecord for Numbered {
    fn of(key: u64, edge: &TypedEdge) -> Self {
        [key, edge.id.into(), edge.time as u64, edge.weight.to_bits().into()]
    }

    fn time(self) -> i64 {
        self[2] as i64
    }
}

/// Arrays of some sorted edges.
#[derive(Debug, Default)]
struct Part {
    /// The rows that have edges here, and the number of edges of the part before those of each.
    rows: Vec<(u32, usize)>,
    indices: Vec<u32>,
    edge_types: Vec<u16>,
    weights: Vec<f32>,
    times: Vec<i64>,
    ids: Vec<u32>,
}

impl Part {
    fn of<R: TypedRecord>(records: Sorted<'_, R>, codes: &Codes, options: &TypedOptions) -> Self {
        let mut part = Self::default();
        let (mut row, mut of, mut start, mut range) = (None, 0, 0u32, 0..0);
        records.for_each(|record| {
            let (key, target) = (record.key(), codes.target(record.key()));
            if row != Some(target) {
                row = Some(target);
                part.rows.push((target, part.indices.len()));
                range = 0..0;
            }
            let code = codes.code(key);
            if !range.contains(&code) {
                let source;
                (of, source, range) = codes.decode(key);
                start = source - (code - range.start) as u32;
            }
            part.indices.push(start + (code - range.start) as u32);
            part.edge_types.push(of);
            if options.weighted {
                part.weights.push(record.weight());
            }
            if options.timed {
                part.times.push(record.time());
            }
            if options.numbered {
                part.ids.push(record.number());
            }
        });
        part
    }
}

impl TypedCscBuilder {
    /// A builder without edges. Errors name `source`; edges beyond the budget spill to the file `spill`, which is removed with the
    /// builder.
    ///
    /// # Errors
    ///
    /// So many nodes and edge types that keys of 64 bits cannot tell target, type and source.
    pub fn new(source: &Path, spill: PathBuf, types: Types, options: TypedOptions) -> Result<Self> {
        let codes = Codes::new(types);
        if !codes.fit() {
            let (nodes, edge_types) = (codes.types.num_nodes(), codes.types.edge_types().len());
            let what = format!("{nodes} nodes and {edge_types} edge types are more than 64-bit keys can tell apart");
            return Err(Error::invalid(
                source,
                Position::File,
                what,
                "merge edge types, or cut the graph into smaller ones",
            ));
        }
        let TypedOptions { weighted, timed, numbered, drop_duplicates, memory } = options;
        let sorter = match (weighted, timed) {
            _ if numbered => AnySorter::Numbered(Sorter::new(spill, memory, drop_duplicates)),
            (_, true) => AnySorter::Timed(Sorter::new(spill, memory, drop_duplicates)),
            (true, false) => AnySorter::Weighted(Sorter::new(spill, memory, drop_duplicates)),
            (false, false) => AnySorter::Plain(Sorter::new(spill, memory, drop_duplicates)),
        };
        Ok(Self { codes, options, sorter, pushed: 0 })
    }

    /// Number of edges pushed so far.
    pub fn num_edges(&self) -> u64 {
        self.pushed
    }

    /// Appends edges.
    ///
    /// # Errors
    ///
    /// An IO error.
    ///
    /// # Panics
    ///
    /// When an edge's type does not exist, or its ends are not of the types of nodes that its type is between.
    pub fn push(&mut self, edges: &[TypedEdge]) -> Result<()> {
        fn records<R: TypedRecord>(codes: &Codes, edges: &[TypedEdge], sorter: &mut Sorter<R>) -> Result<()> {
            let records: Vec<R> = edges.iter().map(|edge| R::of(codes.key(edge), edge)).collect();
            sorter.push(&records)
        }
        self.pushed += edges.len() as u64;
        match &mut self.sorter {
            AnySorter::Plain(sorter) => records(&self.codes, edges, sorter),
            AnySorter::Weighted(sorter) => records(&self.codes, edges, sorter),
            AnySorter::Timed(sorter) => records(&self.codes, edges, sorter),
            AnySorter::Numbered(sorter) => records(&self.codes, edges, sorter),
        }
    }

    /// Sorts the edges and writes `indptr`, `indices`, `edge_types`, and `weights`, `edge_times` and `edge_ids` where these are stored, and sets
    /// the dataset's types; `advance` is called with numbers of edges as they are written. Returns the number of duplicates that were
    /// dropped.
    ///
    /// # Errors
    ///
    /// An IO error.
    pub fn finish(self, writer: &mut DatasetWriter, advance: impl FnMut(u64) + Send) -> Result<u64> {
        let Self { codes, options, sorter, pushed } = self;
        let written = match sorter {
            AnySorter::Plain(sorter) => write(sorter, &codes, &options, writer, advance)?,
            AnySorter::Weighted(sorter) => write(sorter, &codes, &options, writer, advance)?,
            AnySorter::Timed(sorter) => write(sorter, &codes, &options, writer, advance)?,
            AnySorter::Numbered(sorter) => write(sorter, &codes, &options, writer, advance)?,
        };
        writer.set_types(codes.types);
        Ok(pushed - written)
    }
}

/// Writes the arrays of sorted edges; returns their number.
fn write<R: TypedRecord>(
    sorter: Sorter<R>,
    codes: &Codes,
    options: &TypedOptions,
    writer: &mut DatasetWriter,
    mut advance: impl FnMut(u64) + Send,
) -> Result<u64> {
    let mut indptr = Buffered::<u64>::new(writer, "indptr")?;
    let mut indices = Buffered::<u32>::new(writer, "indices")?;
    let mut edge_types = Buffered::<u16>::new(writer, "edge_types")?;
    let mut weights = options.weighted.then(|| Buffered::<f32>::new(writer, "weights")).transpose()?;
    let mut times = options.timed.then(|| Buffered::<i64>::new(writer, "edge_times")).transpose()?;
    let mut ids = options.numbered.then(|| Buffered::<u32>::new(writer, "edge_ids")).transpose()?;
    // Rows whose first offset is written, and edges.
    let (mut rows, mut written) = (0u64, 0u64);
    let mut emit = |part: Part| {
        for &(row, before) in &part.rows {
            while rows <= u64::from(row) {
                indptr.push(written + before as u64)?;
                rows += 1;
            }
        }
        written += part.indices.len() as u64;
        advance(part.indices.len() as u64);
        indices.extend(&part.indices)?;
        edge_types.extend(&part.edge_types)?;
        weights.as_mut().map_or(Ok(()), |out| out.extend(&part.weights))?;
        times.as_mut().map_or(Ok(()), |out| out.extend(&part.times))?;
        ids.as_mut().map_or(Ok(()), |out| out.extend(&part.ids))
    };
    sorter.merge(&|records: Sorted<'_, R>| Part::of(records, codes, options), &mut emit)?;
    while rows <= codes.types.num_nodes() as u64 {
        indptr.push(written)?;
        rows += 1;
    }
    indptr.finish(writer, "indptr")?;
    indices.finish(writer, "indices")?;
    edge_types.finish(writer, "edge_types")?;
    weights.map_or(Ok(()), |out| out.finish(writer, "weights"))?;
    times.map_or(Ok(()), |out| out.finish(writer, "edge_times"))?;
    ids.map_or(Ok(()), |out| out.finish(writer, "edge_ids"))?;
    Ok(written)
}
