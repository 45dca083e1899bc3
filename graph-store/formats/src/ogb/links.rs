//! OGB's splits of edges: `train.pt`, `valid.pt` and `test.pt`, dicts of numpy arrays that `torch.save` wrote.

use std::path::Path;

use morphgl_graph_store::{EdgeSplits, Error, Position, Result, check_own};

use crate::Ingest;
use crate::files::invalid;
use crate::pickle::Pickle;
use crate::torch_file::TorchFile;

/// What a file of a split may take of the memory limit: its bytes, its decoded arrays and the pairs are held at once.
const SHARE: u64 = 4;
const CURE: &str = "check that this is a split of OGB's, of pairs of nodes";

/// Whether a split is of edges.
pub(super) fn is_split(split: &Path) -> bool {
    split.join("train.pt").exists()
}

/// Takes the pairs of a split, and the negatives that it has of them.
///
/// Pairs are `edge` `[n, 2]`, with one list `edge_neg` `[m, 2]` of negatives for all (ogbl-collab, ogbl-ppa), or `source_node` and
/// `target_node` `[n]`, with `target_node_neg` `[n, K]`, destinations of negatives of each (ogbl-citation2).
///
/// # Errors
///
/// A file is missing or damaged, or has other arrays; a node that does not exist.
pub(super) fn read(ingest: &mut Ingest<'_>, split: &Path) -> Result<()> {
    let mut others: Vec<String> = Vec::new();
    for (part, (array, negative_array)) in ["train", "valid", "test"].into_iter().zip(EdgeSplits::NEGATIVES) {
        let path = split.join(format!("{part}.pt"));
        let file = TorchFile::read(&path, ingest.options().memory / SHARE)?;
        let pickle = file.pickle()?;
        let mut arrays = Arrays { path: &path, of: Vec::new(), pickle: &pickle };
        for (name, value) in pickle.arrays()? {
            let known = ["edge", "edge_neg", "source_node", "target_node", "target_node_neg"].contains(&name.as_str());
            if known {
                arrays.of.push((name, value));
            } else if !others.contains(&name) {
                others.push(name);
            }
        }
        let pairs = arrays.pairs(&others)?;
        let negatives = arrays.negatives(&pairs)?;
        ingest.links(array, &path, pairs.as_flattened())?;
        let Some(negatives) = negatives.filter(|_| ingest.options().edge_split.is_none()) else { continue };
        if part == "train" && check_own(&pairs, &negatives).is_err() {
            let what = "negatives to train against are one list for all pairs, and were left out: training draws them";
            ingest.note(format!("{part}.pt: {} {what}", negatives.len()));
            continue;
        }
        ingest.links(negative_array, &path, negatives.as_flattened())?;
    }
    if !others.is_empty() {
        ingest.note(format!("arrays of the split were left out: {}", others.join(", ")));
    }
    Ok(())
}

/// The arrays of a file, by name.
struct Arrays<'p> {
    path: &'p Path,
    of: Vec<(String, crate::pickle::Value)>,
    pickle: &'p Pickle<'p>,
}

impl Arrays<'_> {
    fn pairs(&self, others: &[String]) -> Result<Vec<[u32; 2]>> {
        if let Some((shape, nodes)) = self.nodes("edge")? {
            return self.matrix("edge", &shape, &nodes);
        }
        let (Some((_, sources)), Some((_, targets))) = (self.nodes("source_node")?, self.nodes("target_node")?) else {
            let triples = others.iter().any(|name| name == "relation");
            let what = match triples {
                true => "triples of a knowledge graph, whose edges have types, are not read".to_string(),
                false => "it has neither edge nor source_node and target_node".to_string(),
            };
            return invalid(self.path, what, CURE);
        };
        if sources.len() != targets.len() {
            let what = format!("{} source_node and {} target_node", sources.len(), targets.len());
            return invalid(self.path, what, CURE);
        }
        Ok(sources.into_iter().zip(targets).map(|(source, target)| [source, target]).collect())
    }

    fn negatives(&self, pairs: &[[u32; 2]]) -> Result<Option<Vec<[u32; 2]>>> {
        if let Some((shape, nodes)) = self.nodes("edge_neg")? {
            return self.matrix("edge_neg", &shape, &nodes).map(Some);
        }
        let Some((shape, destinations)) = self.nodes("target_node_neg")? else { return Ok(None) };
        match shape[..] {
            [rows, count] if rows == pairs.len() as u64 && count > 0 => {
                let of_pair = pairs.iter().zip(destinations.chunks(count as usize));
                Ok(Some(of_pair.flat_map(|(&[source, _], of)| of.iter().map(move |&to| [source, to])).collect()))
            }
            _ => invalid(self.path, format!("target_node_neg of shape {shape:?} for {} pairs", pairs.len()), CURE),
        }
    }

    fn matrix(&self, name: &str, shape: &[u64], nodes: &[u32]) -> Result<Vec<[u32; 2]>> {
        match shape {
            [_, 2] => Ok(nodes.as_chunks().0.to_vec()),
            _ => invalid(self.path, format!("{name} of shape {shape:?}, expected [pairs, 2]"), CURE),
        }
    }

    /// Shape and nodes of the array of this name, where there is one.
    fn nodes(&self, name: &str) -> Result<Option<(Vec<u64>, Vec<u32>)>> {
        let Some((_, value)) = self.of.iter().find(|(other, _)| other == name) else { return Ok(None) };
        let array = self.pickle.array(*value, name)?;
        if array.fortran && array.shape.len() > 1 {
            return invalid(self.path, format!("{name} is in Fortran order"), "save numpy.ascontiguousarray of it");
        }
        let mut nodes = Vec::new();
        if !array.ty.ids(array.bytes, &mut nodes) {
            let mut ids = Vec::new();
            array.ty.ints(array.bytes, &mut ids).or_else(|what| invalid(self.path, format!("{name}: {what}"), CURE))?;
            nodes.clear();
            for (at, id) in (0..).zip(ids) {
                let absent = || format!("{name}: node {id} does not exist");
                nodes.push(
                    u32::try_from(id).map_err(|_| Error::invalid(self.path, Position::Element(at), absent(), CURE))?,
                );
            }
        }
        Ok(Some((array.shape, nodes)))
    }
}
