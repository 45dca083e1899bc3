//! Caches of CSR rows and feature rows: a knapsack by saved reads per byte.

use std::cell::RefCell;
use std::fmt;

use morphgl_feature_cache::{FeatureCache, NodeMap};
use morphgl_hotness::{Cut, Graph, Hotness, InDegree, Inclusion, Kind, Policy};
use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::{Expansion, Result, SamplerSettings};

use crate::files::{Files, OnDisk};
use crate::offsets::{CsrRow, Offsets};
use crate::options::HotnessPolicy;

/// Neighbours per read of a pass over the array.
const PASS: usize = 1 << 21;
/// Feature rows per read when the cache is filled.
const FILL: usize = 1 << 13;
/// Bytes of a CSR row that cost about one read; longer rows cost several.
const READ: u64 = 4096;

/// The caches, and the policy that selected their rows.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) features: Option<FeatureCache>,
    pub(crate) rows: Option<RowCache>,
    /// Name of the hotness policy.
    pub(crate) policy: &'static str,
}

/// Cached CSR rows.
pub(crate) struct RowCache {
    map: NodeMap,
    // Invariant: one more than cached nodes, ascending, and the last is the number of `ids`.
    starts: Vec<u32>,
    ids: Vec<u32>,
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowCache({} rows, {} neighbours)", self.map.len(), self.ids.len())
    }
}

impl RowCache {
    /// All in-neighbours of `node`, if its row is cached.
    #[inline]
    pub(crate) fn get(&self, node: u32) -> Option<&[u32]> {
        let slot = self.map.get(node)?;
        Some(&self.ids[self.starts[slot] as usize..self.starts[slot + 1] as usize])
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.map.num_bytes() + 4 * (self.starts.len() + self.ids.len()) as u64
    }
}

/// The graph in its file, its offsets in memory.
pub(crate) struct DiskGraph<'a> {
    pub(crate) indices: &'a OnDisk,
    pub(crate) offsets: &'a Offsets,
    pub(crate) num_nodes: u32,
    pub(crate) reader: RefCell<Reader>,
}

impl DiskGraph<'_> {
    fn row(&self, node: u32) -> CsrRow {
        self.offsets.get(node).expect("caches are filled only if offsets are in memory")
    }
}

impl Graph for DiskGraph<'_> {
    fn num_nodes(&self) -> usize {
        self.num_nodes as usize
    }

    fn degree(&self, node: u32) -> Result<u64> {
        Ok(u64::from(self.row(node).degree))
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        let (len, mut node) = (self.indices.len, 0);
        let mut buffer = vec![0u32; PASS.min(len as usize)];
        for first in (0..len).step_by(PASS) {
            let part = &mut buffer[..PASS.min((len - first) as usize)];
            self.indices.pass(&mut self.reader.borrow_mut(), first, bytemuck::cast_slice_mut(part))?;
            check_nodes(self.indices, part, self.num_nodes, |i| first + i as u64)?;
            let end = first + part.len() as u64;
            while node < self.num_nodes {
                let CsrRow { start, degree } = self.row(node);
                let stop = start + u64::from(degree);
                if start >= end {
                    break;
                }
                let piece = start.max(first)..stop.min(end);
                if piece.start < piece.end {
                    row(node, &part[(piece.start - first) as usize..(piece.end - first) as usize]);
                }
                if stop > end {
                    break;
                }
                node += 1;
            }
        }
        Ok(())
    }
}

/// Refuses in-neighbours that do not exist; `element` returns the index in the file.
pub(crate) fn check_nodes(
    indices: &OnDisk,
    nodes: &[u32],
    num_nodes: u32,
    element: impl Fn(usize) -> u64,
) -> Result<()> {
    if nodes.iter().copied().max().is_none_or(|largest| largest < num_nodes) {
        return Ok(());
    }
    let at = nodes.iter().position(|&v| v >= num_nodes).expect("the maximum exists");
    let what = format!("an edge comes from node {}, but there are {num_nodes} nodes", nodes[at]);
    Err(indices.wrong(element(at), what))
}

/// Bytes per node to compute the hotness.
fn bytes_a_node(policy: HotnessPolicy, settings: &SamplerSettings) -> u64 {
    let expansion = settings.sampling.hops().map_or(Expansion::All, |hops| hops.expansion);
    match (policy, expansion) {
        (HotnessPolicy::None, _) => 0,
        (HotnessPolicy::Degree, _) => 4,
        (HotnessPolicy::Inclusion, Expansion::All) => 12,
        (HotnessPolicy::Inclusion, Expansion::New) => 16,
    }
}

impl Caches {
    /// No caches.
    pub(crate) fn empty() -> Self {
        Self { policy: "nothing", ..Self::default() }
    }

    /// Fills caches of at most `budget` bytes, which also limits the memory to compute the hotness.
    pub(crate) fn new(
        graph: &DiskGraph<'_>,
        files: &Files,
        (seeds, settings): (&[u32], &SamplerSettings),
        policy: HotnessPolicy,
        budget: u64,
    ) -> Result<Self> {
        let num_nodes = graph.num_nodes;
        let maps = 2 * NodeMap::num_bytes_of(num_nodes as usize);
        let fits = |policy| maps + u64::from(num_nodes) * bytes_a_node(policy, settings) <= budget;
        // A policy that does not fit is replaced by a simpler one: so small a cache loses little.
        let affordable = [policy, HotnessPolicy::Degree].into_iter().find(|&p| p == HotnessPolicy::None || fits(p));
        let (hotness, policy): (Hotness, _) = match affordable {
            Some(HotnessPolicy::Inclusion) => (Inclusion.score(graph, seeds, settings)?, "inclusion probability"),
            Some(HotnessPolicy::Degree) => (InDegree.score(graph, seeds, settings)?, "in-degree"),
            _ => return Ok(Self::empty()),
        };
        let feature_bytes = files.features.as_ref().map_or(0, |f| f.unit as u64);
        let features = Kind {
            saving: &|v| if feature_bytes > 0 { hotness.features[v as usize] } else { 0.0 },
            bytes: &|_| feature_bytes,
        };
        let row_bytes = |v: u32| 4 * u64::from(graph.row(v).degree);
        let rows = Kind {
            saving: &|v| match row_bytes(v) {
                0 => 0.0,
                bytes => hotness.rows[v as usize] * bytes.div_ceil(READ).min(8) as f32,
            },
            bytes: &|v| row_bytes(v) + 4,
        };
        // Positions in the row cache have 32 bits.
        let budget = (budget - maps).saturating_sub(8).min(u64::from(u32::MAX) * 4 - 8);
        let kinds = [features, rows];
        let mut cut = Cut::new(num_nodes, &kinds, budget);
        let feature_map = NodeMap::new(num_nodes as usize, |v| cut.holds(&kinds[0], v));
        let row_map = NodeMap::new(num_nodes as usize, |v| cut.holds(&kinds[1], v));
        drop(hotness);
        let features = files.features.as_ref().filter(|f| f.unit > 0);
        let features = features.map(|on_disk| {
            let mut reader = graph.reader.borrow_mut();
            FeatureCache::new(feature_map, on_disk.unit, |map, rows| fill(on_disk, &mut reader, map, rows))
        });
        Ok(Self { features: features.transpose()?, rows: Some(row_cache(graph, row_map)?), policy })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let features = self.features.as_ref().map_or(0, FeatureCache::num_bytes);
        features + self.rows.as_ref().map_or(0, RowCache::num_bytes)
    }
}

/// Reads the feature rows of `map`.
fn fill(on_disk: &OnDisk, reader: &mut Reader, map: &NodeMap, rows: &mut [u8]) -> Result<()> {
    let mut nodes = map.nodes();
    for part in rows.chunks_mut(FILL * on_disk.unit) {
        // `zip` must end by its first iterator: a node taken beyond this part would be lost to the next.
        let indices = 0..(part.len() / on_disk.unit) as u32;
        let fetches: Vec<Fetch> =
            indices.zip(&mut nodes).map(|(to, node)| Fetch { element: node.into(), to }).collect();
        on_disk.read(reader, &fetches, part)?;
    }
    Ok(())
}

/// Reads the in-neighbours of `map`'s nodes, in one pass over all of them.
fn row_cache(graph: &DiskGraph<'_>, map: NodeMap) -> Result<RowCache> {
    let mut starts = Vec::with_capacity(map.len() + 1);
    starts.push(0u32);
    let mut end = 0u64;
    starts.extend(map.nodes().map(|node| {
        end += u64::from(graph.row(node).degree);
        u32::try_from(end).expect("the budget limits the cache to 2^32 neighbours")
    }));
    let mut ids = Vec::with_capacity(end as usize);
    if !map.is_empty() {
        graph.scan(&mut |node, neighbors| {
            if map.get(node).is_some() {
                ids.extend_from_slice(neighbors);
            }
        })?;
    }
    Ok(RowCache { map, starts, ids })
}
