//! Input rows of models with inputs per node type.

use burn_tensor::Tensor;
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_model_core::nodes_by_type;
use morphgl_registry::{BatchFeatures, Key, Result};

use crate::epilogue::epilogue;
use crate::features::{Features, select};
use crate::model::Pass;

impl Pass<'_> {
    /// The first layer's input rows of `nodes`, with their dropout: the projected features of node types that have some, the learned
    /// embeddings of the others. Features are those that a mini-batch has of the nodes of each type, or the dataset's where it has none. `key` is
    /// the operator's.
    ///
    /// # Errors
    ///
    /// A node that the dataset does not have.
    ///
    /// # Panics
    ///
    /// When the dataset does not have the model's types.
    pub fn read_inputs(
        &self,
        key: Key,
        dataset: &Dataset,
        nodes: &[u32],
        gathered: &[Option<BatchFeatures>],
    ) -> Result<Features> {
        let (device, types) = (self.parameters.device(), dataset.topology.types().expect("a graph with types"));
        let divided = nodes_by_type(key, types, nodes)?;
        let mut position = vec![0i32; nodes.len()];
        let mut at = 0..;
        let mut rows = Vec::new();
        for of_type in &divided {
            for (&node, at) in of_type.positions.iter().zip(&mut at) {
                position[node as usize] = at;
            }
            let (weight, bias) = self.spec.input_names(of_type.node_type);
            let weight = self.parameters.get(&weight);
            rows.push(match bias {
                Some(bias) => {
                    let count = of_type.numbers.len();
                    let own = match gathered.get(of_type.node_type).and_then(Option::as_ref) {
                        Some(own) => {
                            let rows: Vec<u32> = (0..count as u32).collect();
                            Features::gather(own.view(), own.dim, &rows, None, &device)
                        }
                        None => {
                            let features = dataset.features_by_type[of_type.node_type].as_ref();
                            let features = features.expect("features of the model's width");
                            let (view, dim) = (FeatureMatrix::view(features), features.dim());
                            Features::gather(view, dim, &of_type.numbers, None, &device)
                        }
                    };
                    epilogue(own.linear(weight, count), Some(self.parameters.get(&bias)), None, None)
                }
                None => select(weight, &of_type.numbers.iter().map(|&number| number as i32).collect::<Vec<_>>()),
            });
        }
        let rows = match rows.is_empty() {
            true => Tensor::zeros([0, self.spec.in_dim], &device),
            false => select(Tensor::cat(rows, 0), &position),
        };
        Ok(Features::Dense(epilogue(rows, None, None, self.input_dropout())))
    }
}
