//! Where a layer's parameters stand.

use std::ops::Range;

use morphgl_model_spec::{ModelKind, ParameterSpec};

/// Where a layer's parameters stand among all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    /// The weight of the neighbours, `[width, in]`.
    pub(crate) neighbours: Option<Range<usize>>,
    /// The weight of the node itself.
    pub(crate) own: Option<Range<usize>>,
    pub(crate) bias: Range<usize>,
    /// The attention vectors of sources and destinations.
    pub(crate) attention: Option<[Range<usize>; 2]>,
}

impl Places {
    pub(crate) fn find(kind: ModelKind, layer: usize, specs: &[ParameterSpec]) -> Self {
        let mut places = Self::default();
        let mut start = 0;
        for p in specs {
            let range = start..start + p.len();
            start = range.end;
            if p.layer != layer {
                continue;
            }
            let name = p.name.splitn(3, '.').nth(2).unwrap_or_default();
            match (kind, name) {
                (_, "bias" | "lin_l.bias") => places.bias = range,
                (ModelKind::Mlp, "weight") | (_, "lin_r.weight") => places.own = Some(range),
                (_, "lin.weight" | "lin_l.weight") => places.neighbours = Some(range),
                (_, "att_src") => places.attention.get_or_insert_default()[0] = range,
                (_, "att_dst") => places.attention.get_or_insert_default()[1] = range,
                _ => unreachable!("{} is none of a model that is supported", p.name),
            }
        }
        places
    }
}
