//! Ranges of a layer's parameters in the flat parameter buffer.

use std::ops::Range;

use morphgl_model_spec::{ModelKind, ParameterSpec};

/// Ranges of a layer's parameters in the flat buffer of all parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParameterRanges {
    /// The neighbours' weight, `[width, in]`.
    pub(crate) neighbours: Option<Range<usize>>,
    /// The node's own weight, `[width, in]`.
    pub(crate) own: Option<Range<usize>>,
    pub(crate) bias: Range<usize>,
    /// The attention vectors of sources and destinations.
    pub(crate) attention: Option<[Range<usize>; 2]>,
}

impl ParameterRanges {
    pub(crate) fn find(kind: ModelKind, layer: usize, specs: &[ParameterSpec]) -> Self {
        let mut ranges = Self::default();
        let mut start = 0;
        for p in specs {
            let range = start..start + p.len();
            start = range.end;
            if p.layer != layer {
                continue;
            }
            let name = p.name.splitn(3, '.').nth(2).unwrap_or_default();
            match (kind, name) {
                (_, "bias" | "lin_l.bias") => ranges.bias = range,
                (ModelKind::Mlp, "weight") | (_, "lin_r.weight") => ranges.own = Some(range),
                (_, "lin.weight" | "lin_l.weight") => ranges.neighbours = Some(range),
                (_, "att_src") => ranges.attention.get_or_insert_default()[0] = range,
                (_, "att_dst") => ranges.attention.get_or_insert_default()[1] = range,
                _ => unreachable!("{} is none of a model that is supported", p.name),
            }
        }
        ranges
    }
}
