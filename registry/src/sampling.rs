//! Kinds of sampling: those of this crate, and those that operators declare.

use serde_json::{Map, Value};

use crate::{OptionSpec, Result, check_options};

/// A kind of sampling, in the description of each operator that samples by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingSpec {
    /// Its name, as `--sampler` has it: lower-case ASCII letters, digits and `-`.
    pub name: &'static str,
    /// One line of help, without a full stop.
    pub help: &'static str,
    /// Whether its settings have hops by fanouts; those of another crate's kind have one fanout per layer.
    pub by_fanouts: bool,
    /// Settings besides, where the kind is of another crate. The default of each is a value.
    pub settings: &'static [OptionSpec],
}

impl SamplingSpec {
    /// Neighbour sampling by fanouts.
    pub const NEIGHBOR: Self = Self::new("neighbor", "neighbours, by fanouts").by_fanouts();
    /// ShaDow sampling.
    pub const SHADOW: Self = Self::new("shadow", "all edges among the nodes that hops by fanouts find").by_fanouts();
    /// Random walks.
    pub const WALK: Self = Self::new("walk", "the nodes that random walks visit most often, weighted by their visits");
    /// The kinds of this crate, whose settings have types of their own.
    pub const BUILT_IN: [Self; 3] = [Self::NEIGHBOR, Self::SHADOW, Self::WALK];

    /// A kind without fanouts and settings.
    ///
    /// # Panics
    ///
    /// When the name is empty or has other characters; in a constant, at compile time.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        let (mut i, bytes) = (0, name.as_bytes());
        assert!(!bytes.is_empty(), "a kind of sampling has a name");
        while i < bytes.len() {
            let valid = matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'-');
            assert!(valid, "the name of a kind of sampling: lower-case ASCII letters, digits and -");
            i += 1;
        }
        Self { name, help, by_fanouts: false, settings: &[] }
    }

    /// The same kind with hops by fanouts.
    pub const fn by_fanouts(mut self) -> Self {
        self.by_fanouts = true;
        self
    }

    /// The same kind with these settings.
    pub const fn with_settings(mut self, settings: &'static [OptionSpec]) -> Self {
        self.settings = settings;
        self
    }

    /// The defaults of its settings.
    pub fn defaults(&self) -> Map<String, Value> {
        let values = self.settings.iter().map(|setting| (setting.name.to_string(), setting.default_value()));
        values.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Checks names and types of settings given by name; their ranges are for the operator to check.
    ///
    /// # Errors
    ///
    /// A setting that it does not have, or a value of another type.
    pub fn check_values(&self, given: &Value) -> Result<()> {
        check_options(&format_args!("sampler {}", self.name), self.settings, given)
    }
}
