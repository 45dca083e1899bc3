//! Names of policies, for command lines and tables.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use morphgl_registry::{Batching, Error, ErrorKind, Expansion, Result, SamplerSettings};

use crate::inclusion::expansion;
use crate::{
    InDegree, Inclusion, OutDegree, Policy, PreSample, Random, ReversePageRank, Smoothed, WeightedReversePageRank,
};

/// A policy by its name: `in-degree`, `out-degree`, `presample` or `presample:K` (K epochs, 1 unless given), `smoothed` or
/// `smoothed:K` (2 unless given), `reverse-pagerank`, `weighted-reverse-pagerank`, `inclusion`, `random`, `hindsight`.
/// `Display` and `FromStr` are inverses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// [`InDegree`].
    InDegree,
    /// [`OutDegree`].
    OutDegree,
    /// [`PreSample`](crate::PreSample) of whole epochs.
    PreSample {
        /// Number of epochs, K.
        epochs: NonZeroU32,
    },
    /// [`Smoothed`](crate::Smoothed) pre-sampling of whole epochs.
    Smoothed {
        /// Number of epochs, K.
        epochs: NonZeroU32,
    },
    /// [`ReversePageRank`].
    ReversePageRank,
    /// [`WeightedReversePageRank`].
    WeightedReversePageRank,
    /// [`Inclusion`].
    Inclusion,
    /// [`Random`].
    Random,
    /// [`Hindsight`](crate::Hindsight).
    Hindsight,
}

impl PolicyKind {
    /// Every policy, each with its default number of epochs.
    pub const ALL: [Self; 9] = [
        Self::InDegree,
        Self::OutDegree,
        Self::PreSample { epochs: NonZeroU32::MIN },
        Self::Smoothed { epochs: NonZeroU32::MIN.saturating_add(1) },
        Self::ReversePageRank,
        Self::WeightedReversePageRank,
        Self::Inclusion,
        Self::Random,
        Self::Hindsight,
    ];

    /// The name without its parameter.
    pub fn name(self) -> &'static str {
        match self {
            Self::InDegree => "in-degree",
            Self::OutDegree => "out-degree",
            Self::PreSample { .. } => "presample",
            Self::Smoothed { .. } => "smoothed",
            Self::ReversePageRank => "reverse-pagerank",
            Self::WeightedReversePageRank => "weighted-reverse-pagerank",
            Self::Inclusion => "inclusion",
            Self::Random => "random",
            Self::Hindsight => "hindsight",
        }
    }

    /// The policy with its default settings; `None` for those that count mini-batches, which need a sampler:
    /// [`PreSample`](crate::PreSample), [`Smoothed`](crate::Smoothed) and [`Hindsight`](crate::Hindsight). `seed` is that of
    /// [`Random`].
    pub fn policy(self, seed: u64) -> Option<Box<dyn Policy>> {
        Some(match self {
            Self::InDegree => Box::new(InDegree),
            Self::OutDegree => Box::new(OutDegree),
            Self::ReversePageRank => Box::new(ReversePageRank::default()),
            Self::WeightedReversePageRank => Box::new(WeightedReversePageRank::default()),
            Self::Inclusion => Box::new(Inclusion),
            Self::Random => Box::new(Random { seed }),
            Self::PreSample { .. } | Self::Smoothed { .. } | Self::Hindsight => return None,
        })
    }

    /// The policy, those that count on `threads` threads the mini-batches of a sampler, which should gather no features;
    /// `None` for [`Hindsight`](crate::Hindsight) alone, which needs the epochs that are trained.
    pub fn policy_of<'a>(self, seed: u64, batching: &'a dyn Batching, threads: usize) -> Option<Box<dyn Policy + 'a>> {
        let counting = |epochs: NonZeroU32| PreSample { batching, epochs: epochs.get(), batches: None, threads };
        match self {
            Self::PreSample { epochs } => Some(Box::new(counting(epochs))),
            Self::Smoothed { epochs } => Some(Box::new(Smoothed(counting(epochs)))),
            other => other.policy(seed).map(|policy| policy as Box<dyn Policy + 'a>),
        }
    }

    /// Peak bytes per node to compute the scores, which are among them; of the policies that count, without the
    /// sampler.
    pub fn bytes_per_node(self, settings: &SamplerSettings) -> u64 {
        let inclusion = match expansion(&settings.sampling) {
            Some(Expansion::All) => 12,
            Some(Expansion::New) => 16,
            // In its place stands weighted reverse PageRank.
            None => 16,
        };
        match self {
            Self::InDegree | Self::Random => 4,
            Self::OutDegree | Self::PreSample { .. } | Self::Hindsight => 12,
            Self::ReversePageRank | Self::WeightedReversePageRank => 16,
            Self::Inclusion => inclusion,
            // The counts stay meanwhile.
            Self::Smoothed { .. } => 8 + inclusion,
        }
    }

    /// Whether it propagates inclusion probabilities, which of sampling by edge type scans the graph by type ([`Graph::scan_by_type`](crate::Graph::scan_by_type)).
    pub fn scans_by_type(self, settings: &SamplerSettings) -> bool {
        let propagates = matches!(self, Self::Inclusion | Self::Smoothed { .. });
        propagates && settings.sampling.hops().is_none() && expansion(&settings.sampling).is_some()
    }

    /// Whether the scores are accesses per epoch; those of the other policies order nodes alone.
    pub fn is_in_accesses(self) -> bool {
        matches!(self, Self::PreSample { .. } | Self::Smoothed { .. } | Self::Inclusion | Self::Hindsight)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PreSample { epochs } | Self::Smoothed { epochs } => write!(f, "{}:{epochs}", self.name()),
            other => f.write_str(other.name()),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: String| Error::new(format!("{text:?}"), ErrorKind::Parse(what));
        let (name, parameter) = match text.split_once(':') {
            Some((name, parameter)) => (name, Some(parameter)),
            None => (text, None),
        };
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            wrong(format!("no hotness policy; give one of {names}, or presample:K or smoothed:K for K epochs"))
        })?;
        match (kind, parameter) {
            (kind, None) => Ok(kind),
            (Self::PreSample { .. } | Self::Smoothed { .. }, Some(epochs)) => {
                let epochs = epochs.parse().map_err(|_| {
                    wrong(format!("{epochs:?} is no number of epochs; give {name}:K with K of at least 1"))
                })?;
                Ok(if name == "presample" { Self::PreSample { epochs } } else { Self::Smoothed { epochs } })
            }
            (kind, Some(_)) => Err(wrong(format!("the policy has no parameter; give {}", kind.name()))),
        }
    }
}
