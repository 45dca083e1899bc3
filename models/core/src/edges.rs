//! Models that read features of edges.

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{Block, Error, Result};

use crate::{ModelKind, ModelSpec};

impl ModelSpec {
    /// Whether a kind has layers that can read features of edges: GAT and GATv2 (PyG's `edge_dim`), GIN (`GINEConv`), R-GAT.
    pub fn can_read_edges(kind: ModelKind) -> bool {
        matches!(kind, ModelKind::Gat | ModelKind::Gin | ModelKind::Rgat)
    }

    /// Whether its layers read features of edges.
    pub fn reads_edges(&self) -> bool {
        self.edge_widths.iter().any(|&width| width > 0)
    }

    /// Width of the features of an edge type, of all edges where the model has no parameters per edge type; 0 for none.
    pub fn edge_width(&self, edge_type: usize) -> usize {
        self.edge_widths.get(edge_type).copied().unwrap_or(0)
    }

    /// Refuses what does not hold for features of edges: the field, and why.
    pub(crate) fn check_edge_widths(&self) -> std::result::Result<(), (&'static str, String)> {
        if self.edge_widths.is_empty() {
            return Ok(());
        }
        let (kind, given) = (self.kind, self.edge_widths.len());
        if !Self::can_read_edges(kind) {
            let what = format!("a {kind} reads no features of edges; leave them out, or train gat, gin or rgat");
            return Err(("edge_widths", what));
        }
        let count = if kind.is_typed() { self.edge_types().len() } else { 1 };
        if given != count && (self.types.is_some() || !kind.is_typed()) {
            return Err(("edge_widths", format!("{given} widths for {count} edge types; give one for each")));
        }
        Ok(())
    }
}

/// Checks that the features of a dataset's edges are those that a model reads.
///
/// # Errors
///
/// Other widths; features per edge type, and a model that does not tell edge types apart.
pub fn check_edge_features(model: &ModelSpec, dataset: &Dataset) -> Result<()> {
    if !model.reads_edges() {
        return Ok(());
    }
    let wrong = |what: String| Err(Error::setting("model.edge_widths", what));
    if !model.kind.is_typed() && dataset.edge_features.len() > 1 {
        let kind = model.kind;
        return wrong(format!("features are per edge type, which a {kind} does not tell apart; train rgat"));
    }
    for (edge_type, &width) in model.edge_widths.iter().enumerate() {
        let found = dataset.edge_features.get(edge_type).and_then(Option::as_ref).map_or(0, FeatureMatrix::dim);
        if found != width {
            let of =
                model.edge_types().get(edge_type).map_or(String::new(), |edge_type| format!(" of type {edge_type}"));
            return wrong(format!("edges{of} have {found} features, the model reads {width}"));
        }
    }
    Ok(())
}

/// Why blocks do not have the edges' ids that a model reads; `None` where they do.
pub(crate) fn refused_edges(model: &ModelSpec, blocks: &[Block]) -> Option<String> {
    let lacks = |block: &Block| block.edge_ids.as_ref().map(Vec::len) != Some(block.num_edges());
    (model.reads_edges() && blocks.iter().any(lacks)).then(|| {
        "the model reads features of edges, and its edges have no ids; sample neighbours, subgraphs or by edge type on the CPU"
            .to_string()
    })
}

/// Refuses models that read features of edges, for operators without such layers. `cure` names one that trains them.
///
/// # Errors
///
/// A model that reads features of edges.
pub fn refuse_edges(model: &ModelSpec, cure: &str) -> Result<()> {
    match model.reads_edges() {
        true => Err(Error::setting("a model that reads features of edges", format!("it is not trained here; {cure}"))),
        false => Ok(()),
    }
}
