//! Edges with an end that the node table does not list: left out and counted.

use morphgl_graph_store::Result;
use morphgl_ingest::{Sorted, Sorter};

use super::nodes::Keys;
use crate::Ingest;
use crate::files::{file_name, invalid};
use crate::ranks::Ranks;
use crate::tabular::lists::{NAMED, first_of, were};
use crate::text::{Id, Pairs};

/// The ids that the node table lists.
pub(crate) struct Listed(Ranks<Vec<u64>>);

/// Numbers of the edges that were left out of some, ascending, and their ids that are not listed: sorted, each once.
pub(crate) struct LeftOut {
    pub(crate) edges: Vec<usize>,
    ids: Vec<u64>,
}

impl Listed {
    /// `None` where no edge is left out, or ids are text.
    pub(crate) fn of(ingest: &Ingest<'_>) -> Option<Self> {
        let Some((_, Keys::Numbers(ids))) = ingest.listed_keys().filter(|_| ingest.drops_unknown_nodes()) else {
            return None;
        };
        let mut ids = ids.clone();
        ids.sort_unstable();
        ids.dedup();
        Some(Self(Ranks::new(ids, ingest.options().memory)))
    }

    /// Leaves out the edges of ids that are not listed; the ids of `pairs` have `first` subtracted.
    pub(crate) fn filter<I: Id>(&self, pairs: &mut Pairs<I>, first: u64) -> LeftOut {
        let id = |read: I| read.to_u64().saturating_add(first);
        let is_listed = |read: I| self.0.of(id(read)).is_some();
        let (mut edges, mut ids) = (Vec::new(), Vec::new());
        pairs.retain(is_listed, |edge, ends| {
            edges.push(edge);
            ids.extend(ends.into_iter().filter(|&end| !is_listed(end)).map(id));
        });
        ids.sort_unstable();
        ids.dedup();
        LeftOut { edges, ids }
    }
}

/// Sums over all [`LeftOut`]: the number of edges, and the distinct ids that are not listed.
pub(crate) struct Unlisted {
    edges: u64,
    ids: Sorter<u64>,
}

/// Share of the memory that the sorter of unlisted ids takes: one in this many bytes.
pub(super) const SHARE: u64 = 8;

impl Unlisted {
    pub(crate) fn new(ingest: &Ingest<'_>) -> Self {
        let ids = Sorter::new(ingest.dir().join("unlisted.spill"), ingest.options().memory / SHARE, true);
        Self { edges: 0, ids }
    }

    pub(crate) fn push(&mut self, left_out: Option<LeftOut>) -> Result<()> {
        let Some(LeftOut { edges, ids }) = left_out else { return Ok(()) };
        self.edges += edges.len() as u64;
        self.ids.push(&ids)
    }

    /// Notes how many edges were left out, and how many ids are not listed.
    pub(crate) fn finish(self, ingest: &mut Ingest<'_>) -> Result<()> {
        let (mut count, mut named) = (0, Vec::new());
        self.ids.merge(&|ids: Sorted<'_, u64>| ids.to_vec(), &mut |ids: Vec<u64>| {
            count += ids.len() as u64;
            named.extend(ids.iter().take(NAMED.saturating_sub(named.len())).map(u64::to_string));
            Ok(())
        })?;
        ingest.note_unlisted(self.edges, count, named);
        Ok(())
    }
}

impl Ingest<'_> {
    /// Refuses the option for edges of unknown nodes where nothing says which nodes are known.
    pub(crate) fn check_unknown_nodes(&self) -> Result<()> {
        if self.options().nodes.unknown_nodes.is_none() || self.listed_keys().is_some() {
            return Ok(());
        }
        let cure = "name that of --nodes, --features or --labels by --id-column, or leave out --unknown-nodes";
        invalid("--unknown-nodes", "no file of nodes has a column of ids", cure)
    }

    /// Notes edges that were left out, and the ids that the node table does not list: their number, and the first ones.
    pub(crate) fn note_unlisted(&mut self, edges: u64, count: u64, named: Vec<String>) {
        let Some((table, _)) = self.listed_keys().filter(|_| edges > 0) else { return };
        let (were, of) = (were(edges, "edge"), if edges == 1 { "its" } else { "their" });
        let what = format!("{were} left out: {} does not list {count} of {of} ids", file_name(table));
        self.note(format!("{what}: {}", first_of(named, count)));
        self.left_out_edges = edges;
    }
}
