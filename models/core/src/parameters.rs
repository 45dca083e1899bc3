//! Names, shapes and initial values of a model's parameters, as in PyG.

use morphgl_registry::{Error, NamedTensor, Result};

use crate::random::uniforms;
use crate::{Attention, Init, LayerShape, ModelKind, ModelSpec, Normalization, ParameterList, ParameterSpec};

const ZEROS: Init = Init::Constant(0.0);
const ONES: Init = Init::Constant(1.0);

impl ModelSpec {
    /// Every parameter in the order of PyG's `state_dict`: inputs by node type, layers, then normalisations, then the decoder of pairs. None of a custom model, which only its
    /// training operator knows.
    ///
    /// ```
    /// use morphgl_model_core::{ModelKind, ModelSpec};
    ///
    /// let spec = ModelSpec { layers: 1, ..ModelSpec::new(ModelKind::Gcn, 5, 3) };
    /// let names: Vec<_> = spec.parameters().into_iter().map(|p| (p.name, p.shape)).collect();
    /// assert_eq!(names[0], ("convs.0.bias".to_string(), vec![3]));
    /// assert_eq!(names[1], ("convs.0.lin.weight".to_string(), vec![3, 5]));
    /// ```
    pub fn parameters(&self) -> Vec<ParameterSpec> {
        if self.kind == ModelKind::Custom {
            return Vec::new();
        }
        let mut list = ParameterList { prefix: String::new(), layer: 0, specs: Vec::new() };
        self.input_parameters(&mut list);
        for layer in 0..self.layers {
            list.layer = layer;
            list.prefix = format!("{}.{layer}", if self.kind == ModelKind::Mlp { "lins" } else { "convs" });
            self.layer_parameters(self.kind, &mut list, self.layer(layer), self.edge_width(0));
        }
        for layer in 0..self.layers.saturating_sub(1) {
            list.layer = layer;
            let (width, batch) = ([self.hidden], self.normalization == Normalization::Batch);
            list.prefix = format!("norms.{layer}{}", if batch { ".module" } else { "" });
            if self.normalization != Normalization::None {
                list.push("weight", &width, ONES);
                list.push("bias", &width, ZEROS);
            }
            if batch {
                list.statistic("running_mean", &width, ZEROS);
                list.statistic("running_var", &width, ONES);
            }
        }
        if self.learns_pairs() {
            (list.layer, list.prefix) = (self.layers, "decoder".to_string());
            self.decoder.parameters(self.num_classes, self.edge_outputs.max(1), self.relations, &mut list);
        }
        list.specs
    }

    /// Parameters of a layer of `kind`, whose edges have `edge_width` features.
    pub(crate) fn layer_parameters(
        &self,
        kind: ModelKind,
        list: &mut ParameterList,
        shape: LayerShape,
        edge_width: usize,
    ) {
        let LayerShape { in_dim, out_dim, heads, head_dim, .. } = shape;
        let all_heads = heads * head_dim;
        let edge_projection = |list: &mut ParameterList| {
            if edge_width > 0 {
                list.push("lin_edge.weight", &[all_heads, edge_width], Init::glorot(all_heads, edge_width));
            }
        };
        match kind {
            ModelKind::Gcn => {
                list.push("bias", &[out_dim], ZEROS);
                list.push("lin.weight", &[out_dim, in_dim], Init::glorot(out_dim, in_dim));
            }
            ModelKind::Sage => {
                list.linear("lin_l", out_dim, in_dim);
                list.push("lin_r.weight", &[out_dim, in_dim], Init::linear(in_dim));
            }
            ModelKind::Gat if self.attention == Attention::Gat => {
                list.push("att_src", &[1, heads, head_dim], Init::glorot(heads, head_dim));
                list.push("att_dst", &[1, heads, head_dim], Init::glorot(heads, head_dim));
                if edge_width > 0 {
                    list.push("att_edge", &[1, heads, head_dim], Init::glorot(heads, head_dim));
                }
                list.push("bias", &[out_dim], ZEROS);
                list.push("lin.weight", &[all_heads, in_dim], Init::glorot(all_heads, in_dim));
                edge_projection(list);
            }
            ModelKind::Gat => {
                list.push("att", &[1, heads, head_dim], Init::glorot(heads, head_dim));
                list.push("bias", &[out_dim], ZEROS);
                for side in ["lin_l", "lin_r"] {
                    list.push(&format!("{side}.weight"), &[all_heads, in_dim], Init::glorot(all_heads, in_dim));
                    list.push(&format!("{side}.bias"), &[all_heads], Init::linear(in_dim));
                }
                edge_projection(list);
            }
            ModelKind::Gin => {
                list.push("eps", &[1], ZEROS);
                list.last_is_trained(self.train_eps);
                list.linear("nn.lins.0", out_dim, in_dim);
                list.linear("nn.lins.1", out_dim, out_dim);
                if edge_width > 0 {
                    list.linear("lin", in_dim, edge_width);
                }
            }
            ModelKind::Mlp => list.linear("", out_dim, in_dim),
            ModelKind::Rgcn => self.rgcn_parameters(list, [in_dim, out_dim]),
            ModelKind::Rsage => self.parameters_by_type(ModelKind::Sage, list, shape),
            ModelKind::Rgat => self.parameters_by_type(ModelKind::Gat, list, shape),
            ModelKind::Hgt => self.hgt_parameters(list, shape),
            ModelKind::Embedding | ModelKind::Custom => {}
            ModelKind::Submitted(model) => (model.parameters)(self.settings(), shape, list),
        }
    }
}

/// The initial parameters: a function of model and seed, the same for every training operator.
///
/// The distributions are those of PyG's `reset_parameters`; the random numbers are not torch's.
pub fn initial_parameters(spec: &ModelSpec, seed: u64) -> Vec<NamedTensor> {
    let tensor = |(index, p): (usize, ParameterSpec)| {
        let values = match p.init {
            Init::Constant(value) => vec![value; p.len()],
            Init::Uniform(bound) => uniforms(seed, index as u32, p.len(), bound),
        };
        NamedTensor { name: p.name, shape: p.shape, values }
    };
    spec.parameters().into_iter().enumerate().map(tensor).collect()
}

/// Finds the tensor of each of `parameters` in `tensors`, in the parameters' order; `what` names them in errors.
///
/// # Errors
///
/// A name that is missing, unknown or given twice, or a shape that is not the parameter's.
pub fn check_tensors<'a>(
    what: &str,
    parameters: &[ParameterSpec],
    tensors: &'a [NamedTensor],
) -> Result<Vec<&'a NamedTensor>> {
    let wrong = |text: String| Error::setting(what, format!("{text}; use tensors of a model with the same spec"));
    let ordered = parameters.iter().map(|p| {
        let mut named = tensors.iter().filter(|t| t.name == p.name);
        let tensor = named.next().ok_or_else(|| wrong(format!("{} is missing", p.name)))?;
        if named.next().is_some() {
            return Err(wrong(format!("{} is given twice", p.name)));
        }
        if tensor.shape != p.shape || tensor.values.len() != p.len() {
            let (shape, len) = (&tensor.shape, tensor.values.len());
            return Err(wrong(format!("{} has shape {shape:?} and {len} values, expected {:?}", p.name, p.shape)));
        }
        Ok(tensor)
    });
    let ordered = ordered.collect::<Result<Vec<_>>>()?;
    match tensors.iter().find(|t| parameters.iter().all(|p| p.name != t.name)) {
        Some(unknown) => Err(wrong(format!("{} is none of the model's", unknown.name))),
        None => Ok(ordered),
    }
}
