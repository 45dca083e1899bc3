//! A dataset, opened: topology, features, labels, targets, splits.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use crate::check::{self, Fault};
use crate::checksum::xxh3;
use crate::written::rows_of_edges;
use crate::{
    Access, Array, ArrayMeta, DatasetPath, Dtype, EdgeSplits, Element, Error, FeatureMatrix, Load, Meta, PairTargets,
    Position, Result, TargetMatrix, TaskRows, Topology,
};

/// How a dataset is opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// RAM (default) or mmap.
    pub load: Load,
    /// Compares every array with its checksum and looks for NaN features: reads all data once. Default true;
    /// structure (offsets, ids, labels, targets, splits) is checked in any case.
    pub verify: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { load: Load::Ram, verify: true }
    }
}

/// Examples to train on, to validate on and to test on: nodes, or rows of the dataset's task, by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Splits {
    /// Training examples. One that is listed several times (oversampling) is trained on as often in an epoch.
    pub train: Array<u32>,
    /// Validation examples, each once.
    pub valid: Array<u32>,
    /// Test examples, each once.
    pub test: Array<u32>,
}

impl Splits {
    /// Checks the splits of a graph of `num_nodes` nodes, or of a task of as many rows, as [`Dataset::open`] does.
    ///
    /// # Errors
    ///
    /// A description of the first example that does not exist, or that the validation or test split lists twice.
    pub fn check(&self, num_nodes: usize) -> std::result::Result<(), String> {
        [("train", &self.train), ("valid", &self.valid), ("test", &self.test)]
            .into_iter()
            .try_for_each(|(name, nodes)| check::split(name, nodes, ("node", num_nodes)).map_err(Fault::describe))
    }

    /// Number of nodes that are in more than one split, each counted once for every split but the first: their accuracy says
    /// nothing of unseen nodes. O(nodes of the splits) time, one byte of memory per node.
    ///
    /// # Panics
    ///
    /// When a node is not below `num_nodes`.
    pub fn num_repeated(&self, num_nodes: usize) -> usize {
        let splits = [&self.train, &self.valid, &self.test];
        let mut seen = vec![0u8; if splits.iter().all(|split| split.is_empty()) { 0 } else { num_nodes }];
        let mut repeated = 0;
        for (bit, split) in [1, 2, 4].into_iter().zip(splits) {
            for &v in split.iter() {
                let mark = &mut seen[v as usize];
                repeated += usize::from(*mark & bit == 0 && *mark > 0);
                *mark |= bit;
            }
        }
        repeated
    }

    /// Number of training nodes, as they are listed, besides the first occurrence of each: 0 where all are distinct. O(training
    /// nodes) time, one byte of memory per node.
    ///
    /// # Panics
    ///
    /// When a training node is not below `num_nodes`.
    pub fn num_oversampled(&self, num_nodes: usize) -> usize {
        let mut seen = vec![false; if self.train.is_empty() { 0 } else { num_nodes }];
        self.train.iter().filter(|&&v| std::mem::replace(&mut seen[v as usize], true)).count()
    }
}

/// A graph with its node data.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The directory it was opened from; empty for a dataset made in memory.
    pub path: DatasetPath,
    /// Its name.
    pub name: String,
    /// The graph.
    pub topology: Topology,
    /// Features, one row per node.
    pub features: Option<FeatureMatrix>,
    /// Features by node type, one row per node of the type, `None` for a type without features; empty where no type has any, and
    /// where all nodes have rows in [`Dataset::features`].
    pub features_by_type: Vec<Option<FeatureMatrix>>,
    /// Features of each edge type, of all edges in a graph without types; the topology has the row of each edge
    /// ([`Topology::edge_ids`]). Empty where no edges have features.
    pub edge_features: Vec<Option<FeatureMatrix>>,
    /// Nodes at times that are the examples of the dataset; `None` where these are its nodes.
    pub task_rows: Option<TaskRows>,
    /// Class of each example, -1 for none.
    pub labels: Option<Array<i32>>,
    /// Number of classes, 0 without labels.
    pub num_classes: usize,
    /// Real-valued targets, one row per example, NaN where unknown.
    pub targets: Option<TargetMatrix>,
    /// Splits; empty where the data has none.
    pub splits: Splits,
    /// Pairs of link prediction, or of labelled edges; empty where the data has none.
    pub edges: EdgeSplits,
    /// Ids of the nodes in the graph's source, where they were renumbered.
    pub node_ids: Option<Array<u64>>,
}

impl Dataset {
    /// A graph in memory without features, labels, targets and splits, which a struct expression adds:
    /// `Dataset { features, ..Dataset::new("ring", topology) }`.
    pub fn new(name: impl Into<String>, topology: Topology) -> Self {
        let none = || Vec::new().into();
        Self {
            path: DatasetPath::default(),
            name: name.into(),
            topology,
            features: None,
            features_by_type: Vec::new(),
            edge_features: Vec::new(),
            task_rows: None,
            labels: None,
            num_classes: 0,
            targets: None,
            splits: Splits { train: none(), valid: none(), test: none() },
            edges: EdgeSplits::default(),
            node_ids: None,
        }
    }

    /// Opens and checks the dataset at `path`.
    ///
    /// # Errors
    ///
    /// Missing or truncated files, wrong element types, invalid structure, wrong checksums, a newer version.
    ///
    /// # Complexity
    ///
    /// O(size of the dataset) with `verify`, else O(nodes + edges).
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        Self::load(DatasetPath::open(path)?, options)
    }

    /// As [`Dataset::open`], of a directory that is open.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open`]; a directory made in memory.
    pub fn load(path: DatasetPath, options: OpenOptions) -> Result<Self> {
        let loaded = options.load != Load::Disk;
        let options = OpenOptions { verify: options.verify && loaded, ..options };
        if !loaded {
            path.hold()?;
        }
        let Some(meta) = path.meta() else {
            let cure = "name a directory that `morphgl import` or `morphgl generate` wrote";
            return Err(Error::invalid("", Position::File, "a dataset made in memory has no files", cure));
        };
        let reader = Reader { path: &path, meta, options };
        let indptr = reader.array::<u64>("indptr")?.expect("`Meta::read` checks that it exists");
        let indices = reader.array::<u32>("indices")?.expect("`Meta::read` checks that it exists");
        let weights = reader.array::<f32>("weights")?;
        let fault = |f: Fault| reader.fault(f);
        if loaded {
            check::topology(&indptr, &indices, weights.as_deref()).map_err(fault)?;
        }
        let topology = Topology::from_checked(indptr, indices, weights);
        let num_nodes = topology.num_nodes();
        let mapped = options.load == Load::AllButFeatures;
        let load = if mapped { OpenOptions { load: Load::Mmap, verify: false } } else { options };
        let features_reader = Reader { options: load, ..reader };
        let matrix = |name: &str| -> Result<Option<FeatureMatrix>> {
            let Some(meta) = meta.arrays.get(name) else { return Ok(None) };
            let features = features_reader.features(name, meta)?;
            if options.verify && !mapped {
                check::features(name, features.view()).map_err(fault)?;
            }
            Ok(Some(features))
        };
        let features = matrix("features")?;
        let num_types = meta.types.as_ref().map_or(0, |types| types.node_types().len());
        let mut features_by_type = (0..num_types).map(|t| matrix(&Meta::features_of(t))).collect::<Result<Vec<_>>>()?;
        if features_by_type.iter().all(Option::is_none) {
            features_by_type.clear();
        }
        let edge_ids = reader.array::<u32>("edge_ids")?;
        let mut edge_features = match &meta.types {
            None => vec![matrix(&Meta::edge_features_of(None))?],
            Some(types) => {
                let file = |number| Some(&meta.arrays.get(&Meta::edge_features_of(Some(number)))?.file);
                let mut all: Vec<Option<FeatureMatrix>> = Vec::new();
                for number in 0..types.edge_types().len() {
                    // Reverse edges have the file of the edges.
                    let same = file(number).and_then(|own| (0..number).find(|&earlier| file(earlier) == Some(own)));
                    all.push(match same {
                        Some(earlier) => all[earlier].clone(),
                        None => matrix(&Meta::edge_features_of(Some(number)))?,
                    });
                }
                all
            }
        };
        if edge_features.iter().all(Option::is_none) {
            edge_features.clear();
        }
        let labels = reader.array::<i32>("labels")?;
        if let Some(labels) = labels.as_ref().filter(|_| loaded) {
            check::labels(labels, meta.num_classes).map_err(fault)?;
        }
        let targets = reader.targets("targets")?;
        if let Some(targets) = targets.as_ref().filter(|_| loaded) {
            check::targets(targets.values()).map_err(fault)?;
        }
        // Splits and draw keys are checked, so even `Load::Disk` reads them into memory.
        let load = if loaded { options.load } else { Load::Ram };
        let splits_reader = Reader { options: OpenOptions { load, ..options }, ..reader };
        let draw_keys = splits_reader.array::<u32>("draw_keys")?;
        if let Some(keys) = &draw_keys {
            check::permutation("draw_keys", keys, num_nodes).map_err(fault)?;
        }
        let mut topology = topology.with_checked_draw_keys(draw_keys);
        if let Some((types, edge_types)) = meta.types.clone().zip(reader.array::<u16>("edge_types")?) {
            if loaded {
                check::edge_types(&types, topology.indptr(), topology.indices(), &edge_types).map_err(fault)?;
            }
            topology = topology.with_checked_types(types, edge_types);
        }
        if let Some(ids) = edge_ids.as_deref().filter(|_| loaded) {
            let edge_types = topology.edge_types().map(|types| &**types);
            check::edge_ids(ids, edge_types, &rows_of_edges(meta)).map_err(fault)?;
        }
        let topology = topology.with_checked_edge_ids(edge_ids);
        let [node_times, edge_times] = [reader.array::<i64>("node_times")?, reader.array::<i64>("edge_times")?];
        let topology = topology.with_checked_times(node_times, edge_times);
        let [of_nodes, of_times] = TaskRows::ARRAYS;
        let rows = splits_reader.array::<u32>(of_nodes)?.zip(splits_reader.array::<i64>(of_times)?);
        let task_rows =
            rows.map(|(nodes, times)| TaskRows::check(nodes, times, num_nodes)).transpose().map_err(fault)?;
        let split = |name: &'static str| -> Result<Array<u32>> {
            let examples = splits_reader.array::<u32>(name)?.unwrap_or_else(|| Vec::new().into());
            check::split(name, &examples, meta.examples()).map_err(fault)?;
            Ok(examples)
        };
        if options.verify {
            // Names are read on demand, and verified here.
            reader.array::<u8>("node_names")?;
            reader.array::<u64>("node_name_ends")?;
        }
        // The checks read the arrays in sequence; from now on, scattered rows are read.
        topology.advise(Access::Random);
        let matrices = features.iter().chain(features_by_type.iter().chain(&edge_features).flatten());
        matrices.for_each(|matrix| matrix.advise(Access::Random));
        if let Some(targets) = &targets {
            targets.advise(Access::Random);
        }
        let splits = Splits { train: split("train")?, valid: split("valid")?, test: split("test")? };
        let mut pairs = [const { None }; EdgeSplits::ARRAYS.len()];
        for (pairs, name) in pairs.iter_mut().zip(EdgeSplits::ARRAYS) {
            *pairs = splits_reader.array::<u32>(name)?;
        }
        let mut targets_of_pairs = [const { PairTargets { labels: None, values: None } }; 3];
        for (targets, [labels, values]) in targets_of_pairs.iter_mut().zip(EdgeSplits::TARGET_ARRAYS) {
            *targets = PairTargets { labels: splits_reader.array(labels)?, values: splits_reader.targets(values)? };
        }
        let mut edges = EdgeSplits::of_arrays(pairs, targets_of_pairs);
        for (types, name) in edges.types.iter_mut().zip(EdgeSplits::TYPE_ARRAYS) {
            *types = splits_reader.array::<u16>(name)?;
        }
        edges.check_arrays(num_nodes).map_err(fault)?;
        edges.check_type_arrays(topology.types().map(|types| &**types)).map_err(fault)?;
        let node_ids = reader.array::<u64>("node_ids")?;
        let (name, num_classes) = (meta.name.clone(), meta.num_classes);
        Ok(Self {
            path,
            name,
            topology,
            features,
            features_by_type,
            edge_features,
            task_rows,
            labels,
            num_classes,
            targets,
            splits,
            edges,
            node_ids,
        })
    }

    /// Pairs of link prediction to train on: [`EdgeSplits::train_pairs`] of this graph.
    pub fn train_pairs(&self) -> std::borrow::Cow<'_, [[u32; 2]]> {
        self.edges.train_pairs(&self.topology)
    }

    /// Number of the edge type of each of them, where pairs have types: [`EdgeSplits::train_pair_types`] of this graph.
    pub fn train_pair_types(&self) -> Option<std::borrow::Cow<'_, [u16]>> {
        self.edges.train_pair_types(&self.topology)
    }

    /// The dataset with features of edges: `ids` has the row of each edge in those of its type, in CSC order, and `features` a matrix
    /// per edge type, or one of a graph without types.
    ///
    /// # Errors
    ///
    /// Another number of ids than edges, or of matrices than edge types; an id that is no row.
    pub fn with_edge_features(
        self,
        ids: impl Into<Array<u32>>,
        features: Vec<Option<FeatureMatrix>>,
    ) -> std::result::Result<Self, String> {
        let types = self.topology.types().map_or(1, |types| types.edge_types().len());
        if features.len() != types {
            return Err(format!("{} matrices of features for {types} edge types", features.len()));
        }
        let topology = self.topology.with_edge_ids(Some(ids.into()))?;
        let rows: Vec<Option<u64>> =
            features.iter().map(|matrix| matrix.as_ref().map(|matrix| matrix.num_rows() as u64)).collect();
        let (ids, edge_types) = (topology.edge_ids().expect("set above"), topology.edge_types());
        check::edge_ids(ids, edge_types.map(|types| &**types), &rows).map_err(Fault::describe)?;
        Ok(Self { topology, edge_features: features, ..self })
    }

    /// The dataset without features of edges.
    pub fn without_edge_features(self) -> Self {
        Self { topology: self.topology.with_checked_edge_ids(None), edge_features: Vec::new(), ..self }
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.topology.num_nodes()
    }

    /// Number of examples that have labels, targets and splits: rows of the task, or nodes.
    pub fn num_examples(&self) -> usize {
        self.task_rows.as_ref().map_or(self.num_nodes(), TaskRows::len)
    }

    /// Number of `examples` that have a label.
    ///
    /// # Panics
    ///
    /// When an example is not below [`Self::num_examples`].
    pub fn num_labelled(&self, examples: &[u32]) -> usize {
        self.labelled(examples).count()
    }

    /// Whether any of `examples` has a label: else there is nothing to score.
    ///
    /// # Panics
    ///
    /// When an example is not below [`Self::num_examples`].
    pub fn any_labelled(&self, examples: &[u32]) -> bool {
        self.labelled(examples).next().is_some()
    }

    /// Classes of examples outside the training split that no training example has, ascending: a model cannot learn them.
    pub fn untrained_classes(&self) -> Vec<usize> {
        let trained: HashSet<i32> = self.labelled(&self.splits.train).collect();
        let others = [&self.splits.valid, &self.splits.test].into_iter().flat_map(|split| self.labelled(split));
        let untrained: BTreeSet<i32> = others.filter(|class| !trained.contains(class)).collect();
        untrained.into_iter().map(|class| class as usize).collect()
    }

    /// The labels of those `examples` that have one.
    fn labelled(&self, examples: &[u32]) -> impl Iterator<Item = i32> {
        let labels = self.labels.as_deref();
        examples
            .iter()
            .filter_map(move |&example| labels.map(|labels| labels[example as usize]))
            .filter(|&label| label >= 0)
    }

    /// Number of targets of an example, 0 without targets.
    pub fn target_dim(&self) -> usize {
        self.targets.as_ref().map_or(0, TargetMatrix::dim)
    }

    /// Class of each node, -1 for none; `None` where labels are those of rows of a task.
    pub fn node_labels(&self) -> Option<&Array<i32>> {
        self.labels.as_ref().filter(|_| self.task_rows.is_none())
    }

    /// Targets of each node; `None` where they are those of rows of a task.
    pub fn node_targets(&self) -> Option<&TargetMatrix> {
        self.targets.as_ref().filter(|_| self.task_rows.is_none())
    }

    /// Number of features of a node, 0 without features.
    pub fn feature_dim(&self) -> usize {
        self.features.as_ref().map_or(0, FeatureMatrix::dim)
    }
}

struct Reader<'a> {
    path: &'a DatasetPath,
    meta: &'a Meta,
    options: OpenOptions,
}

impl Reader<'_> {
    fn array<T: Element>(&self, name: &str) -> Result<Option<Array<T>>> {
        self.meta.arrays.get(name).map(|meta| self.typed(name, meta)).transpose()
    }

    fn typed<T: Element>(&self, name: &str, meta: &ArrayMeta) -> Result<Array<T>> {
        let file = self.path.join(&meta.file);
        if meta.dtype != T::DTYPE {
            let what = format!("graph.json says {name} is {}, expected {}", meta.dtype, T::DTYPE);
            return Err(Error::invalid(&file, Position::File, what, "import the dataset again"));
        }
        let stored = self.path.any_array(name)?;
        let array = stored.read::<T>(self.options.load)?;
        meta.check_shape(&file, &stored.shape)?;
        if self.options.verify && format!("{:016x}", xxh3(bytemuck::cast_slice(&array))) != meta.xxh3 {
            let cure = "the file was altered or damaged: copy it or import the dataset again";
            return Err(Error::invalid(&file, Position::File, "the checksum does not hold", cure));
        }
        Ok(array)
    }

    /// Targets, whose values are not checked.
    fn targets(&self, name: &str) -> Result<Option<TargetMatrix>> {
        let matrix = |meta: &ArrayMeta| Ok(TargetMatrix::from_checked(self.typed(name, meta)?, meta.shape[1] as usize));
        self.meta.arrays.get(name).map(matrix).transpose()
    }

    fn features(&self, name: &str, meta: &ArrayMeta) -> Result<FeatureMatrix> {
        let dim = meta.shape[1] as usize;
        Ok(match meta.dtype {
            Dtype::F32 => FeatureMatrix::F32 { data: self.typed(name, meta)?, dim },
            Dtype::F16 => FeatureMatrix::F16 { data: self.typed(name, meta)?, dim },
            Dtype::Bf16 => FeatureMatrix::Bf16 { data: self.typed(name, meta)?, dim },
            Dtype::U8 => FeatureMatrix::U8 { data: self.typed(name, meta)?, dim },
            other => {
                let file = self.path.join(&meta.file);
                let cure = "import the dataset again with --dtype f32, f16, bf16 or u8";
                return Err(Error::invalid(file, Position::File, format!("features cannot be {other}"), cure));
            }
        })
    }

    fn fault(&self, fault: Fault) -> Error {
        let file = self.meta.arrays.get(&fault.array).map_or(fault.array.as_str(), |a| a.file.as_str());
        let cure = "the dataset is damaged: import it again";
        Error::invalid(self.path.join(file), Position::Element(fault.element), fault.what, cure)
    }
}
