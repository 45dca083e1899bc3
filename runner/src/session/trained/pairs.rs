//! Scores of pairs, and the best partners of nodes, by a model of links.

use std::ops::Range;
use std::path::Path;

use morphgl_model_core::{Candidates, ModelKind, Partner, Task};
use serde_json::Value;

use super::read::{edge_type, read_pairs, read_typed_pairs};
use super::{Predicted, Predictions, Trained};
use crate::links::{Embedded, Ends, decoder_elements, infer, known_bytes, known_pairs, pair_scores};
use crate::usage::Usage;
use crate::{edges, link_types};

/// The scores of pairs of nodes: how likely a link is, higher where it is likelier.
#[derive(Debug, Clone, PartialEq)]
pub struct PairScores {
    /// Source and destination of each pair, as the graph's source has them.
    pub ids: Vec<[Value; 2]>,
    /// The score of each.
    pub scores: Vec<f32>,
}

/// The likeliest partners of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Partners {
    /// The nodes, as the graph's source has them.
    pub ids: Vec<Value>,
    /// Of each, the destinations of the highest scores, highest first.
    pub partners: Vec<Vec<Value>>,
    /// Their scores.
    pub scores: Vec<Vec<f32>>,
}

impl Trained {
    /// Scores the pairs of a file by their embeddings, with all neighbours: two ids or names a line, source and destination, separated by
    /// a comma, a tab or spaces, and behind them the edge type by its name, where the model has a vector for each. Where all training pairs
    /// lead from one node type to another, ids are those of these types, else they may be `type:id`.
    ///
    /// # Errors
    ///
    /// A model of nodes, ranks of MPI, a file that cannot be read or a line of it that is no pair; as [`Trained::predict`].
    pub fn score_pairs(&mut self, file: &Path) -> anyhow::Result<PairScores> {
        self.check_links("--edges")?;
        let types = link_types::of_pairs(&self.dataset);
        let model = self.config.spec.model.clone();
        let (pairs, of_pairs) = match model.relations {
            0 => (read_pairs(file, &self.dataset, self.names.as_ref(), types)?, Vec::new()),
            _ => read_typed_pairs(file, &self.dataset, self.names.as_ref())?,
        };
        let num_nodes = self.dataset.num_nodes();
        let embedded = self.embedded(Ends::of(num_nodes, pairs.iter().copied()))?;
        let scores = pair_scores(self.training.as_mut(), &model, &embedded.rows, (&embedded.pairs, &of_pairs))?;
        let ids = pairs.iter().map(|&[source, destination]| {
            [self.id_of(source, types.map(|types| types[0])), self.id_of(destination, types.map(|types| types[1]))]
        });
        Ok(PairScores { ids: ids.collect(), scores })
    }

    /// Embeds the ends of pairs, with all neighbours or as [`Trained::predict_by`] says.
    fn embedded(&mut self, ends: Ends) -> anyhow::Result<Embedded> {
        if self.predicts_sampled {
            return Ok(Embedded { rows: self.outputs(&ends.nodes)?, pairs: ends.pairs });
        }
        ends.embedded(self.training.as_mut(), &mut |training, nodes| infer(training, nodes, None))
    }

    /// The id of a node in a column of nodes of this type: that among those of the type, where it is of the type.
    fn id_of(&self, node: u32, of: Option<usize>) -> Value {
        let types = self.dataset.topology.types();
        match types.zip(of).is_some_and(|(types, of)| types.node_type(node) == of) {
            true => self.own_id(node, of),
            false => self.id(node),
        }
    }

    /// Predicts the class, labels or values of the edges in a file, as [`Trained::score_pairs`] reads it.
    ///
    /// # Errors
    ///
    /// As [`Trained::score_pairs`], of a model that does not predict edges.
    pub fn predict_edges(&mut self, file: &Path) -> anyhow::Result<Predictions> {
        let model = self.config.spec.model.clone();
        if !model.learns_edges() {
            return Err(Usage::error("the model predicts no edges"));
        }
        self.check_one_process("--edges")?;
        let types = link_types::of_pairs(&self.dataset);
        let pairs = read_pairs(file, &self.dataset, self.names.as_ref(), types)?;
        let num_nodes = self.dataset.num_nodes();
        let embedded = self.embedded(Ends::of(num_nodes, pairs.iter().copied()))?;
        let outputs = edges::outputs(self.training.as_mut(), &model, &embedded.rows, &embedded.pairs)?;
        let ids =
            pairs.iter().map(|pair| [0, 1].map(|end| self.id_of(pair[end], types.map(|types| types[end])))).collect();
        Ok(self.predictions(Predicted::Edges(ids), outputs, None))
    }

    /// Whether the model predicts the class, labels or values of edges.
    pub fn predicts_edges(&self) -> bool {
        self.config.spec.model.learns_edges()
    }

    /// The `k` destinations of the highest scores for each of these sources, of all nodes but the source itself and, unless
    /// `include_edges`, those it has an edge to: in the graph or in a split. Of a graph with types they are nodes of the types that
    /// edges lead to from the source's. There are fewer where no more nodes are left. Of a model with a vector per edge type, edges are of
    /// the type named `edge_type`, and partners are nodes that it leads to.
    ///
    /// # Errors
    ///
    /// An edge type that the graph does not have, does not lead from a source, or that the model tells from no other; a model of nodes, or ranks of MPI; as [`Trained::predict`].
    ///
    /// # Complexity
    ///
    /// Besides that of [`Trained::predict`] for all nodes, O(sources · nodes · width) time.
    pub fn best_partners(
        &mut self,
        sources: &[u32],
        k: usize,
        include_edges: bool,
        edge_type: Option<&str>,
    ) -> anyhow::Result<Partners> {
        self.check_links("--top")?;
        let model = &self.config.spec.model;
        if model.kind == ModelKind::Custom && !model.settings().word("decoder").is_empty() {
            return Err(Usage::error(
                "--top: partners are found by a decoder of MorphGL's; score pairs by --edges FILE",
            ));
        }
        let of = self.edge_type(edge_type)?;
        self.check_memory_with(if include_edges { 0 } else { known_bytes(&self.dataset) })?;
        let model = self.config.spec.model.clone();
        let num_nodes = self.dataset.num_nodes();
        let embedded = self.embedded(Ends::among_all(num_nodes, std::iter::empty()))?;
        let decoder = decoder_elements(&model, self.training.parameters()?);
        let decoder = model.decoder.of_edge_type(&decoder, model.num_classes, of);
        let known = (!include_edges).then(|| known_pairs(&self.dataset, of));
        let rows = (&embedded.rows[..], model.num_classes);
        let types = link_types::of_pairs(&self.dataset);
        let mut best = vec![Vec::new(); sources.len()];
        // Sources whose partners are of the same types.
        let mut alike: Vec<(Vec<Range<u32>>, Vec<usize>)> = Vec::new();
        for (at, &source) in sources.iter().enumerate() {
            let of = match of {
                None => link_types::partners(&self.dataset, types, source),
                Some(of) => vec![self.targets_of(of, source)?],
            };
            match alike.iter_mut().find(|(others, _)| *others == of) {
                Some((_, positions)) => positions.push(at),
                None => alike.push((of, vec![at])),
            }
        }
        for (ranges, positions) in alike {
            let some: Vec<u32> = positions.iter().map(|&at| sources[at]).collect();
            for nodes in ranges {
                let candidates = Candidates { nodes, known: known.as_ref() };
                let found = model.decoder.best_partners(rows, decoder, &some, k, &candidates);
                positions.iter().zip(found).for_each(|(&at, found)| best[at].extend(found));
            }
        }
        for best in &mut best {
            best.sort_by(Partner::order);
            best.truncate(k);
        }
        let id = |node: u32, end: usize| self.id_of(node, types.map(|types| types[end]));
        Ok(Partners {
            ids: sources.iter().map(|&v| id(v, 0)).collect(),
            partners: best.iter().map(|best| best.iter().map(|partner| id(partner.node, 1)).collect()).collect(),
            scores: best.iter().map(|best| best.iter().map(|partner| partner.score).collect()).collect(),
        })
    }

    /// Number of the edge type of this name; `None` where the model has no vector per edge type.
    fn edge_type(&self, name: Option<&str>) -> anyhow::Result<Option<u16>> {
        let types = self.dataset.topology.types().filter(|_| self.config.spec.model.relations > 0);
        match (types, name) {
            (None, None) => Ok(None),
            (None, Some(name)) => {
                let what =
                    "the model tells no edge types apart; leave it out, or decode by distmult pairs that have types";
                Err(Usage::error(format!("--edge-type {name}: {what}")))
            }
            (Some(_), None) => Err(Usage::error(
                "--top: the model scores each edge type by a vector of its own; name one by --edge-type",
            )),
            (Some(types), Some(name)) => match edge_type(types, name) {
                Ok(of) => Ok(Some(of)),
                Err(what) => Err(Usage::error(format!("--edge-type {what}"))),
            },
        }
    }

    /// The nodes that edges of a type may lead to from a node.
    fn targets_of(&self, edge_type: u16, source: u32) -> anyhow::Result<Range<u32>> {
        let types = self.dataset.topology.types().expect("a model with relations is of a graph with types");
        let [from, to] = types.ends(edge_type.into());
        if types.node_type(source) != from {
            let (of, own) = (&types.edge_types()[usize::from(edge_type)], types.node_type(source));
            let (id, own) = (self.id(source), &types.node_types()[own].name);
            return Err(Usage::error(format!(
                "--edge-type {of}: the node {id} is of type {own}; name nodes of type {} by --nodes",
                of.source
            )));
        }
        Ok(types.range(to))
    }

    /// Checks that pairs can be scored, as `option` asks for.
    fn check_links(&self, option: &str) -> anyhow::Result<()> {
        if self.task() != Task::Link {
            let task = self.task();
            if self.predicts_edges() {
                let what =
                    format!("{option}: the model predicts edges that exist, not whether they do; give --edges FILE");
                return Err(Usage::error(what));
            }
            return Err(Usage::error(format!(
                "{option}: the model of the task {task} predicts nodes, not links; give --nodes"
            )));
        }
        self.check_one_process(option)
    }

    fn check_one_process(&self, option: &str) -> anyhow::Result<()> {
        if self.context.ranks().is_some() {
            return Err(Usage::error(format!("{option}: pairs are scored by one process; leave mpirun out")));
        }
        self.check_memory()
    }
}
