//! Graphs made in memory, written to disk.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod caches;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use morphgl_batching_disk_neighbor::DiskNeighbor;
use morphgl_graph_store::{Dataset, DatasetWriter, FeatureMatrix, Load, Meta, OpenOptions, Types};
use morphgl_registry::{BatchingContext, Result, Sampling};
use tempfile::TempDir;

/// Writes a dataset into `dir/set`.
pub(crate) fn write(dataset: &Dataset, dir: &Path) {
    let mut writer = DatasetWriter::create(dir.join("set"), true).expect("a fresh directory");
    let topology = &dataset.topology;
    writer.array("indptr", topology.indptr(), None).expect("space on the disk");
    writer.array("indices", topology.indices(), None).expect("space on the disk");
    let by_type =
        dataset.features_by_type.iter().enumerate().map(|(number, matrix)| (Meta::features_of(number), matrix));
    for (name, matrix) in [("features".to_string(), &dataset.features)].into_iter().chain(by_type) {
        match matrix {
            Some(FeatureMatrix::F16 { data, dim }) => writer.array(&name, data, Some(*dim)),
            Some(FeatureMatrix::F32 { data, dim }) => writer.array(&name, data, Some(*dim)),
            Some(other) => panic!("no test has features of {}", other.dtype()),
            None => Ok(()),
        }
        .expect("space on the disk");
    }
    if let Some(targets) = &dataset.targets {
        writer.array("targets", targets.values(), Some(targets.dim())).expect("space on the disk");
    }
    if let Some(labels) = &dataset.labels {
        writer.array("labels", labels, None).expect("space on the disk");
    }
    if let Some(keys) = topology.draw_keys() {
        writer.array("draw_keys", keys, None).expect("space on the disk");
    }
    if let (Some(types), Some(edge_types)) = (topology.types(), topology.edge_types()) {
        writer.set_types(Types::clone(types));
        writer.array("edge_types", edge_types, None).expect("space on the disk");
    }
    for (name, times) in [("node_times", topology.node_times()), ("edge_times", topology.edge_times())] {
        times.map_or(Ok(()), |times| writer.array(name, times, None)).expect("space on the disk");
    }
    if let Some(ids) = topology.edge_ids() {
        writer.array("edge_ids", ids, None).expect("space on the disk");
    }
    let is_typed = topology.types().is_some();
    for (number, matrix) in dataset.edge_features.iter().enumerate() {
        let Some(FeatureMatrix::F32 { data, dim }) = matrix else { continue };
        let name = Meta::edge_features_of(is_typed.then_some(number));
        writer.array(&name, data, Some(*dim)).expect("space on the disk");
    }
    if let Some(rows) = &dataset.task_rows {
        writer.array("task_nodes", rows.nodes(), None).expect("space on the disk");
        writer.array("task_times", rows.times(), None).expect("space on the disk");
    }
    writer.array("train", &dataset.splits.train, None).expect("space on the disk");
    writer.finish("set", dataset.num_classes, Default::default()).expect("arrays that fit");
}

/// The dataset in `dir`, left on disk; weights, where `made` has some, in memory.
pub(crate) fn open(dir: &Path, made: &Dataset) -> Dataset {
    let options = OpenOptions { load: Load::Disk, verify: false };
    let mut dataset = Dataset::open(dir.join("set"), options).expect("what was written opens");
    if made.topology.weights().is_some() {
        dataset.topology = made.topology.clone();
    }
    dataset
}

thread_local! {
    /// The dataset that was written last, and where.
    static LAST: RefCell<Option<(Arc<Dataset>, TempDir)>> = const { RefCell::new(None) };
}

/// Builds the operator on a copy of the context's dataset on disk.
pub(crate) fn build(context: &BatchingContext) -> Result<DiskNeighbor> {
    LAST.with_borrow_mut(|last| {
        let made = &context.dataset;
        if last.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, made)) {
            let dir = tempfile::tempdir().expect("a temporary directory");
            write(made, dir.path());
            *last = Some((Arc::clone(made), dir));
        }
        let (_, dir) = last.as_ref().expect("it was just written");
        let context = BatchingContext { dataset: Arc::new(open(dir.path(), made)), ..context.clone() };
        match context.settings.sampling {
            Sampling::Neighbor(_) => DiskNeighbor::new(&context),
            _ => DiskNeighbor::typed(&context),
        }
    })
}
