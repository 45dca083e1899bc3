//! Typed models: parameters per edge type, and inputs per node type.

use morphgl_graph_store::{Dataset, EdgeType, FeatureMatrix, NodeType, Types};
use morphgl_registry::{Error, HostBatch, Key, Result};

use crate::{Decoder, Init, LayerShape, ModelKind, ModelSpec, ParameterList};

impl ModelSpec {
    /// Name of an edge type in the names of parameters, as PyG's `to_hetero` makes it: `author__writes__paper`.
    pub fn edge_type_key(edge_type: &EdgeType) -> String {
        [&edge_type.source, &edge_type.name, &edge_type.target].map(|name| key(name)).join("__")
    }

    /// Name of a node type in the names of parameters.
    pub fn node_type_key(node_type: &NodeType) -> String {
        key(&node_type.name)
    }

    /// The edge types; none of a model without types.
    pub fn edge_types(&self) -> &[EdgeType] {
        self.types.as_ref().map_or(&[], Types::edge_types)
    }

    /// The names of the parameters that make the input rows of a node type: the weight and the bias of a projection, or the table of
    /// embeddings alone.
    ///
    /// # Panics
    ///
    /// When the model has no inputs of this node type.
    pub fn input_names(&self, node_type: usize) -> (String, Option<String>) {
        let types = self.types.as_ref().expect("a model with inputs per node type has types");
        let name = key(&types.node_types()[node_type].name);
        match self.input_widths[node_type] {
            0 => (format!("emb_dict.{name}.weight"), None),
            _ => (format!("lin_dict.{name}.weight"), Some(format!("lin_dict.{name}.bias"))),
        }
    }

    /// Projections and embeddings of node types, which belong to the first layer.
    pub(crate) fn input_parameters(&self, list: &mut ParameterList) {
        let Some(types) = &self.types else { return };
        for (node_type, &width) in types.node_types().iter().zip(&self.input_widths) {
            let name = key(&node_type.name);
            if width > 0 {
                list.prefix = format!("lin_dict.{name}");
                list.linear("", self.in_dim, width);
            } else {
                list.prefix = format!("emb_dict.{name}");
                // Rows of expected length 1.
                let init = Init::Uniform((3.0 / self.in_dim as f32).sqrt());
                list.push("weight", &[node_type.count as usize, self.in_dim], init);
            }
        }
    }

    /// Parameters of a layer of `kind` for each edge type.
    pub(crate) fn parameters_by_type(&self, kind: ModelKind, list: &mut ParameterList, shape: LayerShape) {
        let prefix = std::mem::take(&mut list.prefix);
        for (number, edge_type) in self.edge_types().iter().enumerate() {
            list.prefix = format!("{prefix}.{}", Self::edge_type_key(edge_type));
            self.layer_parameters(kind, list, shape, self.edge_width(number));
        }
        list.prefix = prefix;
    }

    /// Parameters of PyG's `RGCNConv`, whose weights are `[in, out]`.
    pub(crate) fn rgcn_parameters(&self, list: &mut ParameterList, [in_dim, out_dim]: [usize; 2]) {
        let count = self.edge_types().len();
        match (self.bases, self.diagonal_blocks) {
            (0, 0) => list.push("weight", &[count, in_dim, out_dim], Init::glorot(in_dim, out_dim)),
            (0, blocks) => {
                let [rows, columns] = [in_dim, out_dim].map(|width| width / blocks);
                list.push("weight", &[count, blocks, rows, columns], Init::glorot(rows, columns));
            }
            (bases, _) => {
                list.push("weight", &[bases, in_dim, out_dim], Init::glorot(in_dim, out_dim));
                list.push("comp", &[count, bases], Init::glorot(count, bases));
            }
        }
        list.push("root", &[in_dim, out_dim], Init::glorot(in_dim, out_dim));
        list.push("bias", &[out_dim], Init::Constant(0.0));
    }

    /// Parameters of PyG's `HGTConv`, whose maps per edge type are numbered by head, then by edge type.
    pub(crate) fn hgt_parameters(&self, list: &mut ParameterList, shape: LayerShape) {
        let LayerShape { in_dim, out_dim, heads, head_dim, .. } = shape;
        let Some(types) = &self.types else { return };
        let keys: Vec<String> = types.node_types().iter().map(Self::node_type_key).collect();
        keys.iter().for_each(|key| list.linear(&format!("kqv_lin.lins.{key}"), 3 * out_dim, in_dim));
        keys.iter().for_each(|key| list.linear(&format!("out_lin.lins.{key}"), out_dim, out_dim));
        for map in ["k_rel.weight", "v_rel.weight"] {
            list.push(map, &[heads * types.edge_types().len(), head_dim, head_dim], Init::linear(head_dim));
        }
        keys.iter().for_each(|key| list.push(&format!("skip.{key}"), &[1], Init::Constant(1.0)));
        for edge_type in types.edge_types() {
            list.push(&format!("p_rel.{}", Self::edge_type_key(edge_type)), &[1, heads], Init::Constant(1.0));
        }
    }

    /// Refuses what does not hold for typed models: the field, and why.
    pub(crate) fn check_types(&self) -> std::result::Result<(), (&'static str, String)> {
        let (bases, blocks) = (self.bases, self.diagonal_blocks);
        for (field, value) in [("bases", bases), ("diagonal_blocks", blocks)] {
            if value > 0 && self.kind != ModelKind::Rgcn {
                return Err((field, format!("a {} has none; leave it out", self.kind)));
            }
        }
        if self.kind == ModelKind::Hgt && !self.num_classes.is_multiple_of(self.output_heads) {
            let (heads, width) = (self.output_heads, self.num_classes);
            return Err(("output_heads", format!("{heads} heads cannot share a width of {width}; give 1")));
        }
        if bases > 0 && blocks > 0 {
            return Err(("diagonal_blocks", "a weight is decomposed by bases or by blocks; leave one out".to_string()));
        }
        let widths = (0..self.layers).map(|layer| self.layer(layer));
        let widths =
            widths.flat_map(|shape| [shape.in_dim, shape.out_dim]).filter(|_| blocks > 0 && self.types.is_some());
        for width in widths {
            if !width.is_multiple_of(blocks) {
                let what = format!(
                    "{blocks} blocks cannot share a width of {width}; use a number that divides all widths, or bases"
                );
                return Err(("diagonal_blocks", what));
            }
        }
        let Some(types) = &self.types else {
            return match self.input_widths[..] {
                [] => Ok(()),
                _ => Err(("input_widths", "widths per node type need types; give both".to_string())),
            };
        };
        if self.kind.is_typed() && types.edge_types().is_empty() {
            return Err((
                "types",
                format!("a {} has parameters per edge type, and the graph has none; train mlp", self.kind),
            ));
        }
        let count = types.node_types().len();
        if !self.input_widths.is_empty() && self.input_widths.len() != count {
            let given = self.input_widths.len();
            return Err(("input_widths", format!("{given} widths for {count} node types; give one for each")));
        }
        if self.kind == ModelKind::Custom {
            return Err(("types", "a custom model has types of its own; leave them out".to_string()));
        }
        let nodes = types.node_types().iter().map(|node_type| (key(&node_type.name), node_type.name.clone()));
        let edges = types.edge_types().iter().map(|edge_type| (Self::edge_type_key(edge_type), edge_type.to_string()));
        for (what, mut keys) in [("node", nodes.collect::<Vec<_>>()), ("edge", edges.collect())] {
            keys.sort();
            if let Some(pair) = keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let [(name, first), (_, second)] = pair else { unreachable!("windows of 2") };
                let what = format!(
                    "the {what} types {first:?} and {second:?} are both {name} in names of parameters; rename one"
                );
                return Err(("types", what));
            }
        }
        Ok(())
    }
}

/// The nodes of one type among the input nodes of a mini-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodesOfType {
    /// Number of the node type.
    pub node_type: usize,
    /// Position of each among the input nodes, ascending.
    pub positions: Vec<u32>,
    /// Number of each among the nodes of its type.
    pub numbers: Vec<u32>,
}

/// Divides nodes by their type, in the order of the types; types without a node are left out.
///
/// # Errors
///
/// A node that the graph does not have.
///
/// # Complexity
///
/// O(nodes · log node types).
pub fn nodes_by_type(key: Key, types: &Types, nodes: &[u32]) -> Result<Vec<NodesOfType>> {
    if let Some(node) = nodes.iter().find(|&&node| node as usize >= types.num_nodes()) {
        let what = format!("node {node} is not in the graph, which has {}", types.num_nodes());
        return Err(Error::setting(key, format!("{what}; batch it from the dataset that is trained on")));
    }
    let all = (0..types.node_types().len()).map(|node_type| NodesOfType {
        node_type,
        positions: Vec::new(),
        numbers: Vec::new(),
    });
    let mut all: Vec<_> = all.collect();
    for (position, &node) in nodes.iter().enumerate() {
        let of_type = &mut all[types.node_type(node)];
        of_type.positions.push(position as u32);
        of_type.numbers.push(node - types.range(of_type.node_type).start);
    }
    all.retain(|of_type| !of_type.positions.is_empty());
    Ok(all)
}

/// Checks that a mini-batch with features per node type has a row of the model's width for each of its input nodes.
///
/// # Errors
///
/// Other widths, or another number of rows.
pub fn check_features_by_type(key: Key, model: &ModelSpec, types: &Types, batch: &HostBatch) -> Result<()> {
    let wrong = |what: String| {
        let what = format!("{what}; batch it from the dataset that is trained on");
        Err(Error::setting(format!("{key}, {}", batch.id), what))
    };
    let (by_type, widths) = (&batch.features_by_type, &model.input_widths);
    if by_type.is_empty() || widths.is_empty() {
        return Ok(());
    }
    if by_type.len() != widths.len() {
        return wrong(format!("it has features of {} node types, the model reads {}", by_type.len(), widths.len()));
    }
    let mut counts = vec![0usize; widths.len()];
    batch.input_nodes.iter().for_each(|&node| counts[types.node_type(node)] += 1);
    for ((features, &width), (&count, of_type)) in by_type.iter().zip(widths).zip(counts.iter().zip(types.node_types()))
    {
        let found = features.as_ref().map_or((0, 0), |features| (features.dim, features.num_rows()));
        if width > 0 && found != (width, count) {
            let (name, (dim, rows)) = (&of_type.name, found);
            return wrong(format!(
                "it has {rows} rows of {dim} features for {count} nodes of type {name}, the model reads {width}"
            ));
        }
    }
    Ok(())
}

/// The name of a type in the names of parameters, which are identifiers divided by dots.
fn key(name: &str) -> String {
    name.replace([' ', '-', ':', '.', '<', '>'], "_")
}

/// Checks that a model's types are those of a dataset, and its inputs per node type the widths of the dataset's features.
///
/// # Errors
///
/// A typed model without types or on a graph without; other types; other widths; embeddings of another number of nodes; features per
/// node type that the model does not project.
pub fn check_types(model: &ModelSpec, dataset: &Dataset) -> Result<()> {
    let wrong = |field: &str, what: String| Err(Error::setting(format!("model.{field}"), what));
    let by_type = &dataset.features_by_type;
    if model.input_widths.is_empty() && dataset.features.is_none() && !by_type.is_empty() {
        let what = "the dataset has features per node type, and the model projects none; give the width of each type's";
        return wrong("input_widths", what.to_string());
    }
    if model.kind == ModelKind::Embedding && model.input_widths.is_empty() && model.decoder == Decoder::Dot {
        let what = "it has no parameters over the dataset's features, so that a model without layers learns nothing; \
                    use distmult or mlp";
        return wrong("decoder", what.to_string());
    }
    if !model.has_edge_types() && model.input_widths.is_empty() {
        return Ok(());
    }
    let Some(of_dataset) = dataset.topology.types() else {
        let kind = model.kind;
        let what = format!(
            "a {kind} has parameters per type, and the graph has no types; import it with types, or train gcn, sage or gat"
        );
        return wrong(if kind.is_typed() { "kind" } else { "types" }, what);
    };
    let names = |types: &Types| types.node_types().iter().map(|node_type| node_type.name.clone()).collect::<Vec<_>>();
    let same = |types: &&Types| types.edge_types() == of_dataset.edge_types() && names(types) == names(of_dataset);
    let Some(types) = model.types.as_ref().filter(same) else {
        let what =
            "they are not those of the dataset; train on a graph with the same node and edge types, in the same order";
        return wrong("types", what.to_string());
    };
    for (at, &width) in model.input_widths.iter().enumerate() {
        let [of_model, of_graph] = [types, of_dataset].map(|types| &types.node_types()[at]);
        let found = by_type.get(at).and_then(Option::as_ref).map_or(0, FeatureMatrix::dim);
        if found != width {
            let name = &of_model.name;
            return wrong(
                "input_widths",
                format!("nodes of type {name} have {found} features, the model reads {width}"),
            );
        }
        if width == 0 && of_model.count != of_graph.count {
            let (name, of_model, of_graph) = (&of_model.name, of_model.count, of_graph.count);
            let what = format!(
                "the model has embeddings of {of_model} nodes of type {name}, the dataset has {of_graph} such nodes; train anew, or give the type features"
            );
            return wrong("types", what);
        }
    }
    Ok(())
}

/// Refuses a decoder with a vector per edge type, for operators with decoders of their own. `cure` names one that trains it.
///
/// # Errors
///
/// A model with relations.
pub fn refuse_relations(model: &ModelSpec, cure: &str) -> Result<()> {
    if model.relations == 0 {
        return Ok(());
    }
    Err(Error::setting("distmult with a vector per edge type", format!("it is not trained here; {cure}")))
}

/// Refuses typed models and inputs per node type, for operators without such layers. `cure` names one that trains them.
///
/// # Errors
///
/// A model that is typed or has inputs per node type.
pub fn refuse_typed(model: &ModelSpec, cure: &str) -> Result<()> {
    let what = match model.kind {
        kind if kind.is_typed() => format!("the model {kind}"),
        _ if !model.input_widths.is_empty() => "a model with inputs per node type".to_string(),
        _ => return Ok(()),
    };
    Err(Error::setting(what, format!("it is not trained here; {cure}")))
}

#[cfg(test)]
mod tests;
