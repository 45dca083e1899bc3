//! All arrays of a dataset, by the names that a directory gives them.

use crate::{Dataset, DatasetWriter, EdgeSplits, Element, FeatureView, Meta, Result, TaskRows};

/// What is done with each array of a dataset.
pub trait ArrayVisitor {
    /// The array `name`; of a matrix, `dim` is the length of its rows.
    ///
    /// # Errors
    ///
    /// The visitor's own, which end the visit.
    fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> Result<()>;
}

impl ArrayVisitor for DatasetWriter {
    fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> Result<()> {
        DatasetWriter::array(self, name, values, dim)
    }
}

impl Dataset {
    /// Visits every array of the dataset under its name in [`Meta::arrays`]; names of nodes, which a directory alone has, are left out.
    ///
    /// # Errors
    ///
    /// The visitor's.
    pub fn visit_arrays(&self, visitor: &mut impl ArrayVisitor) -> Result<()> {
        let Dataset { topology, splits, .. } = self;
        visitor.array("indptr", topology.indptr(), None)?;
        visitor.array("indices", topology.indices(), None)?;
        topology.weights().map_or(Ok(()), |weights| visitor.array("weights", weights, None))?;
        topology.draw_keys().map_or(Ok(()), |keys| visitor.array("draw_keys", keys, None))?;
        topology.edge_types().map_or(Ok(()), |types| visitor.array("edge_types", types, None))?;
        topology.edge_ids().map_or(Ok(()), |ids| visitor.array("edge_ids", ids, None))?;
        topology.node_times().map_or(Ok(()), |times| visitor.array("node_times", times, None))?;
        topology.edge_times().map_or(Ok(()), |times| visitor.array("edge_times", times, None))?;
        let is_typed = topology.types().is_some();
        let of_nodes = self.features.iter().map(|features| ("features".to_string(), features));
        let by_type = self.features_by_type.iter().enumerate();
        let by_type = by_type.filter_map(|(of, features)| Some((Meta::features_of(of), features.as_ref()?)));
        let of_edges = self.edge_features.iter().enumerate();
        let of_edges = of_edges
            .filter_map(|(of, features)| Some((Meta::edge_features_of(is_typed.then_some(of)), features.as_ref()?)));
        for (name, features) in of_nodes.chain(by_type).chain(of_edges) {
            let dim = Some(features.dim());
            match features.view() {
                FeatureView::F32(values) => visitor.array(&name, values, dim)?,
                FeatureView::F16(values) => visitor.array(&name, values, dim)?,
                FeatureView::Bf16(values) => visitor.array(&name, values, dim)?,
                FeatureView::U8(values) => visitor.array(&name, values, dim)?,
            }
        }
        if let Some(rows) = &self.task_rows {
            let [of_nodes, of_times] = TaskRows::ARRAYS;
            visitor.array(of_nodes, rows.nodes(), None)?;
            visitor.array(of_times, rows.times(), None)?;
        }
        if let Some(labels) = &self.labels {
            visitor.array("labels", labels, None)?;
        }
        if let Some(targets) = &self.targets {
            visitor.array("targets", targets.values(), Some(targets.dim()))?;
        }
        if let Some(ids) = &self.node_ids {
            visitor.array("node_ids", ids, None)?;
        }
        for (name, nodes) in [("train", &splits.train), ("valid", &splits.valid), ("test", &splits.test)] {
            visitor.array(name, nodes, None)?;
        }
        for (name, pairs) in EdgeSplits::ARRAYS.into_iter().zip(self.edges.arrays()) {
            pairs.map_or(Ok(()), |pairs| visitor.array(name, pairs, Some(2)))?;
        }
        for (targets, [labels, values]) in self.edges.targets.iter().zip(EdgeSplits::TARGET_ARRAYS) {
            targets.labels.iter().try_for_each(|array| visitor.array(labels, array, None))?;
            targets.values.iter().try_for_each(|matrix| visitor.array(values, matrix.values(), Some(matrix.dim())))?;
        }
        for (name, types) in EdgeSplits::TYPE_ARRAYS.into_iter().zip(&self.edges.types) {
            types.iter().try_for_each(|types| visitor.array(name, types, None))?;
        }
        Ok(())
    }
}
