//! Ranges of a layer's parameters in the flat buffer of all parameters.

use std::ops::Range;

use morphgl_model_core::{ModelKind, ModelSpec, ParameterSpec};

/// Ranges of a layer's parameters in the flat buffer of all parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParameterRanges {
    /// The neighbours' weight, `[width, in]`.
    pub(crate) neighbours: Option<Range<usize>>,
    /// The weight of the node itself (PyG's root weight), `[width, in]`.
    pub(crate) root: Option<Range<usize>>,
    pub(crate) bias: Range<usize>,
    /// The attention vectors of sources and destinations.
    pub(crate) attention: Option<[Range<usize>; 2]>,
}

impl ParameterRanges {
    /// Finds the parameters of a layer; none of a typed model's, which are per edge type.
    pub(crate) fn find(spec: &ModelSpec, layer: usize, specs: &[ParameterSpec]) -> Self {
        let (kind, mut ranges) = (spec.kind, Self::default());
        if kind.is_typed() {
            return ranges;
        }
        let mut start = 0;
        for p in specs {
            let range = start..start + p.len();
            start = range.end;
            // Those before the layers make its input.
            if p.layer != layer || !(p.name.starts_with("convs.") || p.name.starts_with("lins.")) {
                continue;
            }
            let name = p.name.splitn(3, '.').nth(2).unwrap_or_default();
            match (kind, name) {
                (_, "bias" | "lin_l.bias") => ranges.bias = range,
                (ModelKind::Mlp, "weight") | (_, "lin_r.weight") => ranges.root = Some(range),
                (_, "lin.weight" | "lin_l.weight") => ranges.neighbours = Some(range),
                (_, "att_src") => ranges.attention.get_or_insert_default()[0] = range,
                (_, "att_dst") => ranges.attention.get_or_insert_default()[1] = range,
                _ => unreachable!("{} is not a parameter of a supported model", p.name),
            }
        }
        ranges
    }

    /// The ranges of the neighbours' weight and of the root weight.
    pub(crate) fn weights(&self) -> [Option<&Range<usize>>; 2] {
        [self.neighbours.as_ref(), self.root.as_ref()]
    }

    /// The attention vectors of sources and destinations.
    pub(crate) fn attention_vectors<'a>(&self, parameters: &'a [f32]) -> [&'a [f32]; 2] {
        let ranges = self.attention.as_ref().expect("a layer that attends has attention vectors");
        ranges.each_ref().map(|range| &parameters[range.clone()])
    }
}
