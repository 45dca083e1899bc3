//! The parts of a dataset that `info` counts, of a directory or in memory.

use std::collections::BTreeMap;

use morphgl_graph_store::{
    Array, ArrayMeta, ArrayVisitor, DATASET_FORMAT, DATASET_VERSION, Dataset, DatasetPath, Element, Load, Meta,
    TargetMatrix, TaskRows,
};

use super::SPLITS;

/// Elements that are read before the pages of a mapped file are given back.
const CHUNK: usize = 256 << 10;

/// The description of a dataset, and the arrays that are read to count. Those of a directory are mapped, and not checked again.
pub(super) struct Parts {
    pub(super) meta: Meta,
    pub(super) indptr: Array<u64>,
    pub(super) indices: Array<u32>,
    pub(super) labels: Option<Array<i32>>,
    pub(super) targets: Option<Array<f32>>,
    pub(super) splits: [Option<Array<u32>>; 3],
    /// Node and time of each row of the task.
    pub(super) rows: Option<(Array<u32>, Array<i64>)>,
    pub(super) edge_types: Option<Array<u16>>,
}

impl Parts {
    pub(super) fn of_directory(dataset: &DatasetPath) -> anyhow::Result<Self> {
        fn mapped<T: Element>(dataset: &DatasetPath, name: &str) -> morphgl_graph_store::Result<Option<Array<T>>> {
            dataset.array(name)?.map(|array| array.read::<T>(Load::Mmap)).transpose()
        }
        let [of_nodes, of_times] = TaskRows::ARRAYS;
        let [train, valid, test] = SPLITS.map(|name| mapped(dataset, name));
        Ok(Self {
            meta: dataset.meta().expect("a directory has a description").clone(),
            indptr: mapped(dataset, "indptr")?.expect("`Meta::read` checks that it exists"),
            indices: mapped(dataset, "indices")?.expect("`Meta::read` checks that it exists"),
            labels: mapped(dataset, "labels")?,
            targets: mapped(dataset, "targets")?,
            splits: [train?, valid?, test?],
            rows: mapped(dataset, of_nodes)?.zip(mapped(dataset, of_times)?),
            edge_types: mapped(dataset, "edge_types")?,
        })
    }

    /// The parts of a dataset in memory, whose description has no files, checksums or provenance.
    pub(super) fn in_memory(dataset: &Dataset) -> anyhow::Result<Self> {
        let mut shapes = Shapes::default();
        dataset.visit_arrays(&mut shapes)?;
        let Dataset { topology, splits, .. } = dataset;
        let meta = Meta {
            format: DATASET_FORMAT.to_string(),
            version: DATASET_VERSION,
            name: dataset.name.clone(),
            num_nodes: dataset.num_nodes() as u64,
            num_edges: topology.num_edges(),
            num_classes: dataset.num_classes,
            arrays: shapes.0,
            types: topology.types().map(|types| (**types).clone()),
            provenance: BTreeMap::new(),
        };
        Ok(Self {
            meta,
            indptr: topology.indptr().clone(),
            indices: topology.indices().clone(),
            labels: dataset.labels.clone(),
            targets: dataset.targets.as_ref().map(TargetMatrix::values).cloned(),
            splits: [&splits.train, &splits.valid, &splits.test].map(|split| Some(split.clone())),
            rows: dataset.task_rows.as_ref().map(|rows| (rows.nodes().clone(), rows.times().clone())),
            edge_types: topology.edge_types().cloned(),
        })
    }
}

/// Shapes and types of arrays.
#[derive(Default)]
struct Shapes(BTreeMap<String, ArrayMeta>);

impl ArrayVisitor for Shapes {
    fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> morphgl_graph_store::Result<()> {
        let rows = values.len() / dim.unwrap_or(1).max(1);
        let shape = std::iter::once(rows).chain(dim).map(|length| length as u64).collect();
        let array = ArrayMeta { file: String::new(), dtype: T::DTYPE, shape, xxh3: String::new() };
        self.0.insert(name.to_string(), array);
        Ok(())
    }
}

/// Calls `f` with each element of an array in order; pages of a mapped file are given back meanwhile.
pub(super) fn for_each<T: Element>(array: &Array<T>, mut f: impl FnMut(T)) {
    for chunk in array.chunks(CHUNK) {
        chunk.iter().for_each(|&element| f(element));
        array.release();
    }
}
