//! Draws edges to validate and test on, and takes them out of the graph.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_graph_store::{
    Array, DatasetWriter, EdgeSplits, Element, Error, Load, Position, Result, Topology, read_npy, write_blocks,
};
use morphgl_platform::splitmix64;
use rayon::prelude::*;

/// Shares of the edges of a graph to train, validate and test on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EdgeSplit {
    /// Share of training edges, which remain in the graph.
    pub train: f64,
    /// Share of validation edges.
    pub valid: f64,
    /// Share of test edges; the three sum to at most 1. Edges of no share are left out.
    pub test: f64,
    /// Seed of the draws.
    pub seed: u64,
}

/// What [`split_edges`] has drawn: numbers of pairs of nodes with an edge, self-loops aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnEdges {
    /// Whether the graph is symmetric: a pair is an edge and its reverse then.
    pub symmetric: bool,
    /// Pairs that remain in the graph.
    pub train: u64,
    /// Pairs to validate on.
    pub valid: u64,
    /// Pairs to test on.
    pub test: u64,
    /// Pairs of no share.
    pub left_out: u64,
}

/// The share of every pair of nodes, whether it is an edge or not.
#[derive(Debug, Clone, Copy)]
pub struct EdgeShares {
    symmetric: bool,
    key: u64,
    /// The first hash behind each share; `None` behind all.
    ends: [Option<u64>; 3],
}

impl EdgeShares {
    /// The share of a pair: 0 to train, 1 to validate, 2 to test on, 3 for none. A node and itself are of the training share.
    pub fn of(&self, [source, target]: [u32; 2]) -> usize {
        self.hash(target, source).map_or(0, |hash| self.of_hash(hash))
    }

    fn of_hash(&self, hash: u64) -> usize {
        self.ends.iter().position(|end| end.is_none_or(|end| hash < end)).unwrap_or(3)
    }

    /// The hash of the pair of an edge, which no other pair has; `None` of a self-loop.
    fn hash(&self, target: u32, source: u32) -> Option<u64> {
        hash(self.symmetric, self.key, [source, target])
    }
}

/// The hash of a pair, which no other pair has, in a symmetric graph but its reverse; `None` of a self-loop.
fn hash(symmetric: bool, key: u64, [source, target]: [u32; 2]) -> Option<u64> {
    let ends = if symmetric && source > target { (target, source) } else { (source, target) };
    let pair = u64::from(ends.0) << 32 | u64::from(ends.1);
    // Both rounds are bijections.
    (source != target).then(|| splitmix64(splitmix64(pair ^ key).wrapping_add(key)))
}

/// Edges of a block.
const BLOCK: usize = 1 << 15;
/// Blocks after which the memory of mapped arrays is released.
const RELEASE: usize = 1 << 8;
/// Leading bits of a hash that the histogram counts by.
const BUCKET_BITS: u32 = 16;

/// Draws the edges of the graph that `writer` has into shares, writes the graph anew with the training edges and self-loops alone,
/// and writes `valid_edges` and `test_edges`; `advance` is called with numbers of edges. Returns also the share of any pair.
///
/// A pair of nodes is drawn as one, with all its edges, in a symmetric graph those of both directions; so no edge of the graph
/// tells of a pair to test on. Shares are exact, to the nearest pair. Draws are a function of the seed and of the pair: pairs are
/// ordered by a hash, and cut. Pairs are written in the order of targets and sources, in a symmetric graph with source < target.
///
/// # Errors
///
/// An IO error; the edges have types ([`split_edges_of_types`]).
///
/// # Panics
///
/// When `writer` has no finished graph, or one whose rows do not ascend.
///
/// # Complexity
///
/// O(nodes + edges) time on the threads of the current rayon pool, in six passes over the mapped edges; some 2 MiB of memory per
/// thread and 2^-13 bytes per edge.
pub fn split_edges(
    writer: &mut DatasetWriter,
    split: &EdgeSplit,
    advance: impl FnMut(u64) + Send,
) -> Result<(DrawnEdges, EdgeShares)> {
    let (drawn, shares) = draw(writer, split, &[], advance)?;
    Ok((drawn, shares.expect("of a graph without types")))
}

/// As [`split_edges`], of the edges of these types of a typed graph, the shares of each type for itself: those of validation and test
/// pairs leave the graph, and so do those of the reverse types. Edges of other types all remain. Writes `train_edges` as well, each pair
/// once, and the edge types of all pairs.
///
/// Of several types, the edges of reverse types and both directions of symmetric types are pairs, too, each in the share of what it is
/// the reverse of, and self-loops are pairs to train on: each end of a link is then predicted from the other.
///
/// # Errors
///
/// As [`split_edges`].
///
/// # Panics
///
/// When `writer` has no finished typed graph, or one whose sub-rows do not ascend; when types are not numbers of edge types, or two have
/// the same edges.
///
/// # Complexity
///
/// As [`split_edges`], with three of the passes for each type.
pub fn split_edges_of_types(
    writer: &mut DatasetWriter,
    split: &EdgeSplit,
    types: &[SplitType],
    advance: impl FnMut(u64) + Send,
) -> Result<DrawnEdges> {
    draw(writer, split, types, advance).map(|(drawn, _)| drawn)
}

fn draw(
    writer: &mut DatasetWriter,
    split: &EdgeSplit,
    types: &[SplitType],
    mut advance: impl FnMut(u64) + Send,
) -> Result<(DrawnEdges, Option<EdgeShares>)> {
    let mut files = Vec::new();
    let mut take_back = |name: &str| -> Result<Option<PathBuf>> {
        let file = writer.take_back(name)?;
        files.extend(file.clone());
        Ok(file)
    };
    let (Some(indptr), Some(indices)) = (take_back("indptr")?, take_back("indices")?) else {
        panic!("the graph is written before it is split")
    };
    let weights = mapped::<f32>(take_back("weights")?)?;
    let (edge_types, times) = (mapped::<u16>(take_back("edge_types")?)?, mapped::<i64>(take_back("edge_times")?)?);
    let ids = mapped::<u32>(take_back("edge_ids")?)?;
    if edge_types.is_some() && types.is_empty() {
        let cure = "name the edge type to draw pairs of";
        return Err(Error::invalid(&indices, Position::File, "the edges are of several types", cure));
    }
    let graph =
        Topology::new(read_npy::<u64>(&indptr, Load::Mmap)?.0, read_npy::<u32>(&indices, Load::Mmap)?.0, weights);
    let graph = graph.map_err(|what| Error::invalid(&indices, Position::File, what, "import the graph again"))?;
    let links = Links::of(split, types);
    let mut edges = Edges { graph: &graph, edge_types, times, ids, links, both: types.len() > 1 };
    let cuts: Vec<Cuts> = (0..edges.links.len())
        .map(|links| {
            edges.links[links].symmetric = edges.is_symmetric(links);
            edges.cuts(links, split)
        })
        .collect();
    write(writer, &edges, &cuts, &mut advance)?;
    let symmetric = edges.links.iter().all(|links| links.symmetric);
    drop(edges);
    drop(graph);
    for file in files {
        std::fs::remove_file(&file).map_err(|e| Error::io(&file, e))?;
    }
    let mut drawn = DrawnEdges { symmetric, train: 0, valid: 0, test: 0, left_out: 0 };
    for [train, valid, test, all] in cuts.iter().map(|cuts| cuts.ends) {
        drawn.train += train;
        drawn.valid += valid - train;
        drawn.test += test - valid;
        drawn.left_out += all - test;
    }
    Ok((drawn, types.is_empty().then(|| cuts[0].shares)))
}

fn mapped<T: Element>(file: Option<PathBuf>) -> Result<Option<Array<T>>> {
    file.map(|file| Ok(read_npy::<T>(&file, Load::Mmap)?.0)).transpose()
}

/// An edge type that pairs are drawn of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitType {
    /// Its number.
    pub edge_type: usize,
    /// Number of the type of its reverse edges, where it has one.
    pub reverse: Option<usize>,
}

/// Edges that pairs are drawn of: all, or those of an edge type with its reverses.
#[derive(Debug, Clone, Copy)]
struct Links {
    /// The type and its reverse, of a typed graph.
    of: Option<(u16, Option<u16>)>,
    /// Whether each has its reverse in the same type.
    symmetric: bool,
    key: u64,
}

impl Links {
    fn of(split: &EdgeSplit, types: &[SplitType]) -> Vec<Self> {
        let key = splitmix64(split.seed ^ 0x6564_6765_7300);
        let number = |number: usize| u16::try_from(number).expect("edge types are numbered by u16");
        let of_type = |&SplitType { edge_type, reverse }: &SplitType| {
            let key = if types.len() > 1 { splitmix64(key.wrapping_add(edge_type as u64)) } else { key };
            Self { of: Some((number(edge_type), reverse.map(number))), symmetric: false, key }
        };
        match types {
            [] => vec![Self { of: None, symmetric: false, key }],
            _ => types.iter().map(of_type).collect(),
        }
    }

    fn hash(&self, pair: [u32; 2]) -> Option<u64> {
        hash(self.symmetric, self.key, pair)
    }
}

/// The edges of a graph, block by block.
struct Edges<'a> {
    graph: &'a Topology,
    edge_types: Option<Array<u16>>,
    times: Option<Array<i64>>,
    ids: Option<Array<u32>>,
    links: Vec<Links>,
    /// Whether reverses are pairs, too.
    both: bool,
}

/// Where the order of hashes is cut.
struct Cuts {
    /// Numbers of pairs before the end of the training, validation and test share, and of all.
    ends: [u64; 4],
    shares: EdgeShares,
}

impl Edges<'_> {
    fn num_blocks(&self) -> usize {
        (self.graph.num_edges() as usize).div_ceil(BLOCK)
    }

    /// Calls `f` with target, source and position of each edge of a block.
    fn each(&self, block: usize, mut f: impl FnMut(u32, u32, usize)) {
        let (indptr, indices) = (self.graph.indptr(), self.graph.indices());
        let range = block * BLOCK..((block + 1) * BLOCK).min(indices.len());
        let mut row = indptr.partition_point(|&end| end as usize <= range.start) - 1;
        for at in range {
            while indptr[row + 1] as usize <= at {
                row += 1;
            }
            f(row as u32, indices[at], at);
        }
        if block % RELEASE == RELEASE - 1 {
            indices.release();
            indptr.release();
            self.graph.weights().inspect(|weights| weights.release());
            self.edge_types.iter().for_each(|types| types.release());
            self.times.iter().for_each(|times| times.release());
            self.ids.iter().for_each(|ids| ids.release());
        }
    }

    fn type_of(&self, at: usize) -> Option<u16> {
        self.edge_types.as_ref().map(|types| types[at])
    }

    /// The links that an edge is of, and the pair that it is drawn by; `None` of an edge of another type.
    fn pair(&self, target: u32, source: u32, at: usize) -> Option<(usize, [u32; 2])> {
        let Some(own) = self.type_of(at) else { return Some((0, [source, target])) };
        self.links.iter().enumerate().find_map(|(i, links)| match links.of? {
            (of, _) if of == own => Some((i, [source, target])),
            (_, reverse) if reverse == Some(own) => Some((i, [target, source])),
            _ => None,
        })
    }

    /// Whether an edge is the first of equal ones of its type.
    fn is_first(&self, target: u32, source: u32, at: usize) -> bool {
        let is_other =
            |before: usize| self.graph.indices()[before] != source || self.type_of(before) != self.type_of(at);
        at == self.graph.indptr()[target as usize] as usize || is_other(at - 1)
    }

    /// Whether an edge of the type of `links` stands for its pair: the first of equal ones, in a symmetric graph with source < target.
    fn stands(&self, links: usize, target: u32, source: u32, at: usize) -> bool {
        self.is_of(links, at) && self.is_first(target, source, at) && (!self.links[links].symmetric || source < target)
    }

    /// Whether an edge is of the type of `links`, and no reverse.
    fn is_of(&self, links: usize, at: usize) -> bool {
        self.links[links].of.is_none_or(|(of, _)| self.type_of(at) == Some(of))
    }

    /// Whether every edge of the type of `links` has its reverse in the same type: as [`Topology::is_symmetric`].
    fn is_symmetric(&self, links: usize) -> bool {
        if self.links[links].of.is_none() {
            return self.graph.is_symmetric();
        }
        let sum = |block: usize| {
            let mut sum = 0u128;
            self.each(block, |target, source, at| {
                if self.is_of(links, at) && source != target {
                    let hash = |ends: [u32; 2]| [0, 1].map(|stream| hash(false, stream, ends).expect("two nodes"));
                    let [edge, reverse] = [[source, target], [target, source]].map(|ends| {
                        let [high, low] = hash(ends);
                        u128::from(high) << 64 | u128::from(low)
                    });
                    sum = sum.wrapping_add(edge).wrapping_sub(reverse);
                }
            });
            sum
        };
        (0..self.num_blocks()).into_par_iter().map(sum).reduce(|| 0, u128::wrapping_add) == 0
    }

    /// The hashes of the pairs of a block.
    fn hashes(&self, links: usize, block: usize, mut f: impl FnMut(u64)) {
        self.each(block, |target, source, at| {
            if self.stands(links, target, source, at) {
                self.links[links].hash([source, target]).into_iter().for_each(&mut f);
            }
        });
    }

    /// Finds the hashes between the shares, by a histogram of the leading bits and the hashes of the buckets that the cuts fall into.
    fn cuts(&self, links: usize, split: &EdgeSplit) -> Cuts {
        let bucket = |hash: u64| (hash >> (64 - BUCKET_BITS)) as usize;
        let counts: Vec<AtomicU64> = (0..1 << BUCKET_BITS).map(|_| AtomicU64::new(0)).collect();
        (0..self.num_blocks()).into_par_iter().for_each(|block| {
            self.hashes(links, block, |hash| _ = counts[bucket(hash)].fetch_add(1, Ordering::Relaxed));
        });
        let counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
        let all: u64 = counts.iter().sum();
        let shares = [split.train, split.train + split.valid, split.train + split.valid + split.test];
        let ends = shares.map(|share| ((share * all as f64).round() as u64).min(all));
        // Bucket of each cut, and the rank of its hash there.
        let places = ends.map(|end| {
            let mut rank = end;
            let bucket = counts.iter().position(|&count| {
                let inside = rank < count;
                rank -= if inside { 0 } else { count };
                inside
            });
            bucket.map(|bucket| (bucket, rank as usize))
        });
        let wanted = |hash: u64| places.iter().flatten().any(|&(place, _)| place == bucket(hash));
        let blocks = (0..self.num_blocks()).into_par_iter().map(|block| {
            let mut found = Vec::new();
            self.hashes(links, block, |hash| found.extend(wanted(hash).then_some(hash)));
            found
        });
        let mut hashes: Vec<u64> = blocks.flatten_iter().collect();
        hashes.par_sort_unstable();
        let hash = |(place, rank): (usize, usize)| hashes[hashes.partition_point(|&hash| bucket(hash) < place) + rank];
        let [train, valid, test] = ends;
        let ends = places.map(|place| place.map(hash));
        let Links { symmetric, key, .. } = self.links[links];
        let shares = EdgeShares { symmetric, key, ends };
        Cuts { ends: [train, valid, test, all], shares }
    }
}

/// What remains of a block, and the pairs that were drawn from it.
#[derive(Default)]
struct Part {
    /// Rows of the block, and the number of edges that remain in each.
    rows: Vec<(u32, u32)>,
    indices: Vec<u32>,
    weights: Vec<f32>,
    edge_types: Vec<u16>,
    times: Vec<i64>,
    ids: Vec<u32>,
    /// Pairs to train on, where the graph is typed, to validate and to test on.
    drawn: [Vec<u32>; 3],
    /// Their edge types, of a typed graph.
    of_drawn: [Vec<u16>; 3],
    len: u64,
}

fn write(
    writer: &mut DatasetWriter,
    edges: &Edges<'_>,
    cuts: &[Cuts],
    advance: &mut (impl FnMut(u64) + Send),
) -> Result<()> {
    let make = |block: usize| {
        let mut part = Part::default();
        edges.each(block, |target, source, at| {
            part.len += 1;
            if part.rows.last().is_none_or(|&(row, _)| row != target) {
                part.rows.push((target, 0));
            }
            let links = edges.pair(target, source, at);
            let share = links.map_or(0, |(links, pair)| cuts[links].shares.of(pair));
            if share == 0 {
                part.rows.last_mut().expect("the row was added").1 += 1;
                part.indices.push(source);
                part.weights.extend(edges.graph.weights().map(|weights| weights[at]));
                part.edge_types.extend(edges.type_of(at));
                part.times.extend(edges.times.as_ref().map(|times| times[at]));
                part.ids.extend(edges.ids.as_ref().map(|ids| ids[at]));
            }
            let Some((links, _)) = links else { return };
            // Without types the training pairs are the edges that remain.
            let is_listed = match edges.both {
                true => edges.is_first(target, source, at),
                false => {
                    let is_trained = edges.edge_types.is_some() && source != target;
                    (share > 0 || is_trained) && edges.stands(links, target, source, at)
                }
            };
            if let Some(pairs) = part.drawn.get_mut(share).filter(|_| is_listed) {
                pairs.extend([source, target]);
                part.of_drawn[share].extend(edges.type_of(at));
            }
        });
        part
    };
    let mut indptr = writer.stream::<u64>("indptr")?;
    let mut indices = writer.stream::<u32>("indices")?;
    let mut weights = edges.graph.weights().map(|_| writer.stream::<f32>("weights")).transpose()?;
    let mut edge_types = edges.edge_types.as_ref().map(|_| writer.stream::<u16>("edge_types")).transpose()?;
    let mut times = edges.times.as_ref().map(|_| writer.stream::<i64>("edge_times")).transpose()?;
    let mut ids = edges.ids.as_ref().map(|_| writer.stream::<u32>("edge_ids")).transpose()?;
    let is_typed = edges.edge_types.is_some();
    let names = &EdgeSplits::ARRAYS[usize::from(!is_typed)..3];
    let of_names = if is_typed { &EdgeSplits::TYPE_ARRAYS[..] } else { &[] };
    let mut drawn = names.iter().map(|name| writer.stream::<u32>(name)).collect::<Result<Vec<_>>>()?;
    let mut of_drawn = of_names.iter().map(|name| writer.stream::<u16>(name)).collect::<Result<Vec<_>>>()?;
    // Offsets of rows up to that of the last row with an edge.
    let (mut rows, mut end, mut offsets) = (0u64, 0u64, Vec::new());
    let block = |part: Part| {
        for &(row, count) in &part.rows {
            offsets.resize(offsets.len() + (u64::from(row) + 1).saturating_sub(rows) as usize, end);
            rows = rows.max(u64::from(row) + 1);
            end += u64::from(count);
        }
        indptr.write(&offsets)?;
        offsets.clear();
        indices.write(&part.indices)?;
        weights.as_mut().map_or(Ok(()), |weights| weights.write(&part.weights))?;
        edge_types.as_mut().map_or(Ok(()), |types| types.write(&part.edge_types))?;
        times.as_mut().map_or(Ok(()), |times| times.write(&part.times))?;
        ids.as_mut().map_or(Ok(()), |ids| ids.write(&part.ids))?;
        advance(part.len);
        let pairs = &part.drawn[3 - names.len()..];
        drawn.iter_mut().zip(pairs).try_for_each(|(out, pairs)| out.write(pairs))?;
        of_drawn.iter_mut().zip(&part.of_drawn).try_for_each(|(out, types)| out.write(types))
    };
    write_blocks(edges.num_blocks(), rayon::current_num_threads(), make, block)?;
    for _ in rows..=edges.graph.num_nodes() as u64 {
        indptr.write(&[end])?;
    }
    writer.add("indptr", indptr.finish(None)?);
    writer.add("indices", indices.finish(None)?);
    if let Some(weights) = weights {
        writer.add("weights", weights.finish(None)?);
    }
    if let Some(types) = edge_types {
        writer.add("edge_types", types.finish(None)?);
    }
    if let Some(times) = times {
        writer.add("edge_times", times.finish(None)?);
    }
    if let Some(ids) = ids {
        writer.add("edge_ids", ids.finish(None)?);
    }
    for (name, out) in names.iter().zip(drawn) {
        writer.add(name, out.finish(Some(2))?);
    }
    for (name, out) in of_names.iter().zip(of_drawn) {
        writer.add(name, out.finish(None)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
