//! Sampler settings and seeds: what a mini-batch depends on besides the graph.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use morphgl_graph_store::{PairTargets, TaskRows};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{Error, OptionSpec, PairSeeds, PairSettings, Result, RowSeeds, SamplingSpec};

/// Neighbours sampled per node at one hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fanout {
    /// All neighbours, written `-1`.
    All,
    /// At most this many.
    AtMost(NonZeroU32),
}

/// Fanouts of all hops, the seeds' own first: `15,10,5` as in DGL and PyG.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fanouts(pub Vec<Fanout>);

/// Which nodes a hop expands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expansion {
    /// Every node found so far (DGL, SALIENT).
    #[default]
    All,
    /// Only the nodes that the hop before found (PyG).
    New,
}

/// How neighbours are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pick {
    /// Uniformly, without replacement.
    #[default]
    Uniform,
    /// Without replacement, with probabilities proportional to the edge weights; an edge of weight 0 is never picked.
    Weighted,
}

/// Neighbour sampling by fanouts (GraphSAGE; Hamilton et al., NeurIPS 2017).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborSettings {
    /// Fanouts, the seeds' own hop first; one per layer of the model. Default 15,10,5.
    pub fanouts: Fanouts,
    /// Which nodes a hop expands. Default all.
    #[serde(default)]
    pub expansion: Expansion,
    /// How neighbours are picked. Default uniformly.
    #[serde(default)]
    pub pick: Pick,
}

/// ShaDow sampling (Zeng et al., NeurIPS 2021; unified-cpu-gpu-protocol §2.2): the subgraph that the nodes of a few hops induce,
/// in every block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowSettings {
    /// The hops that find the nodes.
    #[serde(flatten)]
    pub hops: NeighborSettings,
    /// Number of blocks, one per layer of the model; independent of the number of hops.
    pub layers: usize,
}

/// Neighbours by random walks (PinSAGE; Ying et al., KDD 2018): the nodes that walks from a node visit most often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WalkSettings {
    /// Number of blocks, one per layer of the model: each hop walks from all nodes found so far.
    pub layers: usize,
    /// Walks from each node. Default 10.
    pub walks: u32,
    /// Maximum steps of a walk. Default 3.
    pub length: u32,
    /// Probability that a walk ends before each step but its first. Default 0.5.
    pub restart: f64,
    /// Maximum neighbours of a node: those visited most often. Default 10.
    pub neighbors: u32,
}

impl WalkSettings {
    /// The default walks, for a model of so many layers.
    pub fn of_layers(layers: usize) -> Self {
        Self { layers, walks: 10, length: 3, restart: 0.5, neighbors: 10 }
    }
}

/// Sampling of a kind that an operator of another crate declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomSettings {
    /// Name of the kind.
    #[serde(rename = "sampler")]
    pub kind: String,
    /// Number of blocks, one per layer of the model.
    pub layers: usize,
    /// Hops by fanouts, one per layer; `None` where the kind has none.
    #[serde(flatten, skip_deserializing)]
    pub hops: Option<NeighborSettings>,
    /// Settings by name; those that are missing have the default of the kind.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

impl CustomSettings {
    /// The value of a setting of the kind, or its default.
    pub fn value(&self, setting: &OptionSpec) -> Value {
        let given = self.settings.get(setting.name).cloned();
        given.or_else(|| setting.default_value()).unwrap_or_default()
    }

    /// Checks the settings against the declaration of their kind, of values names and types; their ranges are for the operator to check.
    ///
    /// # Errors
    ///
    /// As [`SamplingSpec::check_values`]; fanouts that it does not read, no fanouts where it reads
    /// them, or not one per layer.
    pub fn check(&self, spec: &SamplingSpec) -> Result<()> {
        let context = format!("sampler {}", spec.name);
        spec.check_values(&Value::Object(self.settings.clone()))?;
        let hops = self.hops.as_ref().map(|hops| hops.fanouts.0.len());
        match hops {
            None if spec.by_fanouts => Err(Error::setting(context, "it samples by fanouts; give one per layer")),
            Some(_) if !spec.by_fanouts => Err(Error::setting(context, "it does not read fanouts; leave them out")),
            Some(hops) if hops != self.layers => {
                let what = format!("{hops} fanouts for {} layers; give one per layer", self.layers);
                Err(Error::setting(context, what))
            }
            _ => Ok(()),
        }
    }

    /// The settings with these fields.
    fn read(fields: Value) -> serde_json::Result<Self> {
        // An optional flattened field would take malformed fanouts for none.
        let has_hops = ["fanouts", "expansion", "pick"].iter().any(|field| fields.get(field).is_some());
        let hops = if has_hops { Some(serde_json::from_value(fields.clone())?) } else { None };
        Ok(Self { hops, ..serde_json::from_value(fields)? })
    }
}

impl fmt::Display for CustomSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.kind)?;
        match &self.hops {
            Some(hops) => write!(f, "{hops}")?,
            None => write!(f, "{} layers", self.layers)?,
        }
        self.settings.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
    }
}

/// How the neighbourhood of seeds is sampled.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "sampler", rename_all = "lowercase")]
pub enum Sampling {
    /// Neighbour sampling.
    Neighbor(NeighborSettings),
    /// ShaDow sampling.
    Shadow(ShadowSettings),
    /// Random walks.
    Walk(WalkSettings),
    /// A kind that an operator of another crate declares ([`SamplingSpec`]).
    #[serde(untagged)]
    Custom(CustomSettings),
}

impl<'de> Deserialize<'de> for Sampling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let fields = Map::deserialize(deserializer)?;
        let kind = fields.get("sampler").ok_or_else(|| D::Error::missing_field("sampler"))?;
        let kind = kind.as_str().unwrap_or_default().to_string();
        let fields = Value::Object(fields);
        let read = match () {
            () if kind == SamplingSpec::NEIGHBOR.name => serde_json::from_value(fields).map(Sampling::Neighbor),
            () if kind == SamplingSpec::SHADOW.name => serde_json::from_value(fields).map(Sampling::Shadow),
            () if kind == SamplingSpec::WALK.name => serde_json::from_value(fields).map(Sampling::Walk),
            () => CustomSettings::read(fields).map(Sampling::Custom),
        };
        read.map_err(D::Error::custom)
    }
}

impl Sampling {
    /// The name of its kind.
    pub fn kind(&self) -> &str {
        match self {
            Sampling::Neighbor(_) => SamplingSpec::NEIGHBOR.name,
            Sampling::Shadow(_) => SamplingSpec::SHADOW.name,
            Sampling::Walk(_) => SamplingSpec::WALK.name,
            Sampling::Custom(custom) => &custom.kind,
        }
    }

    /// Number of blocks of a mini-batch: layers of the model.
    pub fn num_layers(&self) -> usize {
        match self {
            Sampling::Neighbor(neighbor) => neighbor.fanouts.0.len(),
            Sampling::Shadow(shadow) => shadow.layers,
            Sampling::Walk(walk) => walk.layers,
            Sampling::Custom(custom) => custom.layers,
        }
    }

    /// The hops by fanouts, where the kind is of this crate and has any: of those of another crate it is not known which nodes a
    /// hop finds.
    pub fn hops(&self) -> Option<&NeighborSettings> {
        match self {
            Sampling::Neighbor(hops) | Sampling::Shadow(ShadowSettings { hops, .. }) => Some(hops),
            Sampling::Walk(_) | Sampling::Custom(_) => None,
        }
    }

    /// The hops of [`Sampling::hops`], to be changed.
    pub fn hops_mut(&mut self) -> Option<&mut NeighborSettings> {
        match self {
            Sampling::Neighbor(hops) | Sampling::Shadow(ShadowSettings { hops, .. }) => Some(hops),
            Sampling::Walk(_) | Sampling::Custom(_) => None,
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sampling::Neighbor(hops) => write!(f, "{hops}"),
            Sampling::Shadow(ShadowSettings { hops, layers }) => write!(f, "ShaDow, {hops}, {layers} layers"),
            Sampling::Walk(WalkSettings { layers, walks, length, restart, neighbors }) => write!(
                f,
                "{walks} walks of at most {length} steps that end with probability {restart}, the {neighbors} most visited, \
                 {layers} layers"
            ),
            Sampling::Custom(custom) => custom.fmt(f),
        }
    }
}

impl fmt::Display for NeighborSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expanded = match self.expansion {
            Expansion::All => "all nodes found",
            Expansion::New => "the newly found nodes",
        };
        let by_weight = if self.pick == Pick::Weighted { ", by weight" } else { "" };
        write!(f, "fanouts {}{by_weight}, expanding {expanded}", self.fanouts)
    }
}

impl From<Fanouts> for NeighborSettings {
    fn from(fanouts: Fanouts) -> Self {
        Self { fanouts, expansion: Expansion::All, pick: Pick::Uniform }
    }
}

impl Default for NeighborSettings {
    fn default() -> Self {
        "15,10,5".parse::<Fanouts>().expect("the default fanouts are valid").into()
    }
}

/// Settings that determine an epoch's mini-batches, besides the graph and the seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplerSettings {
    /// How the neighbourhood of seeds is sampled.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Seeds per mini-batch, or positive pairs; the last one of an epoch has the rest. Default 1024.
    pub batch_size: usize,
    /// Seed of all randomness. Default 0.
    pub seed: u64,
    /// Whether each epoch permutes the seeds. Default true; evaluation keeps their order.
    pub shuffle: bool,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        NeighborSettings::default().into()
    }
}

impl From<NeighborSettings> for Sampling {
    fn from(neighbor: NeighborSettings) -> Self {
        Sampling::Neighbor(neighbor)
    }
}

impl From<Sampling> for SamplerSettings {
    fn from(sampling: Sampling) -> Self {
        Self { sampling, batch_size: 1024, seed: 0, shuffle: true }
    }
}

impl From<NeighborSettings> for SamplerSettings {
    fn from(neighbor: NeighborSettings) -> Self {
        Sampling::Neighbor(neighbor).into()
    }
}

impl From<Fanouts> for SamplerSettings {
    fn from(fanouts: Fanouts) -> Self {
        NeighborSettings::from(fanouts).into()
    }
}

impl SamplerSettings {
    /// The settings of a neighbour sampler.
    ///
    /// # Errors
    ///
    /// Another kind of sampling.
    pub fn neighbor(&self) -> Result<&NeighborSettings> {
        match &self.sampling {
            Sampling::Neighbor(neighbor) => Ok(neighbor),
            _ => Err(self.wrong_kind(&SamplingSpec::NEIGHBOR)),
        }
    }

    /// The settings of a ShaDow sampler.
    ///
    /// # Errors
    ///
    /// Another kind of sampling.
    pub fn shadow(&self) -> Result<&ShadowSettings> {
        match &self.sampling {
            Sampling::Shadow(shadow) => Ok(shadow),
            _ => Err(self.wrong_kind(&SamplingSpec::SHADOW)),
        }
    }

    /// The settings of a sampler by random walks.
    ///
    /// # Errors
    ///
    /// Another kind of sampling.
    pub fn walk(&self) -> Result<&WalkSettings> {
        match &self.sampling {
            Sampling::Walk(walk) => Ok(walk),
            _ => Err(self.wrong_kind(&SamplingSpec::WALK)),
        }
    }

    /// The settings of a kind that another crate declares, of checked names and types.
    ///
    /// # Errors
    ///
    /// Another kind of sampling, and as [`CustomSettings::check`].
    pub fn custom(&self, spec: &SamplingSpec) -> Result<&CustomSettings> {
        match &self.sampling {
            Sampling::Custom(custom) if custom.kind == spec.name => custom.check(spec).map(|()| custom),
            _ => Err(self.wrong_kind(spec)),
        }
    }

    fn wrong_kind(&self, wanted: &SamplingSpec) -> Error {
        let (wanted, found) = (wanted.name, self.sampling.kind());
        let what =
            format!("this operator samples by {wanted}, the settings are of {found}; choose an operator of that kind");
        Error::setting("sampler", what)
    }
}

impl Fanout {
    /// Number of neighbours sampled of a node with `degree` of them.
    pub fn take(self, degree: u64) -> u64 {
        match self {
            Fanout::All => degree,
            Fanout::AtMost(k) => degree.min(u64::from(k.get())),
        }
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fanout::All => f.write_str("-1"),
            Fanout::AtMost(k) => write!(f, "{k}"),
        }
    }
}

impl FromStr for Fanout {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s.trim() {
            "-1" => Ok(Fanout::All),
            t => t.parse().map(Fanout::AtMost).map_err(|_| {
                Error::parse(t, "not a fanout; give a positive number of neighbours, or -1 for all of them")
            }),
        }
    }
}

impl fmt::Display for Fanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(Fanout::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl FromStr for Fanouts {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        s.split(',').map(Fanout::from_str).collect::<Result<Vec<_>>>().map(Self)
    }
}

crate::error::serialized_as_text!(Fanouts);

/// Seeds of an epoch: nodes, of which one that is given several times (oversampling) is a seed as often, rows of a task, which are nodes at
/// times, or pairs of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedSet {
    seeds: Seeds,
    // Invariant: length of `nodes()` minus the number of distinct ones.
    num_repeats: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Seeds {
    // Invariant: not empty, every node below the `num_nodes` of the constructor.
    Nodes(Arc<[u32]>),
    Rows(RowSeeds),
    Pairs(PairSeeds),
}

impl SeedSet {
    /// Checks the nodes; `what` names them in errors, for example `train split`.
    ///
    /// # Errors
    ///
    /// No node, or a node that does not exist.
    ///
    /// # Complexity
    ///
    /// O(nodes given) time, a byte per node of the graph.
    pub fn new(what: &str, nodes: &[u32], num_nodes: usize) -> Result<Self> {
        if nodes.is_empty() {
            let cure = "it is empty; import the dataset with its split, or make one with --split 0.6,0.2,0.2";
            return Err(Error::setting(what, cure));
        }
        if let Some(v) = nodes.iter().find(|v| **v as usize >= num_nodes) {
            return Err(Error::setting(what, format!("node {v} does not exist, there are {num_nodes}")));
        }
        Ok(Self { num_repeats: num_repeats(nodes, num_nodes), seeds: Seeds::Nodes(nodes.into()) })
    }

    /// Checks rows of a task, by their numbers among `all` of a dataset of `num_nodes` nodes; `what` names them in errors. A seed is the node
    /// of its row, and what is sampled for it is no later than the row's time. Operators say by
    /// [`Description::takes_rows`](crate::Description::takes_rows) that they take such seeds.
    ///
    /// # Errors
    ///
    /// No row, or one that does not exist; rows of another graph.
    ///
    /// # Complexity
    ///
    /// O(rows given) time, a byte per node of the graph.
    pub fn of_rows(what: &str, rows: &[u32], all: &TaskRows, num_nodes: usize) -> Result<Self> {
        let rows = RowSeeds::new(what, rows, all)?;
        if let Some(v) = rows.nodes().iter().find(|v| **v as usize >= num_nodes) {
            return Err(Error::setting(what, format!("node {v} does not exist, there are {num_nodes}")));
        }
        Ok(Self { num_repeats: num_repeats(rows.nodes(), num_nodes), seeds: Seeds::Rows(rows) })
    }

    /// Checks pairs (source, destination); `what` names them in errors, for example `train edges`. A mini-batch takes
    /// [`SamplerSettings::batch_size`] of them as its positives and draws its negatives; its seeds are the end nodes of both
    /// ([`BatchPairs`](crate::BatchPairs)). Operators say by [`Description::takes_pairs`](crate::Description::takes_pairs) that
    /// they take such mini-batches.
    ///
    /// # Errors
    ///
    /// No pair, 2^32 or more, or a node that does not exist; negatives from a mini-batch of a single pair, or given ones.
    ///
    /// # Complexity
    ///
    /// O(pairs given) time, a byte per node of the graph.
    pub fn of_pairs(what: &str, pairs: &[[u32; 2]], num_nodes: usize, settings: PairSettings) -> Result<Self> {
        Self::of_pairs_against(what, pairs, &[], num_nodes, settings)
    }

    /// As [`SeedSet::of_pairs`], with negatives of each pair ([`NegativeDistribution::Given`](crate::NegativeDistribution::Given)):
    /// their destinations, as many for each, in the order of the pairs, whose sources they keep.
    ///
    /// # Errors
    ///
    /// As [`SeedSet::of_pairs`]; not as many negatives for each pair, fewer than the settings take, or a node that does not exist;
    /// given negatives that are to avoid edges.
    ///
    /// # Complexity
    ///
    /// O(pairs and negatives given) time, a byte per node of the graph.
    pub fn of_pairs_against(
        what: &str,
        pairs: &[[u32; 2]],
        negatives: &[u32],
        num_nodes: usize,
        settings: PairSettings,
    ) -> Result<Self> {
        let pairs = PairSeeds::new(what, (pairs, negatives), num_nodes, settings)?;
        Ok(Self { num_repeats: num_repeats(pairs.ends().as_flattened(), num_nodes), seeds: Seeds::Pairs(pairs) })
    }

    /// These pairs with what is to be predicted of each, in their order; a mini-batch has those of its pairs then, and no negatives.
    /// `what` names them in errors.
    ///
    /// # Errors
    ///
    /// Nodes; other numbers of targets than of pairs; settings that draw negatives.
    pub fn with_targets(self, what: &str, targets: PairTargets) -> Result<Self> {
        match self.seeds {
            Seeds::Pairs(pairs) => Ok(Self { seeds: Seeds::Pairs(pairs.with_targets(what, targets)?), ..self }),
            Seeds::Nodes(_) | Seeds::Rows(_) => {
                Err(Error::setting(what, "targets of nodes are the dataset's; give pairs"))
            }
        }
    }

    /// These pairs with the number of an edge type of each, in their order: the type of their negatives, too, and of the edges that a
    /// mini-batch leaves out ([`PairSettings::exclude`]). `what` names them in errors.
    ///
    /// # Errors
    ///
    /// Nodes; other numbers of types than of pairs.
    pub fn with_edge_types(self, what: &str, edge_types: &[u16]) -> Result<Self> {
        match self.seeds {
            Seeds::Pairs(pairs) => Ok(Self { seeds: Seeds::Pairs(pairs.with_edge_types(what, edge_types)?), ..self }),
            Seeds::Nodes(_) | Seeds::Rows(_) => {
                Err(Error::setting(what, "edge types are of pairs, not of nodes; give pairs"))
            }
        }
    }

    /// The nodes, or those of the rows, in the order given; of pairs the ends, source and destination of each in the order given, repeats
    /// included.
    pub fn nodes(&self) -> &[u32] {
        match &self.seeds {
            Seeds::Nodes(nodes) => nodes,
            Seeds::Rows(rows) => rows.nodes(),
            Seeds::Pairs(pairs) => pairs.ends().as_flattened(),
        }
    }

    /// The rows of a task; `None` where the seeds are nodes or pairs.
    pub fn rows(&self) -> Option<&RowSeeds> {
        match &self.seeds {
            Seeds::Rows(rows) => Some(rows),
            Seeds::Nodes(_) | Seeds::Pairs(_) => None,
        }
    }

    /// The pairs; `None` where the seeds are nodes, or rows of a task.
    pub fn pairs(&self) -> Option<&PairSeeds> {
        match &self.seeds {
            Seeds::Nodes(_) | Seeds::Rows(_) => None,
            Seeds::Pairs(pairs) => Some(pairs),
        }
    }

    /// Number of training examples, of which a mini-batch has [`SamplerSettings::batch_size`]: pairs, rows, or nodes.
    pub fn num_examples(&self) -> usize {
        match &self.seeds {
            Seeds::Nodes(nodes) => nodes.len(),
            Seeds::Rows(rows) => rows.rows().len(),
            Seeds::Pairs(pairs) => pairs.ends().len(),
        }
    }

    /// Number of nodes besides the first occurrence of each; 0 where all are distinct.
    pub fn num_repeats(&self) -> usize {
        self.num_repeats
    }
}

fn num_repeats(nodes: &[u32], num_nodes: usize) -> usize {
    let mut seen = vec![false; num_nodes];
    nodes.iter().filter(|&&v| std::mem::replace(&mut seen[v as usize], true)).count()
}
