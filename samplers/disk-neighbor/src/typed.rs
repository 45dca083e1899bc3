//! Edge types and times, as sampling by edge type reads them.

use morphgl_graph_store::Types;
use morphgl_platform::direct::Reader;
use morphgl_registry::{Fanout, NeighborSettings, Result};
use morphgl_sampler_core::{SubRowEnds, TypedSettings};

use crate::files::{Files, OnDisk};
use crate::graph::{DiskGraph, scan};
use crate::offsets::Offsets;

/// Settings of sampling by edge type, and what is kept of the graph for it.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) settings: TypedSettings,
    /// Where sub-rows end, if memory has room for it; else the types of a row's edges are read.
    pub(crate) ends: Option<SubRowEnds>,
    /// Time of each node, where trees are bounded by time, and nodes have some.
    pub(crate) node_times: Option<Vec<i64>>,
}

impl Typed {
    /// Bytes per node of the dataset of `files` that are always kept: of its time.
    pub(crate) fn bytes_per_node(settings: &TypedSettings, files: &Files) -> u64 {
        if Self::is_bounded(settings) && files.node_times.is_some() { 8 } else { 0 }
    }

    /// Whether trees are bounded by time.
    pub(crate) fn is_bounded(settings: &TypedSettings) -> bool {
        settings.trees.is_some_and(|trees| trees.by_time.is_some())
    }

    /// Reads the times of nodes, and with `keep` the types of all edges, by a [`Files::long_reader`].
    pub(crate) fn new(
        settings: TypedSettings,
        files: &Files,
        offsets: &Offsets,
        types: Option<&Types>,
        keep: bool,
        reader: &mut Reader,
    ) -> Result<Self> {
        let mut node_times = None;
        if let Some(on_disk) = files.node_times.as_ref().filter(|_| Self::is_bounded(&settings)) {
            let times = node_times.insert(vec![0i64; on_disk.len as usize]);
            on_disk.pass(reader, 0, bytemuck::cast_slice_mut(times))?;
        }
        let mut ends = None;
        if let (Some(types), Some(on_disk), true) = (types, &files.edge_types, keep) {
            let ends = ends.insert(SubRowEnds::empty(types));
            let row = |node| offsets.get(node).expect("types are kept only if offsets are in memory");
            scan(on_disk, types.num_nodes() as u32, row, reader, |node, first, of_edges: &[u16]| {
                let start = row(node).start + u64::from(first);
                let wrong = |at: usize| wrong_type(on_disk, node, start + at as u64, of_edges[at]);
                ends.extend(node, first, of_edges).map_err(wrong)
            })?;
        }
        Ok(Self { settings, ends, node_times })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let times = self.node_times.as_ref().map_or(0, |times| 8 * times.len() as u64);
        times + self.ends.as_ref().map_or(0, SubRowEnds::num_bytes)
    }
}

/// The error of the type of an edge.
pub(crate) fn wrong_type(edge_types: &OnDisk, node: u32, edge: u64, edge_type: u16) -> morphgl_registry::Error {
    let what =
        format!("an edge to node {node} has the type {edge_type}, which leads elsewhere or comes after a later one");
    edge_types.wrong(edge, what)
}

/// How many neighbours each hop picks, for estimates of what is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HopFanouts<'a> {
    pub(crate) hops: &'a NeighborSettings,
    pub(crate) typed: Option<&'a TypedSettings>,
}

impl HopFanouts<'_> {
    /// Appends the positions, in the graph's indices, of the neighbours that a hop reads of a node's row: by the fanout of each sub-row where
    /// their ends are known, all of them within times. `draw` returns a random number below a limit.
    pub(crate) fn pick(
        self,
        graph: &DiskGraph<'_>,
        (node, hop): (u32, usize),
        mut draw: impl FnMut(u64) -> u64,
        out: &mut Vec<u64>,
    ) {
        let row = graph.row(node);
        let mut pick = |start: u64, degree: u64, fanout: Fanout| {
            let picks = fanout.take(degree);
            out.extend((0..picks).map(|i| start + if picks == degree { i } else { draw(degree) }));
        };
        let is_bounded = self.typed.is_some_and(Typed::is_bounded);
        match (self.typed, graph.sub_rows) {
            _ if is_bounded => pick(row.start, row.degree.into(), Fanout::All),
            (Some(typed), Some((_, ends))) => {
                for (edge_type, positions) in ends.sub_rows(node) {
                    if let Some(fanout) = typed.fanouts[hop][usize::from(edge_type)] {
                        pick(row.start + u64::from(positions.start), positions.len() as u64, fanout);
                    }
                }
            }
            _ => pick(row.start, row.degree.into(), self.hops.fanouts.0[hop]),
        }
    }
}
