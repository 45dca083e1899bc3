//! Rows in the memory of devices, which all gathers of a process share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use morphgl_cuda::{Buffer, Pinned, Stream};
use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::{Error, Result};
use morphgl_row_cache::NodeMap;

/// Bytes of rows gathered and uploaded at a time while a pool is filled.
const CHUNK: usize = 32 << 20;
/// Bytes per cached row for its rank, with several devices; bytes per device for its address.
pub(crate) const RANK: u64 = 4;
pub(crate) const ADDRESS: u64 = 8;

/// Copies the rows of nodes.
pub(crate) type ReadRows<'a> = &'a dyn Fn(&[u32], &mut [u8]) -> Result<()>;

/// Rows of one feature matrix on one or several devices: the hottest on each of them, the others on one each (Data Tiering, §4 and
/// Appendix A).
#[derive(Debug)]
pub(crate) struct Pool {
    /// The nodes whose rows are there.
    pub(crate) map: NodeMap,
    /// Hotness rank of each row, with several devices and rows of other nodes than the first ones.
    pub(crate) ranks: Option<Vec<u32>>,
    /// The rows, one part per device: in node order on a single device; else the `replicated` first ranks on each, and of the later
    /// ones number `r` as row `r / devices` of device `r % devices`. Without ranks a row's rank is its position.
    pub(crate) parts: Arc<[Buffer<u8>]>,
    /// Number of hottest rows that every device has, with several devices.
    pub(crate) replicated: u32,
    /// Expected miss rate: share of accesses to rows that are not there, by the hotness they were chosen by.
    pub(crate) host_share: f64,
    /// Address of the matrix.
    matrix: usize,
}

impl Pool {
    /// Uploads the rows of the nodes of `map`: the hottest `replicated` to every device, the hottest of the others to the first, and so on
    /// round-robin.
    pub(crate) fn new(
        devices: &[(&Stream, u64)],
        (matrix, read): (&FeatureMatrix, ReadRows<'_>),
        (map, replicated): (NodeMap, u32),
        hotness: &[f32],
    ) -> Result<Self> {
        let mut nodes: Vec<u32> = map.nodes().collect();
        let replicated = if devices.len() > 1 { replicated } else { 0 };
        let all: f64 = hotness.iter().map(|&heat| f64::from(heat)).sum();
        let cached: f64 = nodes.iter().map(|&node| f64::from(hotness[node as usize])).sum();
        // Rounding must not make the share negative.
        let host_share = (1.0 - cached / all).max(0.0);
        let ranks = (devices.len() > 1 && !map.is_prefix()).then(|| rank(&mut nodes, hotness));
        let (everywhere, spread) = nodes.split_at((replicated as usize).min(nodes.len()));
        let upload = |(i, (stream, _)): (usize, &(&Stream, u64))| {
            let part: Vec<u32> =
                everywhere.iter().chain(spread.iter().skip(i).step_by(devices.len())).copied().collect();
            // Errors name the device, which may be a peer.
            upload_rows(stream, (matrix.row_bytes(), read), &part)
                .map_err(|e| Error { context: format!("{}, rows on {}", e.context, stream.device().place()), ..e })
        };
        let parts: Arc<[Buffer<u8>]> = devices.iter().enumerate().map(upload).collect::<Result<_>>()?;
        let replicated = everywhere.len() as u32;
        Ok(Self { map, ranks, parts, replicated, host_share, matrix: address(matrix) })
    }

    /// Bytes that a gathering device needs to find rows of a matrix of `num_nodes` rows.
    pub(crate) fn table_bytes(&self, num_nodes: usize) -> u64 {
        let tables = if self.map.is_prefix() { 0 } else { NodeMap::num_bytes_of(num_nodes) };
        tables + ADDRESS * self.parts.len() as u64 + self.ranks.as_ref().map_or(0, |ranks| RANK * ranks.len() as u64)
    }

    /// Number of rows of each part.
    pub(crate) fn rows_by_part(&self) -> impl Iterator<Item = usize> {
        let (replicated, num_parts) = (self.replicated as usize, self.parts.len());
        let spread = self.map.len() - replicated;
        (0..num_parts).map(move |i| replicated + (spread + num_parts - 1 - i) / num_parts)
    }

    /// Whether it has rows of `matrix` on exactly these devices.
    fn serves(&self, devices: &[(&Stream, u64)], matrix: &FeatureMatrix) -> bool {
        let is_there = |part: &Buffer<u8>| devices.iter().any(|(stream, _)| stream.device().is(part.device()));
        self.matrix == address(matrix) && self.parts.len() == devices.len() && self.parts.iter().all(is_there)
    }
}

/// The pool of a live gather of the same matrix on the same devices, or the one that `make` makes. A single device's rows belong to
/// its gather alone.
///
/// Gathers that fill their caches at once wait for the first of them.
pub(crate) fn shared(
    devices: &[(&Stream, u64)],
    matrix: &FeatureMatrix,
    make: impl FnOnce() -> Result<Option<Pool>>,
) -> Result<Option<Arc<Pool>>> {
    // The address identifies the matrix: each gather that reads a pool keeps its matrix in memory, and the last one drops the pool.
    static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
    if devices.len() == 1 {
        return Ok(make()?.map(Arc::new));
    }
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    if let Some(pool) = pools.iter().filter_map(Weak::upgrade).find(|pool| pool.serves(devices, matrix)) {
        return Ok(Some(pool));
    }
    let pool = make()?.map(Arc::new);
    pools.extend(pool.as_ref().map(Arc::downgrade));
    Ok(pool)
}

fn address(matrix: &FeatureMatrix) -> usize {
    matrix.view().as_bytes().as_ptr() as usize
}

/// Sorts nodes by hotness, the hottest first; returns the rank of each former position.
fn rank(nodes: &mut [u32], hotness: &[f32]) -> Vec<u32> {
    let mut positions: Vec<u32> = (0..nodes.len() as u32).collect();
    let heat = |position: u32| hotness[nodes[position as usize] as usize];
    positions.sort_unstable_by(|&a, &b| heat(b).total_cmp(&heat(a)).then(a.cmp(&b)));
    let sorted: Vec<u32> = positions.iter().map(|&position| nodes[position as usize]).collect();
    let mut ranks = vec![0; nodes.len()];
    (0u32..).zip(&positions).for_each(|(rank, &position)| ranks[position as usize] = rank);
    nodes.copy_from_slice(&sorted);
    ranks
}

/// Uploads the rows of `nodes`, packed.
fn upload_rows(stream: &Stream, (row_bytes, read): (usize, ReadRows<'_>), nodes: &[u32]) -> Result<Buffer<u8>> {
    let mut uploaded = Buffer::new(stream, nodes.len() * row_bytes)?;
    let mut at = 0;
    for nodes in nodes.chunks((CHUNK / row_bytes.max(1)).max(1)) {
        let mut chunk = Pinned::<u8>::new(stream.device(), nodes.len() * row_bytes)?;
        read(nodes, &mut chunk)?;
        stream.copy(&chunk, 0..chunk.len(), &mut uploaded, at)?;
        at += chunk.len();
    }
    Ok(uploaded)
}
