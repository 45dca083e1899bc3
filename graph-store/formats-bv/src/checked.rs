//! A decoder that refuses codes of no graph before memory is taken for what they announce.
//!
//! `webgraph`'s decoder reserves a node's list by its outdegree, and extends it by the lengths of intervals as they are read: a few
//! damaged bits ask for more memory than there is, which ends the process.

use std::panic::resume_unwind;

use webgraph::prelude::*;

/// What codes of a graph may announce.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) num_nodes: u64,
    pub(crate) num_arcs: u64,
    /// Bytes of the lists of successors that are kept at a time.
    pub(crate) memory: u64,
}

/// The panic payload of a refusal: the decoder's functions return no errors.
pub(crate) struct Refused(pub(crate) String);

/// A factory of checked decoders.
pub(crate) struct CheckedFactory<F> {
    pub(crate) factory: F,
    pub(crate) bounds: Bounds,
    pub(crate) window: usize,
    pub(crate) min_interval: usize,
}

impl<F: SequentialDecoderFactory> SequentialDecoderFactory for CheckedFactory<F> {
    type Decoder<'a>
        = Checked<F::Decoder<'a>>
    where
        Self: 'a;

    fn new_decoder(&self) -> anyhow::Result<Self::Decoder<'_>> {
        Ok(Checked {
            decoder: self.factory.new_decoder()?,
            bounds: self.bounds,
            min_interval: self.min_interval as u64,
            lists: vec![List::default(); self.window + 1],
            node: 0,
            arcs_left: self.bounds.num_arcs,
            kept: 0,
            left: 0,
            copy: Copy::default(),
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct List {
    degree: u64,
    /// Its vector's capacity: the largest degree so far.
    capacity: u64,
}

/// The blocks of a referenced list, of which every other one is copied.
#[derive(Debug, Clone, Copy, Default)]
struct Copy {
    list: u64,
    blocks: u64,
    block: u64,
    position: u64,
}

pub(crate) struct Checked<D> {
    decoder: D,
    bounds: Bounds,
    min_interval: u64,
    /// Ring buffer of the most recent lists: that of node `v` at `v % lists.len()`.
    lists: Vec<List>,
    /// The node after the one that is decoded.
    node: u64,
    arcs_left: u64,
    /// Successors that the lists have room for.
    kept: u64,
    /// Successors of the node that are still to come.
    left: u64,
    copy: Copy,
}

fn refuse(what: String) -> ! {
    resume_unwind(Box::new(Refused(what)))
}

impl<D> Checked<D> {
    fn take(&mut self, count: u64, what: &str) {
        let Some(left) = self.left.checked_sub(count) else {
            refuse(format!("node {} has more successors ({what}) than its outdegree", self.node - 1))
        };
        self.left = left;
    }

    /// A distance between nodes, or twice one with its sign.
    fn distance(&self, value: u64) -> u64 {
        if value > 2 * self.bounds.num_nodes {
            refuse(format!("node {} has a successor that does not exist", self.node - 1));
        }
        value
    }
}

impl<D: Decode> Decode for Checked<D> {
    fn read_outdegree(&mut self) -> u64 {
        let degree = self.decoder.read_outdegree();
        let node = self.node;
        self.node += 1;
        if degree > self.bounds.num_nodes {
            refuse(format!("node {node} has {degree} successors in a graph of {} nodes", self.bounds.num_nodes));
        }
        let Some(arcs_left) = self.arcs_left.checked_sub(degree) else {
            refuse(format!("more arcs than the {} that the properties promise", self.bounds.num_arcs))
        };
        self.arcs_left = arcs_left;
        let count = self.lists.len() as u64;
        let list = &mut self.lists[(node % count) as usize];
        self.kept += degree.saturating_sub(list.capacity);
        *list = List { degree, capacity: list.capacity.max(degree) };
        let bytes = self.kept * size_of::<usize>() as u64;
        if bytes > self.bounds.memory {
            refuse(format!("the successors of the last {count} nodes take {bytes} bytes, more than the memory budget"));
        }
        (self.left, self.copy) = (degree, Copy::default());
        degree
    }

    fn read_reference_offset(&mut self) -> u64 {
        let offset = self.decoder.read_reference_offset();
        let (node, count) = (self.node - 1, self.lists.len() as u64);
        if offset >= count || offset > node {
            refuse(format!("node {node} refers to the list {offset} before its own"));
        }
        self.copy.list = self.lists[((node - offset) % count) as usize].degree;
        offset
    }

    fn read_block_count(&mut self) -> u64 {
        let blocks = self.decoder.read_block_count();
        self.copy.blocks = blocks;
        if blocks == 0 {
            self.take(self.copy.list, "copied");
        }
        blocks
    }

    fn read_block(&mut self) -> u64 {
        let value = self.decoder.read_block();
        let Copy { list, blocks, block, position } = self.copy;
        let length = value.saturating_add(u64::from(block > 0));
        if length > list - position {
            refuse(format!("node {} copies more than the list it refers to", self.node - 1));
        }
        self.copy = Copy { list, blocks, block: block + 1, position: position + length };
        if block % 2 == 0 {
            self.take(length, "copied");
        }
        if block + 1 == blocks && blocks % 2 == 0 {
            self.take(list - self.copy.position, "copied");
        }
        value
    }

    fn read_interval_count(&mut self) -> u64 {
        let count = self.decoder.read_interval_count();
        if count > self.left {
            refuse(format!("node {} has {count} intervals for {} successors", self.node - 1, self.left));
        }
        count
    }

    fn read_interval_start(&mut self) -> u64 {
        let start = self.decoder.read_interval_start();
        self.distance(start)
    }

    fn read_interval_len(&mut self) -> u64 {
        let length = self.decoder.read_interval_len();
        self.take(length.saturating_add(self.min_interval), "in intervals");
        length
    }

    fn read_first_residual(&mut self) -> u64 {
        let residual = self.decoder.read_first_residual();
        self.take(1, "residual");
        self.distance(residual)
    }

    fn read_residual(&mut self) -> u64 {
        let residual = self.decoder.read_residual();
        self.take(1, "residual");
        self.distance(residual)
    }
}
