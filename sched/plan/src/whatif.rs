//! What-if: the same problem on a hypothetical machine.

use std::fmt;
use std::str::FromStr;

use crate::{Candidate, Invalid, Problem};

/// Speed factors of resources: `CPU*2,PCIe*0.5`.
///
/// A phase that holds one resource is scaled by its factor. A phase that holds several is assumed to spend an equal part of its
/// time on each. A name without a number is that of every device: `CUDA` of `CUDA:0` and `CUDA:1`; the first factor for a
/// resource is the one that counts.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf(
    // Invariant: not empty, factors finite and above 0, no name twice.
    Vec<(String, f64)>,
);

impl WhatIf {
    /// The problem with durations scaled to these speeds.
    ///
    /// # Errors
    ///
    /// A resource that is not the problem's.
    pub fn apply(&self, problem: &Problem) -> Result<Problem, Invalid> {
        if let Some((name, _)) = self.0.iter().find(|(n, _)| !problem.resources.iter().any(|r| names(n, &r.name))) {
            let known: Vec<&str> = problem.resources.iter().map(|r| r.name.as_str()).collect();
            return Err(Invalid(format!("{name}: not a resource of these routes; they hold {}", known.join(", "))));
        }
        let factor = |held: &[String]| {
            let slowdown = |held: &String| self.0.iter().find(|(n, _)| names(n, held)).map_or(1.0, |(_, f)| 1.0 / f);
            held.iter().map(slowdown).sum::<f64>() / held.len() as f64
        };
        let route = |c: &Candidate| {
            let h = &c.hardware;
            let durations = c.durations.scaled(factor(&h.batching), factor(&h.transferring), factor(&h.training));
            Candidate { durations, ..c.clone() }
        };
        Ok(Problem { routes: problem.routes.iter().map(route).collect(), ..problem.clone() })
    }
}

/// Whether `name` is that of the resource, with its number or without.
fn names(name: &str, resource: &str) -> bool {
    resource.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, factor)| format!("{name}*{factor}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl FromStr for WhatIf {
    type Err = Invalid;

    fn from_str(s: &str) -> Result<Self, Invalid> {
        let invalid = |text: &str, reason: &str| {
            Invalid(format!("{text:?}: {reason}; give resource*factor, for example CPU*2,PCIe*0.5"))
        };
        let mut parts: Vec<(String, f64)> = Vec::new();
        for part in s.split(',') {
            let (name, factor) = part.trim().split_once('*').ok_or_else(|| invalid(part, "not a change"))?;
            let factor: f64 = factor.trim().parse().map_err(|_| invalid(factor, "not a factor"))?;
            let name = name.trim();
            if !(factor.is_finite() && factor > 0.0) || name.is_empty() {
                return Err(invalid(part, "a factor is a number above 0"));
            }
            if parts.iter().any(|(n, _)| n == name) {
                return Err(Invalid(format!("{name}: changed twice; give each resource once")));
            }
            parts.push((name.to_string(), factor));
        }
        Ok(Self(parts))
    }
}
