//! Feature cache in the memory of one or several devices, filled by counted accesses.

use std::sync::Arc;

use morphgl_cuda::{Buffer, Device, Kernel, Pinned, RowTable, Shape, ShardedBuffer, Stream};
use morphgl_dual_cache::{CacheShare, Kind, allocate};
use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::Result;
use morphgl_row_cache::NodeMap;

use crate::KERNELS;
use crate::pool::{self, ADDRESS, Pool, RANK, ReadRows};
use crate::replication::{Replication, Rows, fastest};

/// A bitmap with prefix counts: bit `node % 64` of word `node / 64` marks a cached node, whose position is the number of bits
/// before it.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) bitmap: Buffer<u64>,
    pub(crate) prefix_counts: Buffer<u32>,
}

/// Rows in the memory of devices, as the kernel finds them; see its `Table`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceRows<'a> {
    pub(crate) tables: Option<&'a Tables>,
    pub(crate) first_nodes: u32,
    pub(crate) ranks: Option<&'a Buffer<u32>>,
    pub(crate) parts: &'a ShardedBuffer<u8>,
    pub(crate) own: u32,
    pub(crate) replicated: u32,
}

/// Cached rows, and what finds them.
#[derive(Debug)]
pub(crate) struct Cache {
    /// `None` where the first nodes are cached, as of a dataset reordered by hotness: a row's position is its number.
    pub(crate) tables: Option<Tables>,
    /// Hotness rank of each cached row, with several devices; without tables its position.
    pub(crate) ranks: Option<Buffer<u32>>,
    /// The pool's rows, as this device reads them.
    pub(crate) rows: ShardedBuffer<u8>,
    /// The part of these rows that lies on this device.
    pub(crate) own: u32,
    count_hits: Kernel,
    /// The rows, which gathers of other devices may read, too.
    pub(crate) pool: Arc<Pool>,
}

impl Cache {
    /// Whether all rows fit the budgets, given in bytes of each device, as [`Cache::fill`] counts them: all nodes need no tables.
    pub(crate) fn fits_all(budgets: &[u64], matrix: &FeatureMatrix, replication: Replication) -> bool {
        let replicated = match replication {
            Replication::Rows(rows) => rows,
            Replication::Fastest(_) => 0,
        };
        let tables = first_nodes_bytes(budgets.len() as u64);
        let room = max_rows(budgets, tables, matrix.row_bytes() as u64, replicated);
        room.is_some_and(|rows| rows.cached >= matrix.num_rows() as u64)
    }

    /// Least bytes of the gathering device for its tables and a row, where the budgets have no room for them.
    pub(crate) fn needed_for_a_row(budgets: &[u64], matrix: &FeatureMatrix) -> Option<u64> {
        let (num_nodes, row_bytes) = (matrix.num_rows(), matrix.row_bytes() as u64);
        let (tables, ranks) = table_bytes(budgets.len() as u64, num_nodes);
        let room = max_rows(budgets, (tables, ranks), row_bytes, 0);
        room.is_none_or(|rows| rows.cached < budgets.len() as u64).then_some(tables + ranks + row_bytes)
    }

    /// Rows that are cached with so many bytes of each of `num_devices` devices and so many rows replicated, or fewer.
    pub(crate) fn room(num_devices: usize, matrix: &FeatureMatrix, bytes: u64, replicated: u32) -> Rows {
        let tables = table_bytes(num_devices as u64, matrix.num_rows());
        let rows = max_rows(&vec![bytes; num_devices], tables, matrix.row_bytes() as u64, replicated);
        rows.unwrap_or(Rows { cached: 0, replicated: 0 })
    }

    /// Bytes of the gathering device for its tables, and for one row more with `num_devices` devices, each of which holds as many.
    pub(crate) fn bytes(num_devices: usize, matrix: &FeatureMatrix) -> (u64, u64) {
        let (tables, ranks) = table_bytes(num_devices as u64, matrix.num_rows());
        (tables, matrix.row_bytes() as u64 + ranks)
    }

    /// Bytes of the gathering device that it takes, as budgets count them.
    pub(crate) fn num_bytes(&self, matrix: &FeatureMatrix) -> u64 {
        let rows = self.pool.rows_by_part().nth(self.own as usize).unwrap_or(0) as u64;
        self.pool.table_bytes(matrix.num_rows()) + rows * matrix.row_bytes() as u64
    }

    /// The nodes whose rows are cached.
    pub(crate) fn map(&self) -> &NodeMap {
        &self.pool.map
    }

    /// Number of cached rows by device, in the order of the pool.
    pub(crate) fn rows_by_device(&self) -> impl Iterator<Item = (&Device, usize)> {
        self.rows.parts().iter().map(Buffer::device).zip(self.pool.rows_by_part())
    }

    /// Caches the hottest rows of `matrix`, which `read` copies, that fit the budgets, given in bytes with a stream of each device; the
    /// first device gathers, and its budget includes the lookup tables, which are left out where the hottest rows are those of
    /// the first nodes. With several devices each gets as many of the hottest as `replication` says. Where a gather of this process
    /// holds rows of the matrix on the same devices, these are taken, whatever `hotness` is. `None` if no row is worth caching, or the
    /// budget has no room for the tables.
    pub(crate) fn fill(
        devices: &[(&Stream, u64)],
        (matrix, read): (&FeatureMatrix, ReadRows<'_>),
        (hotness, replication): (&[f32], Replication),
    ) -> Result<Option<Self>> {
        let budgets: Vec<u64> = devices.iter().map(|(_, budget)| *budget).collect();
        let make = || match chosen(&budgets, matrix, (hotness, replication)) {
            Some(chosen) => Pool::new(devices, (matrix, read), chosen, hotness).map(Some),
            None => Ok(None),
        };
        let Some(pool) = pool::shared(devices, matrix, make)? else { return Ok(None) };
        let (gathering, budget) = devices[0];
        match pool.table_bytes(matrix.num_rows()) <= budget {
            true => Self::new(gathering, pool).map(Some),
            false => Ok(None),
        }
    }

    /// What the stream's device needs to read the rows of the pool.
    fn new(gathering: &Stream, pool: Arc<Pool>) -> Result<Self> {
        let tables = match pool.map.is_prefix() {
            true => None,
            false => {
                let (bitmap, prefix_counts): (Vec<u64>, Vec<u32>) = pool.map.words().unzip();
                let bitmap = Buffer::of(gathering, &bitmap)?;
                Some(Tables { bitmap, prefix_counts: Buffer::of(gathering, &prefix_counts)? })
            }
        };
        let ranks = pool.ranks.as_ref().map(|ranks| Buffer::of(gathering, ranks)).transpose()?;
        let rows = ShardedBuffer::new(gathering, Arc::clone(&pool.parts))?;
        let count_hits = KERNELS.kernel(gathering.device(), "gather_hits")?;
        let own = pool.parts.iter().position(|part| part.device().is(gathering.device()));
        let own = own.expect("the gathering device is one of the pool's") as u32;
        Ok(Self { tables, ranks, rows, own, count_hits, pool })
    }

    /// The rows of all `num_rows` nodes by number, where this device has them in that order.
    pub(crate) fn table_of_all(&self, num_rows: usize) -> Option<RowTable> {
        let is_whole = self.first_nodes() as usize == num_rows && num_rows > 0;
        let (num_parts, replicated) = (self.pool.parts.len(), self.pool.replicated as usize);
        let is_here = is_whole && (num_parts == 1 || replicated == num_rows);
        is_here.then(|| RowTable::new(Arc::clone(&self.pool.parts), self.own as usize))
    }

    /// The rows as the gather's kernel finds them.
    pub(crate) fn device_rows(&self) -> DeviceRows<'_> {
        DeviceRows {
            tables: self.tables.as_ref(),
            first_nodes: self.first_nodes(),
            ranks: self.ranks.as_ref(),
            parts: &self.rows,
            own: self.own,
            replicated: self.pool.replicated,
        }
    }

    /// Number of cached rows where they are those of the first nodes, found without tables.
    pub(crate) fn first_nodes(&self) -> u32 {
        if self.tables.is_some() { 0 } else { self.map().len() as u32 }
    }

    /// Queues a kernel that counts cache hits among the first `len` of `nodes`, and the copy of the count to the host: read it after
    /// the stream's work.
    pub(crate) fn queue_hits(&self, stream: &Stream, nodes: &Buffer<u32>, len: usize) -> Result<Pinned<u32>> {
        let mut hits = Buffer::new(stream, 1)?;
        stream.fill(&mut hits, 0)?;
        let bitmap = self.tables.as_ref().map(|tables| &tables.bitmap);
        let arguments =
            &mut [nodes.into(), (len as u32).into(), bitmap.into(), self.first_nodes().into(), (&mut hits).into()];
        // SAFETY: the arguments are the kernel's, and nodes are those of the dataset.
        unsafe { stream.launch(&self.count_hits, Shape::covering(len, 256), arguments)? };
        let mut counted = Pinned::new(stream.device(), 1)?;
        stream.copy(&hits, 0..1, &mut counted, 0)?;
        Ok(counted)
    }

    /// Number of `nodes` whose rows are cached, on any device.
    ///
    /// O(nodes), on the host.
    pub(crate) fn hits(&self, nodes: &[u32]) -> usize {
        nodes.iter().filter(|&&node| self.map().get(node).is_some()).count()
    }
}

/// The nodes of the hottest rows that fit the budgets, and the number of those that are replicated, as of [`Cache::fill`]; `None` if
/// none is worth caching.
fn chosen(
    budgets: &[u64],
    matrix: &FeatureMatrix,
    (hotness, replication): (&[f32], Replication),
) -> Option<(NodeMap, u32)> {
    let (num_nodes, row_bytes, num_devices) = (matrix.num_rows(), matrix.row_bytes() as u64, budgets.len() as u64);
    let fitting = |tables: (u64, u64), heat: &dyn Fn() -> Vec<f32>| {
        let room = |replicated| max_rows(budgets, tables, row_bytes, replicated);
        let none = room(0)?;
        match replication {
            Replication::Rows(replicated) => room(replicated),
            Replication::Fastest(seconds) => {
                let room_or_none = |replicated| room(replicated).unwrap_or(none);
                room(fastest(heat().into_iter(), room_or_none, num_devices, seconds))
            }
        }
    };
    let first = fitting(first_nodes_bytes(num_devices), &|| hotness.to_vec());
    if let Some((len, rows)) = first.and_then(|rows| Some((hottest_are_first(hotness, rows.cached)?, rows))) {
        return Some((NodeMap::prefix(len), rows.replicated));
    }
    let sorted = || {
        let mut heat: Vec<f32> = hotness.iter().copied().filter(|&heat| heat > 0.0).collect();
        heat.sort_unstable_by(|a, b| b.total_cmp(a));
        heat
    };
    let rows = fitting(table_bytes(num_devices, num_nodes), &sorted)?;
    // Rows are counted, which all take the same bytes; the tables were charged above.
    let kind = Kind { saving: &|node| hotness[node as usize], bytes: &|_| 1, tables: 0 };
    let [share] = allocate(num_nodes as u32, [kind], rows.cached);
    share.map(|CacheShare { map, .. }| (map, rows.replicated))
}

/// Rows that fit the budgets, of which `replicated` on every device and the others round-robin, beside tables and ranks as of
/// [`table_bytes`]; fewer are replicated where a device has no room for all. `None` if the tables exceed the first device's budget.
fn max_rows(budgets: &[u64], (tables, ranks): (u64, u64), row_bytes: u64, replicated: u32) -> Option<Rows> {
    let (row_bytes, num_devices) = (row_bytes.max(1), budgets.len() as u64);
    let replicated = if num_devices > 1 { u64::from(replicated) } else { 0 };
    // Bytes of the first device for a replicated row with its rank, and for a row that it alone has, with those of its peers.
    let (copied, own) = (row_bytes + ranks / num_devices, row_bytes + ranks);
    let room = budgets[0].checked_sub(tables)?;
    let others = budgets[1..].iter().map(|budget| budget / row_bytes);
    let replicated = others.clone().fold(replicated.min(room / copied), u64::min);
    let first = ((room - replicated * copied) / own).saturating_mul(num_devices);
    // Round-robin: a device has as many rows as those before it, or one less.
    let max = |(i, rows): (u64, u64)| (rows - replicated).saturating_mul(num_devices).saturating_add(i);
    let spread = (1..).zip(others).map(max).fold(first, u64::min);
    Some(Rows { cached: replicated.saturating_add(spread), replicated: replicated as u32 })
}

/// Bytes of the gathering device for its tables, and for the ranks of one of its rows and those of its peers.
fn table_bytes(num_devices: u64, num_nodes: usize) -> (u64, u64) {
    let ranks = if num_devices > 1 { RANK * num_devices } else { 0 };
    (NodeMap::num_bytes_of(num_nodes) + ADDRESS * num_devices, ranks)
}

/// [`table_bytes`] where the rows of the first nodes are cached: addresses alone.
fn first_nodes_bytes(num_devices: u64) -> (u64, u64) {
    (ADDRESS * num_devices, 0)
}

/// Number of first nodes that are the hottest `max`, less those whose hotness is 0; `None` if the hottest are others.
fn hottest_are_first(hotness: &[f32], max: u64) -> Option<u32> {
    let max = hotness.len().min(max as usize);
    let len = hotness[..max].iter().take_while(|&&heat| heat > 0.0).count();
    let (first, others) = hotness.split_at(len);
    // Where there is room for more, what else is hot would be cached as well.
    let limit = if len < max { 0.0 } else { first.iter().copied().fold(f32::INFINITY, f32::min) };
    (len > 0 && others.iter().all(|&heat| heat <= limit)).then_some(len as u32)
}

#[cfg(all(test, feature = "emulate"))]
mod tests;
