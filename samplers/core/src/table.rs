//! The two tables of local ids, and lookups in them.

use morphgl_platform::prefetch;

/// Slots a bucket has: one line of the cache.
pub(crate) const SLOTS: usize = 8;
/// A line of a hash table. A slot holds the node in its upper half, stamp and local id in its lower one.
pub(crate) type Bucket = [u64; SLOTS];

/// Nodes a line of a direct table has; its eighth word repeats the value of the next one, so that a node's and its
/// successor's come with the same line.
pub(crate) const NODES: usize = SLOTS - 1;

/// Prefetch distance of the kernels, in nodes: on the graphs of `benches/sample`, 32 to 128 are the same, and sampling is
/// 1.2 times as fast as when whole groups are prefetched before they are looked up.
pub(crate) const AHEAD: usize = 64;

/// The mini-batch's nodes so far, for the kernels.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// The nodes seen so far, and room for new ones.
    pub(crate) nodes: &'a mut [u32],
    /// Nodes seen so far.
    pub(crate) len: u32,
    pub(crate) stamp: u32,
    /// Bits of a local id.
    pub(crate) bits: u32,
}

/// The bucket the search for `node` starts in: the upper bits of the id times an odd constant, cut to the table's size.
#[inline(always)]
pub(crate) fn home(node: u32, num_buckets: usize) -> usize {
    ((u64::from(node.wrapping_mul(0x9E37_79B1)) * num_buckets as u64) >> 32) as usize
}

/// Index of `node` in a direct table: its number, and one more for each line before its own. Exact for nodes below 2^30.
#[inline(always)]
pub(crate) fn place(node: u32) -> usize {
    ((u64::from(node) * u64::from(SEVENTH)) >> 32) as usize + node as usize
}

/// 2^32 / 7, rounded up.
pub(crate) const SEVENTH: u32 = ((1u64 << 32) / NODES as u64) as u32 + 1;

/// Replaces the first `count` of `ids` by local ids, and prefetches entries of those after them; returns the number of nodes
/// seen. `seen.nodes` needs room for all of them, `values` for the new ones.
///
/// Whether a node is new cannot be foreseen, and a branch on it would be mispredicted every third time: both outcomes
/// are computed, and what is new is written anyway.
#[inline(always)]
pub(crate) fn relabel_direct(
    table: &mut [u64],
    seen: Seen<'_>,
    values: &mut [[u32; 2]],
    ids: &mut [u32],
    count: usize,
) -> u32 {
    let Seen { nodes, mut len, stamp, bits } = seen;
    let (first, tag) = (len, stamp << bits);
    for i in 0..count {
        if let Some(&later) = ids.get(i + AHEAD) {
            prefetch(table, place(later));
        }
        let node = ids[i];
        let [word, next, ..] = &mut table[place(node)..] else { panic!("node {node} is beyond the graph") };
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
pub(crate) fn relabel_hashed(table: &mut [Bucket], seen: Seen<'_>, ids: &mut [u32], count: usize) -> u32 {
    let Seen { nodes, mut len, stamp, bits } = seen;
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
            // One sum over all slots: which slot is the node's in the lower half, how many are in use in the upper one.
            let mut answers = [0u64; SLOTS];
            for (slot, (answer, &word)) in answers.iter_mut().zip(&*bucket).enumerate() {
                let found = if word >> bits == key >> bits { 1 << slot } else { 0 };
                let used = if (word & u64::from(u32::MAX)) >> bits == u64::from(stamp) { 1 << 32 } else { 0 };
                *answer = found | used;
            }
            let answers: u64 = answers.iter().sum();
            let (found, used) = (answers as u32, (answers >> 32) as u32);
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
