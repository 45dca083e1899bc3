//! Feature cache in the memory of one or several devices, filled by counted accesses.

use morphgl_cuda::{Buffer, Device, Kernel, Pinned, Shape, Spread, Stream};
use morphgl_feature_cache::NodeMap;
use morphgl_graph_store::FeatureMatrix;
use morphgl_hotness::{Cut, Kind};
use morphgl_registry::{Error, Result};

use crate::KERNELS;

/// Bytes of rows gathered and uploaded at a time while a cache is filled.
const CHUNK: usize = 32 << 20;
/// Bytes per cached row for its rank, with several devices; bytes per device for its address.
const RANK: u64 = 4;
const ADDRESS: u64 = 8;

/// Cached rows, and a bitmap with prefix counts: bit `node % 64` of word `node / 64` marks a cached node, whose position is
/// the number of bits before it.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) held: Buffer<u64>,
    pub(crate) before: Buffer<u32>,
    /// Hotness rank of each cached row, with several devices.
    pub(crate) ranks: Option<Buffer<u32>>,
    /// The rows, one part per device: in node order on a single device, else rank `r` is row `r / devices` of device
    /// `r % devices`.
    pub(crate) rows: Spread<u8>,
    len: usize,
    host_share: f64,
}

impl Cache {
    /// Number of cached rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Expected miss rate: share of accesses to rows that are not cached, by the hotness they were chosen by.
    pub(crate) fn host_share(&self) -> f64 {
        self.host_share
    }

    /// Whether all rows fit the budgets, given in bytes with a stream of each device, as [`Cache::fill`] counts them.
    pub(crate) fn holds_all(devices: &[(&Stream, u64)], matrix: &FeatureMatrix) -> bool {
        let num_nodes = matrix.num_rows();
        most_rows(devices, num_nodes, matrix.row_bytes() as u64).is_some_and(|most| most >= num_nodes as u64)
    }

    /// Number of cached rows by device.
    pub(crate) fn held_by(&self) -> impl Iterator<Item = (&Device, usize)> {
        let (len, devices) = (self.len, self.rows.parts().len());
        self.rows.parts().iter().enumerate().map(move |(i, part)| (part.device(), (len + devices - 1 - i) / devices))
    }

    /// Caches the hottest rows of `matrix` that fit the budgets, given in bytes with a stream of each device; the first device
    /// gathers, and its budget includes the lookup tables. `None` if no row is worth caching.
    pub(crate) fn fill(devices: &[(&Stream, u64)], matrix: &FeatureMatrix, hotness: &[f32]) -> Result<Option<Self>> {
        let (num_nodes, row_bytes) = (matrix.num_rows(), matrix.row_bytes());
        let Some(most) = most_rows(devices, num_nodes, row_bytes as u64) else { return Ok(None) };
        let kind = Kind { saving: &|node| hotness[node as usize], bytes: &|_| 1 };
        let mut cut = Cut::new(num_nodes as u32, std::slice::from_ref(&kind), most);
        let map = NodeMap::new(num_nodes, |node| cut.holds(&kind, node));
        if map.is_empty() {
            return Ok(None);
        }
        let mut nodes: Vec<u32> = map.nodes().collect();
        let all: f64 = hotness.iter().map(|&heat| f64::from(heat)).sum();
        let held_of_all: f64 = nodes.iter().map(|&node| f64::from(hotness[node as usize])).sum();
        // Rounding must not make the share negative.
        let host_share = (1.0 - held_of_all / all).max(0.0);
        let own = devices[0].0;
        let ranks = (devices.len() > 1).then(|| Buffer::of(own, &rank(&mut nodes, hotness))).transpose()?;
        let (held, before): (Vec<u64>, Vec<u32>) = map.words().unzip();
        let (held, before) = (Buffer::of(own, &held)?, Buffer::of(own, &before)?);
        let mut parts = Vec::with_capacity(devices.len());
        for (i, (stream, _)) in devices.iter().enumerate() {
            let of_part: Vec<u32> = nodes.iter().copied().skip(i).step_by(devices.len()).collect();
            parts.push(send_rows(stream, matrix, &of_part).map_err(|e| on(stream.device(), e))?);
        }
        Ok(Some(Self { held, before, ranks, rows: Spread::new(own, parts)?, len: map.len(), host_share }))
    }
}

/// Number of rows that fit the budgets round-robin; `None` if the first device has no room for the tables.
fn most_rows(devices: &[(&Stream, u64)], num_nodes: usize, row_bytes: u64) -> Option<u64> {
    let (row_bytes, num_devices) = (row_bytes.max(1), devices.len() as u64);
    let tables = NodeMap::num_bytes_of(num_nodes) + ADDRESS * num_devices;
    let ranks = if num_devices > 1 { RANK * num_devices } else { 0 };
    let own = devices[0].1.checked_sub(tables)? / (row_bytes + ranks);
    let others = devices.iter().zip(0u64..).skip(1);
    // Round-robin: a device has as many rows as those before it, or one less.
    let most = others.map(|((_, budget), i)| (budget / row_bytes).saturating_mul(num_devices).saturating_add(i)).min();
    Some(own.saturating_mul(num_devices).min(most.unwrap_or(u64::MAX)))
}

/// Sorts nodes by hotness, the hottest first; returns the rank of each former position.
fn rank(nodes: &mut [u32], hotness: &[f32]) -> Vec<u32> {
    let mut places: Vec<u32> = (0..nodes.len() as u32).collect();
    let heat = |place: u32| hotness[nodes[place as usize] as usize];
    places.sort_unstable_by(|&a, &b| heat(b).total_cmp(&heat(a)).then(a.cmp(&b)));
    let sorted: Vec<u32> = places.iter().map(|&place| nodes[place as usize]).collect();
    let mut ranks = vec![0; nodes.len()];
    (0u32..).zip(&places).for_each(|(rank, &place)| ranks[place as usize] = rank);
    nodes.copy_from_slice(&sorted);
    ranks
}

/// Uploads the rows of `nodes`, packed.
fn send_rows(stream: &Stream, matrix: &FeatureMatrix, nodes: &[u32]) -> Result<Buffer<u8>> {
    let row_bytes = matrix.row_bytes();
    let mut sent = Buffer::new(stream, nodes.len() * row_bytes)?;
    let mut at = 0;
    for nodes in nodes.chunks((CHUNK / row_bytes.max(1)).max(1)) {
        let mut rows = Pinned::<u8>::new(stream.device(), nodes.len() * row_bytes)?;
        matrix.par_gather_rows(nodes, &mut rows);
        stream.copy(&rows, 0..rows.len(), &mut sent, at)?;
        at += rows.len();
    }
    Ok(sent)
}

/// Adds the device to an error.
fn on(device: &Device, error: Error) -> Error {
    Error { context: format!("{}, rows on {}", error.context, device.place()), ..error }
}

/// Access counters during pre-sampling.
#[derive(Debug)]
pub(crate) struct Counts {
    accesses: Buffer<u32>,
    kernel: Kernel,
    /// Mini-batches left to count.
    left: u32,
}

impl Counts {
    pub(crate) fn new(stream: &Stream, num_nodes: usize, batches: u32) -> Result<Self> {
        let mut accesses = Buffer::new(stream, num_nodes)?;
        stream.fill(&mut accesses, 0)?;
        Ok(Self { accesses, kernel: KERNELS.kernel(stream.device(), "gather_count")?, left: batches })
    }

    /// Counts the first `len` of `nodes`; returns whether this was the last mini-batch to count.
    pub(crate) fn add(&mut self, stream: &Stream, nodes: &Buffer<u32>, len: usize) -> Result<bool> {
        let arguments = &mut [nodes.into(), (len as u32).into(), (&mut self.accesses).into()];
        // SAFETY: the arguments are the kernel's, and nodes are those of the dataset.
        unsafe { stream.launch(&self.kernel, Shape::covering(len, 256), arguments)? };
        self.left = self.left.saturating_sub(1);
        Ok(self.left == 0)
    }

    /// Downloads the counts.
    pub(crate) fn hotness(&self, stream: &Stream) -> Result<Vec<f32>> {
        Ok(self.accesses.to_vec(stream)?.into_iter().map(|count| count as f32).collect())
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use super::*;
    use crate::KEY;

    fn streams(devices: usize) -> Vec<Stream> {
        let device = |i| Device::open(&format!("cuda:{i}").parse().expect("a place"), &KEY).expect("it is emulated");
        (0..devices).map(|i| Stream::new(&device(i), true).expect("a stream")).collect()
    }

    #[track_caller]
    fn check(hotness: &[f32], budgets: &[u64], expected: &[&[u8]]) {
        let matrix = FeatureMatrix::U8 { data: (0..20).collect::<Vec<u8>>().into(), dim: 2 };
        let streams = streams(budgets.len());
        let devices: Vec<_> = streams.iter().zip(budgets.iter().copied()).collect();
        let Some(cache) = Cache::fill(&devices, &matrix, hotness).expect("there is room") else {
            return assert!(expected.is_empty(), "nothing is held");
        };
        let down = |(stream, part): (&Stream, &Buffer<u8>)| {
            part.to_vec(stream).expect("done").iter().step_by(2).map(|first| first / 2).collect::<Vec<u8>>()
        };
        let parts: Vec<Vec<u8>> = streams.iter().zip(cache.rows.parts()).map(down).collect();
        assert_eq!(parts, expected, "nodes on each device");
        assert_eq!(cache.len(), parts.iter().map(Vec::len).sum::<usize>());
        assert_eq!(
            cache.held_by().map(|(_, rows)| rows).collect::<Vec<_>>(),
            parts.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }

    #[test]
    fn rows_go_round_the_devices_by_rank() {
        let hotness = [5.0, 0.0, 9.0, 1.0, 7.0, 7.0, 0.5, 8.0, 2.0, 3.0];
        // By rank: 2, 7, 4, 5, 0, 9, 8, 3, 6. A word of the map takes 16 bytes, a rank 4, an address 8.
        check(&hotness, &[16 + 8 + 3 * 2], &[&[2, 4, 7]]);
        check(&hotness, &[u64::MAX], &[&[0, 2, 3, 4, 5, 6, 7, 8, 9]]);
        check(&hotness, &[u64::MAX; 2], &[&[2, 4, 0, 8, 6], &[7, 5, 9, 3]]);
        check(&hotness, &[u64::MAX; 3], &[&[2, 5, 8], &[7, 0, 3], &[4, 9, 6]]);
        // The smallest budget decides for all: two rows and their ranks, or two rows and then one more.
        check(&hotness, &[16 + 16 + 2 * (2 + 2 * 4), u64::MAX], &[&[2, 4], &[7, 5]]);
        check(&hotness, &[16 + 16 + 2 * (2 + 2 * 4) - 1, u64::MAX], &[&[2], &[7]]);
        check(&hotness, &[u64::MAX, 2 * 2], &[&[2, 4, 0], &[7, 5]]);
        check(&hotness, &[u64::MAX, u64::MAX, 1], &[&[2], &[7], &[]]);
        check(&hotness, &[16 + 16 - 1, u64::MAX], &[]);
    }
}
