//! The two tables of local ids, and relabelling in them.

use morphgl_platform::{prefetch, prefetch_early};

/// Slots of a bucket: one cache line.
pub(crate) const SLOTS: usize = 8;
/// A bucket of a hash table. A slot has the node in its upper half, stamp and local id in its lower one.
pub(crate) type Bucket = [u64; SLOTS];

/// Nodes of a cache line of a direct table; its eighth word repeats the next node's value, so that the values of a node and
/// its successor are in the same line.
pub(crate) const NODES: usize = SLOTS - 1;

/// Prefetch distance in a hash table, in nodes: 32 to 128 are equally fast on the graphs of `benches/sample`.
const AHEAD: usize = 64;
/// Prefetch distances in a direct table, in nodes: into the second-level cache, which can have more misses outstanding than
/// the first (64 to 320 are equally fast on Zen 4), then from there into the first.
const DIRECT_AHEAD: [usize; 2] = [128, 16];

/// Prefetches entries of a direct table: those of the nodes that come [`DIRECT_AHEAD`] after the `i`-th of `ids`.
#[inline(always)]
pub(crate) fn prefetch_direct(table: &[u64], ids: &[u32], i: usize) {
    let [second, first] = DIRECT_AHEAD.map(|ahead| ids.get(i + ahead));
    if let Some(&later) = second {
        prefetch_early(table, index(later));
    }
    if let Some(&later) = first {
        prefetch(table, index(later));
    }
}

/// The local ids of a mini-batch so far.
#[derive(Debug)]
pub(crate) struct LocalIds<'a> {
    /// The nodes by local id, followed by space for new ones.
    pub(crate) nodes: &'a mut [u32],
    /// Number of nodes so far.
    pub(crate) len: u32,
    /// The mini-batch's stamp.
    pub(crate) stamp: u32,
    /// Bits of a local id.
    pub(crate) bits: u32,
}

/// The bucket the search for `node` starts in: the upper bits of the id times an odd constant, cut to the table's size.
#[inline(always)]
pub(crate) fn home(node: u32, num_buckets: usize) -> usize {
    ((u64::from(node.wrapping_mul(0x9E37_79B1)) * num_buckets as u64) >> 32) as usize
}

/// Index of `node` in a direct table: the node plus the number of lines before its own. Exact for nodes below 2^30.
#[inline(always)]
pub(crate) fn index(node: u32) -> usize {
    ((u64::from(node) * u64::from(SEVENTH)) >> 32) as usize + node as usize
}

/// 2^32 / 7, rounded up.
pub(crate) const SEVENTH: u32 = ((1u64 << 32) / NODES as u64) as u32 + 1;

/// Replaces the first `count` of `ids` by local ids, and prefetches the entries of the others; returns the number of nodes
/// so far. `local_ids.nodes` has space for all of them, `values` for the new ones.
///
/// Branch-free in whether a node is new, since a branch would be mispredicted every third time: both outcomes are
/// computed, and the node is always written.
#[inline(always)]
pub(crate) fn relabel_direct(
    table: &mut [u64],
    local_ids: LocalIds<'_>,
    values: &mut [[u32; 2]],
    ids: &mut [u32],
    count: usize,
) -> u32 {
    let LocalIds { nodes, mut len, stamp, bits } = local_ids;
    let (first, tag) = (len, stamp << bits);
    for i in 0..count {
        prefetch_direct(table, ids, i);
        let node = ids[i];
        let [word, next, ..] = &mut table[index(node)..] else { panic!("node {node} is beyond the graph") };
        let (low, value) = (*word as u32, (*word >> 32) as u32);
        let known = low >> bits == stamp;
        let local = if known { low ^ tag } else { len };
        *word = u64::from(value) << 32 | u64::from(tag | local);
        nodes[len as usize] = node;
        values[(len - first) as usize] = [value, (*next >> 32) as u32];
        len += u32::from(!known);
        ids[i] = local;
    }
    len
}

/// As [`relabel_direct`], in a hash table.
#[inline(always)]
pub(crate) fn relabel_hashed(table: &mut [Bucket], local_ids: LocalIds<'_>, ids: &mut [u32], count: usize) -> u32 {
    let LocalIds { nodes, mut len, stamp, bits } = local_ids;
    let tag = stamp << bits;
    for i in 0..count {
        if let Some(&later) = ids.get(i + AHEAD) {
            prefetch(table, home(later, table.len()));
        }
        let node = ids[i];
        let key = u64::from(node) << 32 | u64::from(tag);
        let mut at = home(node, table.len());
        loop {
            let bucket = &mut table[at];
            // One sum over all slots: a bit for the node's slot in the lower half, the number of used slots in the upper one.
            let mut terms = [0u64; SLOTS];
            for (slot, (term, &word)) in terms.iter_mut().zip(&*bucket).enumerate() {
                let found = if word >> bits == key >> bits { 1 << slot } else { 0 };
                let used = if (word & u64::from(u32::MAX)) >> bits == u64::from(stamp) { 1 << 32 } else { 0 };
                *term = found | used;
            }
            let sum: u64 = terms.iter().sum();
            let (found, used) = (sum as u32, (sum >> 32) as u32);
            let known = found != 0;
            let slot = if known { found.trailing_zeros() } else { used } as usize;
            if let Some(word) = bucket.get_mut(slot) {
                let local = if known { *word as u32 ^ tag } else { len };
                *word = key | u64::from(local);
                nodes[len as usize] = node;
                len += u32::from(!known);
                ids[i] = local;
                break;
            }
            at = if at + 1 == table.len() { 0 } else { at + 1 };
        }
    }
    len
}
