//! The two tables of local ids, and how nodes are looked up in them.

/// Slots a bucket has: one line of the cache.
pub(crate) const SLOTS: usize = 8;
/// A line of a hash table. A slot holds the node in its upper half, stamp and local id in its lower one.
pub(crate) type Bucket = [u64; SLOTS];

/// What the kernels know of the mini-batch.
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

/// Replaces `ids` by local ids; returns the number of nodes seen. There has to be room for all of them.
///
/// Whether a node is new cannot be foreseen, and a branch on it would be mispredicted every third time: both outcomes
/// are computed, and what is new is written anyway.
#[inline(always)]
pub(crate) fn relabel_direct(table: &mut [u64], seen: Seen<'_>, values: &mut [[u32; 2]], ids: &mut [u32]) -> u32 {
    let Seen { nodes, mut len, stamp, bits } = seen;
    let tag = stamp << bits;
    for id in ids {
        let node = *id;
        let [place, next, ..] = &mut table[node as usize..] else { panic!("node {node} is beyond the graph") };
        let (word, value) = (*place as u32, (*place >> 32) as u32);
        let known = word >> bits == stamp;
        let local = if known { word ^ tag } else { len };
        *place = u64::from(value) << 32 | u64::from(tag | local);
        nodes[len as usize] = node;
        values[len as usize] = [value, (*next >> 32) as u32];
        len += u32::from(!known);
        *id = local;
    }
    len
}

/// Replaces `ids` by local ids; returns the number of nodes seen. There has to be room for all of them.
#[inline(always)]
pub(crate) fn relabel_hashed(table: &mut [Bucket], seen: Seen<'_>, ids: &mut [u32]) -> u32 {
    let Seen { nodes, mut len, stamp, bits } = seen;
    let tag = stamp << bits;
    for id in ids {
        let node = *id;
        let key = u64::from(node) << 32 | u64::from(tag);
        let mut at = home(node, table.len());
        loop {
            let bucket = &mut table[at];
            // Both questions to all slots at once, in one sum: which slot is the node's, and how many are in use.
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
                *id = local;
                break;
            }
            at = if at + 1 == table.len() { 0 } else { at + 1 };
        }
    }
    len
}
