//! Reference of typed models, in f64, edge by edge.

use morphgl_graph_store::{Dataset, Types};
use morphgl_registry::NamedTensor;
use serde_json::Value;

type RowVectors = Vec<Vec<f64>>;

fn types(dataset: &Dataset) -> &Types {
    dataset.topology.types().expect("a graph with types")
}

/// The parameter of a name.
fn get<'a>(parameters: &'a [NamedTensor], name: &str) -> &'a NamedTensor {
    parameters.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no parameter {name}"))
}

/// Rows `[out, in]` of a weight times `x`, plus a bias.
fn affine(x: &[f64], weight: &NamedTensor, bias: Option<&NamedTensor>) -> Vec<f64> {
    let product = |row: &[f32]| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>();
    let mut out: Vec<f64> = weight.values.chunks_exact(x.len()).map(product).collect();
    add(&mut out, bias.map_or(&[], |bias| &bias.values));
    out
}

fn add(out: &mut [f64], values: &[f32]) {
    out.iter_mut().zip(values).for_each(|(out, &value)| *out += f64::from(value));
}

/// The input rows of all nodes, of a model with inputs per node type.
pub(super) fn inputs(dataset: &Dataset, parameters: &[NamedTensor]) -> RowVectors {
    let types = types(dataset);
    let row = |node: u32| {
        let of_type = types.node_type(node);
        let (name, at) =
            (types.node_types()[of_type].name.replace(' ', "_"), (node - types.range(of_type).start) as usize);
        match &dataset.features_by_type[of_type] {
            Some(matrix) => {
                let mut values = vec![0.0; matrix.dim()];
                matrix.view().part(at * matrix.dim(), matrix.dim()).to_f32(&mut values);
                let values: Vec<f64> = values.into_iter().map(f64::from).collect();
                let [weight, bias] = ["weight", "bias"].map(|of| get(parameters, &format!("lin_dict.{name}.{of}")));
                affine(&values, weight, Some(bias))
            }
            None => {
                let table = get(parameters, &format!("emb_dict.{name}.weight"));
                let width = table.shape[1];
                table.values[at * width..(at + 1) * width].iter().map(|&value| f64::from(value)).collect()
            }
        }
    };
    (0..types.num_nodes() as u32).map(row).collect()
}

/// The output of a typed layer for all nodes, before its activation.
pub(super) fn layer(
    dataset: &Dataset,
    model: &Value,
    (layer, last): (usize, bool),
    x: &RowVectors,
    parameters: &[NamedTensor],
) -> RowVectors {
    if model["kind"] == "hgt" {
        return transformed(dataset, x, &|name| get(parameters, &format!("convs.{layer}.{name}")));
    }
    let (types, topology) = (types(dataset), &dataset.topology);
    let edge_type_key = |edge_type: usize| {
        let of_type = &types.edge_types()[edge_type];
        [&of_type.source, &of_type.name, &of_type.target].map(|name| name.replace(' ', "_")).join("__")
    };
    let of_layer = |name: &str| get(parameters, &format!("convs.{layer}.{name}"));
    let of_type = |edge_type: usize, name: &str| of_layer(&format!("{}.{name}", edge_type_key(edge_type)));
    let leading_to = |node: u32| {
        let of_node = types.node_type(node);
        (0..types.edge_types().len()).filter(move |&edge_type| types.ends(edge_type)[1] == of_node)
    };
    let mean = |sources: &[u32]| -> Vec<f64> {
        let column = |c: usize| sources.iter().map(|&u| x[u as usize][c]).sum::<f64>() / sources.len() as f64;
        (0..x[0].len()).map(column).collect()
    };
    let kind = model["kind"].as_str().expect("a kind");
    let width = match kind {
        "rgcn" => of_layer("bias").values.len(),
        _ => of_type(0, if kind == "rsage" { "lin_l.bias" } else { "bias" }).values.len(),
    };
    let row = |node: u32| {
        let mut out = vec![0.0; width];
        let mut sum = |row: Vec<f64>| out.iter_mut().zip(row).for_each(|(out, value)| *out += value);
        for (edge_type, edges) in topology.sub_rows(node) {
            let sources = &topology.indices()[edges];
            sum(match kind {
                "rgcn" => relational(model, edge_type, &mean(sources), width, &of_layer),
                "rsage" => affine(&mean(sources), of_type(edge_type, "lin_l.weight"), None),
                _ => attended(model, node, sources, x, last, &|name| of_type(edge_type, name)),
            });
        }
        match kind {
            "rgcn" => {
                let root = &of_layer("root").values;
                let product = |c: usize| {
                    x[node as usize].iter().enumerate().map(|(r, x)| x * f64::from(root[r * width + c])).sum()
                };
                sum((0..width).map(product).collect());
                add(&mut out, &of_layer("bias").values);
            }
            "rsage" => {
                for edge_type in leading_to(node) {
                    let (weight, bias) = (of_type(edge_type, "lin_r.weight"), of_type(edge_type, "lin_l.bias"));
                    sum(affine(&x[node as usize], weight, Some(bias)));
                }
            }
            _ => leading_to(node).for_each(|edge_type| add(&mut out, &of_type(edge_type, "bias").values)),
        }
        out
    };
    (0..topology.num_nodes() as u32).map(row).collect()
}

/// The weight of an edge type of an R-GCN times a row.
fn relational<'a>(
    model: &Value,
    edge_type: usize,
    x: &[f64],
    width: usize,
    of_layer: &dyn Fn(&str) -> &'a NamedTensor,
) -> Vec<f64> {
    let weight = &of_layer("weight").values;
    let (depth, blocks) = (x.len(), model["diagonal_blocks"].as_u64().unwrap_or(1) as usize);
    let element = |row: usize, column: usize| -> f64 {
        let [rows, columns] = [depth / blocks, width / blocks];
        if let Some(bases) = model["bases"].as_u64() {
            let comp = &of_layer("comp").values;
            let of_base = |base: usize| {
                f64::from(comp[edge_type * bases as usize + base])
                    * f64::from(weight[(base * depth + row) * width + column])
            };
            (0..bases as usize).map(of_base).sum()
        } else if row / rows != column / columns {
            0.0
        } else {
            let block = edge_type * blocks + row / rows;
            f64::from(weight[(block * rows + row % rows) * columns + column % columns])
        }
    };
    (0..width).map(|column| (0..depth).map(|row| x[row] * element(row, column)).sum()).collect()
}

/// Attention of a node over its sources of one edge type, without its bias.
fn attended<'a>(
    model: &Value,
    node: u32,
    sources: &[u32],
    x: &RowVectors,
    last: bool,
    of_type: &dyn Fn(&str) -> &'a NamedTensor,
) -> Vec<f64> {
    let leaky = |x: f64| if x > 0.0 { x } else { 0.2 * x };
    let gatv2 = model["attention"] == "gatv2";
    let own = &x[node as usize];
    let shape = &of_type(if gatv2 { "att" } else { "att_src" }).shape;
    let (heads, width) = (shape[1], shape[2]);
    // The value of each source, and its score per head.
    let attend = |&source: &u32| {
        let from = &x[source as usize];
        if gatv2 {
            let left = affine(from, of_type("lin_l.weight"), Some(of_type("lin_l.bias")));
            let right = affine(own, of_type("lin_r.weight"), Some(of_type("lin_r.bias")));
            let term = |c: usize| f64::from(of_type("att").values[c]) * leaky(left[c] + right[c]);
            let scores: Vec<f64> = (0..heads).map(|h| (h * width..(h + 1) * width).map(term).sum()).collect();
            return (left, scores);
        }
        let [from, own] = [from, own].map(|row| affine(row, of_type("lin.weight"), None));
        let dot = |row: &[f64], att: &str, h: usize| -> f64 {
            (h * width..(h + 1) * width).map(|c| row[c] * f64::from(of_type(att).values[c])).sum()
        };
        let scores = (0..heads).map(|h| leaky(dot(&from, "att_src", h) + dot(&own, "att_dst", h))).collect();
        (from, scores)
    };
    let attended: Vec<(Vec<f64>, Vec<f64>)> = sources.iter().map(attend).collect();
    let mut out = vec![0.0; heads * width];
    for h in 0..heads {
        let total: f64 = attended.iter().map(|(_, scores)| scores[h].exp()).sum();
        for (values, scores) in &attended {
            (h * width..(h + 1) * width).for_each(|c| out[c] += scores[h].exp() / total * values[c]);
        }
    }
    let mean = |c: usize| (0..heads).map(|h| out[h * width + c]).sum::<f64>() / heads as f64;
    if last { (0..width).map(mean).collect() } else { out }
}

/// The output of a layer of the heterogeneous graph transformer.
fn transformed<'a>(dataset: &Dataset, x: &RowVectors, get: &dyn Fn(&str) -> &'a NamedTensor) -> RowVectors {
    let (types, topology) = (types(dataset), &dataset.topology);
    let count = types.edge_types().len();
    let name = |node: u32| types.node_types()[types.node_type(node)].name.replace(' ', "_");
    let (heads, width) = {
        let maps = &get("k_rel.weight").shape;
        (maps[0] / count, maps[1])
    };
    let kqv = |node: u32| {
        let [weight, bias] = ["weight", "bias"].map(|of| get(&format!("kqv_lin.lins.{}.{of}", name(node))));
        affine(&x[node as usize], weight, Some(bias))
    };
    let part = |all: &[f64], part: usize, h: usize| all[(part * heads + h) * width..][..width].to_vec();
    let mapped = |map: &str, row: &[f64], h: usize, edge_type: usize| -> Vec<f64> {
        let weight = &get(map).values[(h * count + edge_type) * width * width..];
        (0..width).map(|c| (0..width).map(|r| row[r] * f64::from(weight[r * width + c])).sum()).collect()
    };
    let row = |node: u32| {
        let of_node = types.node_type(node);
        if (0..count).all(|edge_type| types.ends(edge_type)[1] != of_node) {
            return vec![0.0; heads * width];
        }
        let query = kqv(node);
        let mut out = vec![0.0; heads * width];
        for h in 0..heads {
            let query = part(&query, 1, h);
            let mut scored = Vec::new();
            for (edge_type, edges) in topology.sub_rows(node) {
                let key = {
                    let of_type = &types.edge_types()[edge_type];
                    [&of_type.source, &of_type.name, &of_type.target].map(|name| name.replace(' ', "_")).join("__")
                };
                let prior = f64::from(get(&format!("p_rel.{key}")).values[h]);
                for &source in &topology.indices()[edges] {
                    let all = kqv(source);
                    let k = mapped("k_rel.weight", &part(&all, 0, h), h, edge_type);
                    let score = query.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * prior / (width as f64).sqrt();
                    scored.push((score.exp(), mapped("v_rel.weight", &part(&all, 2, h), h, edge_type)));
                }
            }
            let total: f64 = scored.iter().map(|(score, _)| score).sum();
            for (score, values) in scored {
                (0..width).for_each(|c| out[h * width + c] += score / total * values[c]);
            }
        }
        let activated: Vec<f64> = out.into_iter().map(|x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))).collect();
        let [weight, bias] = ["weight", "bias"].map(|of| get(&format!("out_lin.lins.{}.{of}", name(node))));
        let out = affine(&activated, weight, Some(bias));
        let own = &x[node as usize];
        if own.len() != out.len() {
            return out;
        }
        let share = 1.0 / (1.0 + (-f64::from(get(&format!("skip.{}", name(node))).values[0])).exp());
        out.iter().zip(own).map(|(out, own)| share * out + (1.0 - share) * own).collect()
    };
    (0..topology.num_nodes() as u32).map(row).collect()
}

/// The error function, by its power series.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
