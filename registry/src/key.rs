//! The name of an operator: `{Phase}_{Hardware}_{Operator}` (morphgl Table III).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A phase of mini-batch training (MorphGL paper, §II).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Sample the seeds' neighbourhood, and gather features where the operator does so.
    #[serde(alias = "batching")]
    Batching,
    /// Move a mini-batch to where it is trained, and fill in missing features.
    #[serde(alias = "transferring")]
    Transferring,
    /// Forward, backward, update.
    #[serde(alias = "training")]
    Training,
}

impl Phase {
    /// All phases, in the order a mini-batch passes them.
    pub const ALL: [Phase; 3] = [Phase::Batching, Phase::Transferring, Phase::Training];

    /// Its name in lower case, for sentences.
    pub const fn noun(self) -> &'static str {
        match self {
            Phase::Batching => "batching",
            Phase::Transferring => "transferring",
            Phase::Training => "training",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Batching => "Batching",
            Phase::Transferring => "Transferring",
            Phase::Training => "Training",
        })
    }
}

/// A unit of hardware that phases compete for. An open set: an operator crate may name a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Resource(
    // Invariant: ASCII letters, digits and '-', at least one.
    &'static str,
);

impl Resource {
    /// The processor's cores.
    pub const CPU: Resource = Resource::new("CPU");
    /// The link between host and devices.
    pub const PCIE: Resource = Resource::new("PCIe");
    /// The links by which devices of a backend reach each other's memory.
    pub const PEER: Resource = Resource::new("Peer");

    /// Names a resource.
    ///
    /// # Panics
    ///
    /// When the name is empty or holds anything but ASCII letters, digits and `-`; in a constant, at compile time.
    pub const fn new(name: &'static str) -> Self {
        assert!(is_word(name.as_bytes()), "a resource's name is ASCII letters, digits and '-'");
        Self(name)
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.0
    }
}

const fn is_word(bytes: &[u8]) -> bool {
    let mut i = 0;
    while i < bytes.len() {
        if !(bytes[i].is_ascii_alphanumeric() || bytes[i] == b'-') {
            return false;
        }
        i += 1;
    }
    i > 0
}

const fn less(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

/// The only static copy of a name: a program has a handful of resources, and keys stay constants.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl FromStr for Resource {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        if !is_word(s.as_bytes()) {
            return Err(Error::parse(s, "a resource's name is ASCII letters, digits and '-', for example CPU"));
        }
        Ok(Self(intern(s)))
    }
}

/// The resources an operator holds while it runs: a sorted set, printed joined with `+`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hardware(
    // Invariant: not empty, strictly ascending.
    Cow<'static, [Resource]>,
);

impl Hardware {
    /// CPU alone.
    pub const CPU: Hardware = Hardware::new(&[Resource::CPU]);

    /// A set of resources.
    ///
    /// # Panics
    ///
    /// When it is empty or not strictly ascending by name; in a constant, at compile time.
    pub const fn new(resources: &'static [Resource]) -> Self {
        assert!(!resources.is_empty(), "an operator runs on at least one resource");
        let mut i = 1;
        while i < resources.len() {
            let ascending = less(resources[i - 1].0.as_bytes(), resources[i].0.as_bytes());
            assert!(ascending, "resources are listed once each, in ascending order");
            i += 1;
        }
        Self(Cow::Borrowed(resources))
    }

    /// The resources, ascending.
    pub fn resources(&self) -> &[Resource] {
        &self.0
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(Resource::name).collect();
        f.pad(&names.join("+"))
    }
}

impl FromStr for Hardware {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let mut resources = s.split('+').map(Resource::from_str).collect::<Result<Vec<_>>>()?;
        resources.sort();
        resources.dedup();
        Ok(Self(Cow::Owned(resources)))
    }
}

/// The typed name of an operator.
///
/// ```
/// use morphgl_registry::{Key, Phase};
///
/// let key: Key = "Batching_CPU+PCIe_Neighbor".parse()?;
/// assert_eq!(key.phase, Phase::Batching);
/// assert_eq!(key.to_string(), "Batching_CPU+PCIe_Neighbor");
/// # Ok::<(), morphgl_registry::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key {
    /// What it does.
    pub phase: Phase,
    /// What it runs on.
    pub hardware: Hardware,
    // Invariant: ASCII letters, digits and '-', at least one.
    operator: Cow<'static, str>,
}

impl Key {
    /// A key.
    ///
    /// # Panics
    ///
    /// When the operator's name is empty or holds anything but ASCII letters, digits and `-`; in a constant, at compile time.
    pub const fn new(phase: Phase, hardware: Hardware, operator: &'static str) -> Self {
        assert!(is_word(operator.as_bytes()), "an operator's name is ASCII letters, digits and '-'");
        Self { phase, hardware, operator: Cow::Borrowed(operator) }
    }

    /// The operator's own name, the last part of the key.
    pub fn operator(&self) -> &str {
        &self.operator
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}_{}_{}", self.phase, self.hardware, self.operator))
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let wrong = |what: &str| {
            let example = "a key reads {Phase}_{Hardware}_{Operator}, for example Batching_CPU_Neighbor";
            Error::parse(s, format!("{what}; {example}"))
        };
        let mut parts = s.splitn(3, '_');
        let (Some(phase), Some(hardware), Some(operator)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong("not an operator's key"));
        };
        let phase = Phase::ALL.into_iter().find(|p| p.to_string() == phase);
        let phase = phase.ok_or_else(|| wrong("the phase is none of Batching, Transferring and Training"))?;
        let hardware = hardware.parse().map_err(|_| wrong("the hardware is not a set of resources joined with '+'"))?;
        if !is_word(operator.as_bytes()) {
            return Err(wrong("the operator's name is not ASCII letters, digits and '-'"));
        }
        Ok(Self { phase, hardware, operator: Cow::Owned(operator.to_string()) })
    }
}

crate::error::serialized_as_text!(Resource, Hardware, Key);
