//! Caches of adjacency lists and feature rows, which share one budget by the seconds that each byte saves.

use morphgl_dual_cache::{CacheShare, Curve, Kind, Slopes, allocate};
use morphgl_hotness::{CachePolicy, Graph, Hotness, PolicyKind, Smoothed};
use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::{Error, Key, Result, SamplerSettings};
use morphgl_row_cache::{AdjacencyCache, DynamicCache, Eviction, MatricesCache, NodeMap, NodeMatrix};

use crate::curve::Shape;
use crate::files::{FeatureRows, Files};
use crate::graph::DiskGraph;
use crate::offsets::Offsets;
use crate::options::Options;
use crate::replay::Replay;
use crate::rows::{CachedRows, eviction};
use crate::slopes;
use crate::typed::HopFanouts;

/// Feature rows per read when the cache is filled.
const FILL: usize = 1 << 13;

/// Times that reads are replayed; the least counts.
const ROUNDS: usize = 5;
/// Fraction of the time by blocks below which the division by measured slopes is taken: replays spread by as much.
const FASTER: f64 = 0.95;
/// Bytes of a block, neighbours of one, and the blocks of a list that count.
const BLOCK_BYTES: usize = 4096;
const BLOCK_NEIGHBORS: f64 = 1024.0;
const MOST_BLOCKS: u8 = 8;

/// The caches, and what their entries were selected by.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) features: Option<CachedRows>,
    pub(crate) lists: Option<AdjacencyCache>,
    /// Name of the hotness policy.
    pub(crate) policy: &'static str,
    /// Seconds that a hit saves, by which the budget was divided; `None` if nothing was to be weighed.
    pub(crate) slopes: Option<Slopes>,
    /// What caches of other sizes would save; `None` where accesses are not known or nothing was to be weighed.
    pub(crate) shape: Option<Shape>,
}

/// Accesses per epoch, counted in so many mini-batches.
pub(crate) struct Counted {
    pub(crate) hotness: Hotness,
    pub(crate) batches: f64,
}

/// Bytes to fill caches by `kind`: their maps, and computing its scores.
fn bytes_to_fill(kind: PolicyKind, num_nodes: u32, settings: &SamplerSettings) -> u64 {
    2 * NodeMap::num_bytes_of(num_nodes as usize) + u64::from(num_nodes) * kind.bytes_per_node(settings)
}

/// Bytes for caches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheMemory {
    /// Maximum bytes, which also limit the memory to compute the hotness.
    pub(crate) budget: u64,
    /// Budget below which less would be kept beside the caches.
    pub(crate) least: u64,
    /// Whether the graph has types.
    pub(crate) has_types: bool,
}

/// Refuses a cache policy or size of the user's that does not fit into `memory_bytes` beside `fixed` bytes; returns the bytes that it
/// needs. `widths` are the bytes of a row of each matrix of features that is gathered; `ends` those of the ends of sub-rows.
pub(crate) fn check_memory(
    key: &Key,
    options: &Options,
    settings: &SamplerSettings,
    (num_nodes, ends): (u32, u64),
    fixed: u64,
    widths: &[usize],
) -> Result<u64> {
    let Options { memory_bytes, cache, cache_bytes, .. } = *options;
    let refuse = |what: String| Err(Error::setting(key, what));
    let (offsets, map) = (Offsets::num_bytes_of(num_nodes as usize), NodeMap::num_bytes_of(num_nodes as usize));
    let bytes_to_fill = |kind| bytes_to_fill(kind, num_nodes, settings);
    // What lies beside the first row, and the least memory.
    let (beside, least) = match (cache, eviction(cache), widths) {
        (CachePolicy::None, ..) => return Ok(0),
        (CachePolicy::Auto, ..) if cache_bytes.is_none() => return Ok(0),
        (_, Some(eviction), &[row_bytes]) => {
            let least = DynamicCache::num_bytes_of(eviction, 1, row_bytes);
            (least - 1, least)
        }
        (_, Some(_), [_, _, ..]) => {
            return refuse(format!(
                "cache={cache} holds rows of one length, and features are per node type; name a hotness policy"
            ));
        }
        (_, Some(_), []) => {
            return refuse(format!(
                "cache={cache} holds feature rows, and none are gathered here; name a hotness policy"
            ));
        }
        (CachePolicy::By(kind), ..) => (map, bytes_to_fill(kind)),
        // The policy of least memory that may be chosen.
        _ => (map, bytes_to_fill(PolicyKind::InDegree)),
    };
    if let Some(bytes) = cache_bytes.filter(|&bytes| bytes <= beside) {
        return refuse(format!("cache_bytes={bytes} has no room for a row beside tables of {beside} bytes; give more"));
    }
    let bytes = least.max(cache_bytes.unwrap_or(0));
    // Caches are filled only where offsets are kept, which is where these take at most half of the memory.
    let of_ends = match cache {
        CachePolicy::By(kind) if kind.scans_by_type(settings) => 2 * ends,
        _ => 0,
    };
    let needed = fixed.saturating_add(offsets).saturating_add(bytes.saturating_add(of_ends).max(offsets));
    if needed <= memory_bytes {
        return Ok(bytes);
    }
    let size = cache_bytes.map_or_else(String::new, |bytes| format!(" with cache_bytes={bytes}"));
    refuse(format!(
        "cache={cache}{size} needs memory_bytes of at least {needed}, and there are {memory_bytes}; allow more memory, or \
         give cache=auto without a size"
    ))
}

impl Caches {
    /// No caches.
    pub(crate) fn empty() -> Self {
        Self { policy: "nothing", ..Self::default() }
    }

    /// Fills caches of at most `memory.budget` bytes; by `counted`, where the policy counts accesses.
    pub(crate) fn new(
        graph: &DiskGraph<'_>,
        files: &Files,
        (seeds, settings, fanouts): (&[u32], &SamplerSettings, HopFanouts<'_>),
        options: &Options,
        CacheMemory { budget, least, has_types }: CacheMemory,
        counted: Option<Counted>,
    ) -> Result<Self> {
        let fits = |kind: &PolicyKind| bytes_to_fill(*kind, graph.num_nodes, settings) <= budget;
        if let (Some(eviction), [matrix]) = (eviction(options.cache), &files.features[..]) {
            return Ok(Self::dynamic(eviction, matrix, options, budget));
        }
        let kind = match options.cache {
            CachePolicy::None | CachePolicy::Lru | CachePolicy::Sieve => None,
            // A policy that does not fit is replaced by a simpler one: so small a cache loses little.
            CachePolicy::Auto => {
                let fits = |kind: &PolicyKind| {
                    let scanned = !kind.scans_by_type(settings) || graph.sub_rows.is_some() || !has_types;
                    scanned && fits(kind)
                };
                [PolicyKind::Inclusion, PolicyKind::InDegree].into_iter().find(fits)
            }
            CachePolicy::By(kind) => Some(kind),
        };
        let Some(kind) = kind else { return Ok(Self::empty()) };
        let hotness = match (counted, kind.policy(settings.seed)) {
            (Some(Counted { hotness, batches }), _) if matches!(kind, PolicyKind::Smoothed { .. }) => {
                Smoothed::mix(hotness, batches, graph, seeds, settings)?
            }
            (Some(counted), _) => counted.hotness,
            (None, Some(policy)) => policy.score(graph, seeds, settings)?,
            (None, None) => unreachable!("{kind} is counted before caches are filled"),
        };
        let budget = options.cache_bytes.map_or(budget, |bytes| bytes.min(budget));
        let replay = Replay::new(graph, files, &hotness, (seeds.len(), settings, fanouts));
        // With less memory the operator would be another one: offsets on disk, or entries ranked by another policy.
        let least = bytes_to_fill(kind, graph.num_nodes, settings).max(graph.offsets.num_bytes()).max(least);
        let (replayed, reader) = (kind.is_in_accesses(), || files.reader(options));
        let Selected { shares: [features, lists], slopes, shape } = select(&replay, replayed, reader, least, budget)?;
        // A size that the user gives is not to be chosen.
        let shape = shape.filter(|_| options.cache_bytes.is_none());
        drop(hotness);
        let bytes: u64 = [&features, &lists].into_iter().flatten().map(|share| share.bytes).sum();
        let features = features.map(|share| {
            let mut reader = graph.reader.borrow_mut();
            let matrix = |matrix: &FeatureRows| NodeMatrix { nodes: matrix.nodes.clone(), row_bytes: matrix.rows.unit };
            let matrices = files.features.iter().map(matrix).collect();
            let fill = |index: usize, nodes: &mut dyn Iterator<Item = u32>, rows: &mut [u8]| {
                fill(&files.features[index], &mut reader, nodes, rows)
            };
            MatricesCache::new(share.map, matrices, fill).map(CachedRows::Static)
        });
        let lists = lists.map(|share| adjacency_cache(graph, share.map));
        let caches =
            Self { features: features.transpose()?, lists: lists.transpose()?, policy: kind.name(), slopes, shape };
        assert_eq!(caches.num_bytes(), bytes, "bytes of the caches, and of their division of {budget} bytes");
        Ok(caches)
    }

    /// Feature rows that come and go, and no lists.
    fn dynamic(eviction: Eviction, matrix: &FeatureRows, options: &Options, budget: u64) -> Self {
        let budget = options.cache_bytes.map_or(budget, |bytes| bytes.min(budget));
        let policy = if eviction == Eviction::Lru { "lru" } else { "sieve" };
        let rows = CachedRows::dynamic(eviction, (matrix.nodes.len(), matrix.rows.unit), budget);
        Self { features: Some(rows), policy, ..Self::default() }
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let features = self.features.as_ref().map_or(0, CachedRows::num_bytes);
        features + self.lists.as_ref().map_or(0, AdjacencyCache::num_bytes)
    }
}

/// What each kind gets of a budget, the slopes by which it was divided, and what other budgets would save.
struct Selected {
    shares: [Option<CacheShare>; 2],
    slopes: Option<Slopes>,
    shape: Option<Shape>,
}

/// Divides `budget` bytes by measured slopes where the misses of a mini-batch are then read in clearly less time than by blocks, else
/// by these; misses are `replayed` if the scores are accesses, else measured slopes are believed. Where all entries fit, nothing is measured. `least` is the smallest
/// budget that could be given instead.
fn select(
    replay: &Replay<'_>,
    replayed: bool,
    reader: impl FnOnce() -> Result<Reader>,
    least: u64,
    budget: u64,
) -> Result<Selected> {
    let Replay { graph, files, settings, fanouts, .. } = *replay;
    let (num_nodes, num_edges) = (u64::from(graph.num_nodes), files.indices.len);
    let neighbors = AdjacencyCache::BYTES_A_NEIGHBOR * num_edges.min(AdjacencyCache::MAX_NEIGHBORS);
    let rows: u64 = files.features.iter().map(|matrix| matrix.rows.len * matrix.rows.unit as u64).sum();
    let tables = 2 * NodeMap::num_bytes_of(graph.num_nodes as usize) + AdjacencyCache::BYTES;
    let all = tables + rows + num_nodes * AdjacencyCache::BYTES_A_LIST + neighbors;
    // Only a graph of more neighbours than a cache may hold needs the limit.
    let most = if num_edges > AdjacencyCache::MAX_NEIGHBORS { neighbors } else { all };
    let budget = if num_edges > AdjacencyCache::MAX_NEIGHBORS { budget.min(most) } else { budget };
    if all <= budget {
        let same = Slopes { row: Curve::new([(1.0, 1.0)]), list: Curve::new([(1.0, 1.0)]) };
        return Ok(Selected { shares: divide(replay, &same, budget), slopes: None, shape: None });
    }
    let mut reader = reader()?;
    let slopes = slopes::measure(graph, files, (fanouts, settings.seed), &mut reader)?;
    let [blocks, measured] = [by_blocks(&slopes, files), slopes].map(|s| (divide(replay, &s, budget), s));
    if !replayed {
        let (shares, slopes) = measured;
        return Ok(Selected { shares, slopes: Some(slopes), shape: None });
    }
    let (shares, slopes) = faster(measured, blocks, replay, &mut reader)?;
    let shape = with_kinds(replay, &slopes, |kinds| Shape::new(graph.num_nodes, kinds, (least, budget, most)));
    Ok(Selected { shares, slopes: Some(slopes), shape })
}

/// Slopes by which a feature row saves a read, and a list as many as it has blocks, [`MOST_BLOCKS`] at most: what they save where
/// accesses are so dense that reads cover most of the file, and only long gaps spare any. Of feature rows of different length, one
/// saves as much more than the shortest as it has more blocks.
fn by_blocks(measured: &Slopes, files: &Files) -> Slopes {
    let shortest = |curve: &Curve| curve.points().iter().map(|&(_, seconds)| seconds).fold(f64::INFINITY, f64::min);
    let read = shortest(&measured.list);
    let read = if read.is_finite() { read } else { shortest(&measured.row) };
    let read = if read.is_finite() { read } else { 0.0 };
    let blocks = |bytes: usize| bytes.div_ceil(BLOCK_BYTES).max(1) as f64;
    let widths = files.features.iter().map(|matrix| matrix.rows.unit);
    let least = widths.clone().map(blocks).fold(f64::INFINITY, f64::min);
    let row = Curve::new(widths.map(|bytes| (bytes as f64, read * blocks(bytes) / least)));
    // After a whole number of blocks, the next neighbour takes another one.
    let step = |blocks: f64| [(blocks * BLOCK_NEIGHBORS, blocks), (blocks * BLOCK_NEIGHBORS + 1.0, blocks + 1.0)];
    let steps = (1..MOST_BLOCKS).map(f64::from).flat_map(step).chain([step(MOST_BLOCKS.into())[0]]);
    Slopes { row, list: Curve::new(steps.map(|(neighbors, blocks)| (neighbors, blocks * read))) }
}

/// What each kind gets of a budget, and the slopes by which it was divided.
type Division = ([Option<CacheShare>; 2], Slopes);

/// The division by measured slopes if its misses are read in less than [`FASTER`] of the time, or it differs in nothing.
fn faster(measured: Division, blocks: Division, replay: &Replay<'_>, reader: &mut Reader) -> Result<Division> {
    let maps = |division: &Division| division.0.each_ref().map(|share| share.as_ref().map(|s| s.map.clone()));
    if maps(&measured) == maps(&blocks) {
        return Ok(measured);
    }
    let mut least = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for ((shares, _), least) in [&measured, &blocks].into_iter().zip(&mut least) {
            *least = least.min(replay.seconds(shares.each_ref().map(Option::as_ref), reader)?);
        }
    }
    Ok(if least[0] < FASTER * least[1] { measured } else { blocks })
}

/// Divides `budget` bytes between feature rows and adjacency lists.
fn divide(replay: &Replay<'_>, slopes: &Slopes, budget: u64) -> [Option<CacheShare>; 2] {
    with_kinds(replay, slopes, |kinds| allocate(replay.graph.num_nodes, kinds, budget))
}

/// Does `work` with the feature rows and the adjacency lists as the allocator sees them.
fn with_kinds<R>(replay: &Replay<'_>, slopes: &Slopes, work: impl FnOnce([Kind<'_>; 2]) -> R) -> R {
    let Replay { graph, files, hotness, .. } = *replay;
    let map_bytes = NodeMap::num_bytes_of(graph.num_nodes as usize);
    // Nodes in ascending order find their matrix by the one before; a node of a type without features has none.
    let ends: Vec<(u32, Option<(u64, f64)>)> = widths(files, slopes, graph.num_nodes);
    let row_of = |v: u32| ends[ends.partition_point(|&(end, _)| end <= v)].1;
    let degree = |v: u32| u64::from(graph.row(v).degree);
    let rows = Kind {
        saving: &|v| row_of(v).map_or(0.0, |(_, seconds)| (f64::from(hotness.features[v as usize]) * seconds) as f32),
        bytes: &|v| row_of(v).map_or(0, |(bytes, _)| bytes),
        tables: map_bytes,
    };
    let lists = Kind {
        saving: &|v| match degree(v) {
            0 => 0.0,
            degree => (f64::from(hotness.rows[v as usize]) * slopes.list.at(degree as f64)) as f32,
        },
        bytes: &|v| AdjacencyCache::BYTES_A_LIST + AdjacencyCache::BYTES_A_NEIGHBOR * degree(v),
        tables: map_bytes + AdjacencyCache::BYTES,
    };
    work([rows, lists])
}

/// Bytes of a row, and seconds that a hit saves, of each range of nodes that ends before a node; `None` of nodes without features.
fn widths(files: &Files, slopes: &Slopes, num_nodes: u32) -> Vec<(u32, Option<(u64, f64)>)> {
    let mut ends = Vec::new();
    for FeatureRows { rows, nodes, .. } in &files.features {
        ends.push((nodes.start, None));
        ends.push((nodes.end, Some((rows.unit as u64, slopes.row.at(rows.unit as f64)))));
    }
    ends.push((num_nodes, None));
    ends
}

/// Reads the feature rows of some nodes of a matrix.
fn fill(
    matrix: &FeatureRows,
    reader: &mut Reader,
    nodes: &mut dyn Iterator<Item = u32>,
    rows: &mut [u8],
) -> Result<()> {
    let unit = matrix.rows.unit;
    for part in rows.chunks_mut(FILL * unit) {
        // `zip` must end by its first iterator: a node taken beyond this part would be lost to the next.
        let indices = 0..(part.len() / unit) as u32;
        let fetches: Vec<Fetch> = indices.zip(&mut *nodes).map(|(to, node)| matrix.fetch(node, to)).collect();
        matrix.rows.read(reader, &fetches, part)?;
    }
    Ok(())
}

/// Reads the in-neighbours of `map`'s nodes, in one pass over all of them.
fn adjacency_cache(graph: &DiskGraph<'_>, map: NodeMap) -> Result<AdjacencyCache> {
    AdjacencyCache::new(
        map,
        |node| u64::from(graph.row(node).degree),
        |map, lists| {
            let mut end = 0;
            graph.scan(&mut |node, neighbors| {
                if map.get(node).is_some() {
                    lists[end..end + neighbors.len()].copy_from_slice(neighbors);
                    end += neighbors.len();
                }
            })
        },
    )
}
