//! What the passes of a training step did, beside the peaks of the processor that it ran on.

/// The passes of one training step and the peaks that bound them: the roofline model (Williams, Waterman and Patterson, CACM 2009).
#[derive(Debug, Clone, PartialEq)]
pub struct Roofline {
    /// FLOP per second of the instructions that the step's widest GEMMs use, from registers and first-level caches alone.
    pub flops_per_s: f64,
    /// Bytes per second of sequential reads from memory.
    pub bytes_per_s: f64,
    /// In the order in which they ran.
    pub passes: Vec<Pass>,
}

/// One pass of a training step.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// What it is, and of which layer, counted from 0: `forward 0`.
    pub name: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// Floating point operations of its GEMMs. Zeros count like other elements.
    pub flops: f64,
    /// Bytes of messages over edges, and of every matrix once for each GEMM that reads or writes it, wherever the caches have them;
    /// of the optimizer those of parameters, gradients and moments. 0 where they are not counted.
    pub bytes: f64,
}

/// What bounds a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The peak FLOP rate.
    Compute,
    /// The bandwidth of the memory.
    Memory,
}

impl Roofline {
    /// The least seconds in which the processor could do a pass, and what bounds it; `None` of a pass whose work is not counted.
    pub fn bound(&self, pass: &Pass) -> Option<(f64, Bound)> {
        let [compute, memory] = [pass.flops / self.flops_per_s, pass.bytes / self.bytes_per_s];
        let bound = if compute >= memory { (compute, Bound::Compute) } else { (memory, Bound::Memory) };
        (bound.0 > 0.0).then_some(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_bound_by_what_takes_longer() {
        let pass = |flops, bytes| Pass { name: "forward 0".into(), seconds: 1.0, flops, bytes };
        let roofline = Roofline { flops_per_s: 100.0, bytes_per_s: 10.0, passes: Vec::new() };
        assert_eq!(roofline.bound(&pass(50.0, 1.0)), Some((0.5, Bound::Compute)));
        assert_eq!(roofline.bound(&pass(50.0, 8.0)), Some((0.8, Bound::Memory)));
        assert_eq!(roofline.bound(&pass(0.0, 0.0)), None);
    }
}
