//! What a cache holds, for options of operators and command lines.

use std::fmt;
use std::str::FromStr;

use morphgl_registry::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::PolicyKind;

/// What a cache holds: `auto`, `none`, `lru`, `sieve`, or the rows that a [`PolicyKind`] ranks first, by its name; not `hindsight`,
/// which knows its scores only after the epochs. `Display` and `FromStr` are inverses; serde reads and writes the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CachePolicy {
    /// What the operator does by itself.
    #[default]
    Auto,
    /// Nothing is cached.
    None,
    /// The rows that this policy ranks first, chosen before the first epoch.
    By(PolicyKind),
    /// The most recently used rows: the least recently used one is evicted.
    Lru,
    /// Rows evicted by SIEVE: the oldest one that was not hit since the hand last passed it.
    Sieve,
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::By(kind) => kind.fmt(f),
            Self::Lru => f.write_str("lru"),
            Self::Sieve => f.write_str("sieve"),
        }
    }
}

impl FromStr for CachePolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: String| Err(Error::new(format!("{text:?}"), ErrorKind::Parse(what)));
        let policies =
            || PolicyKind::ALL.into_iter().filter(|kind| *kind != PolicyKind::Hindsight).map(PolicyKind::name);
        let name = text.split_once(':').map_or(text, |(name, _)| name);
        match name {
            "auto" | "none" | "lru" | "sieve" if name != text => wrong(format!("it has no parameter; give {name}")),
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "lru" => Ok(Self::Lru),
            "sieve" => Ok(Self::Sieve),
            "hindsight" => wrong(
                "it counts the epochs that are trained, so no cache can be filled by it; give another policy".into(),
            ),
            _ if policies().any(|policy| policy == name) => text.parse().map(Self::By),
            _ => {
                let names = policies().collect::<Vec<_>>().join(", ");
                wrong(format!(
                    "no cache policy; give auto, none, lru, sieve, {names}, or presample:K or smoothed:K for K epochs"
                ))
            }
        }
    }
}

impl From<CachePolicy> for String {
    fn from(policy: CachePolicy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for CachePolicy {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}
