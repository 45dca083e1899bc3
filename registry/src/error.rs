//! Errors of operators and lookups.

use std::any::Any;
use std::fmt;

/// Result of every fallible function of the registry and of the operators.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure and its context.
#[derive(Debug)]
pub struct Error {
    /// What failed: an operator's key, a setting, a file.
    pub context: String,
    /// What went wrong.
    pub kind: ErrorKind,
}

/// The kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Text that is no key, place or setting.
    Parse(String),
    /// No operator has this key.
    Unknown(String),
    /// Two linked crates registered the same key.
    Duplicate,
    /// The operator exists, but not on this machine.
    Unavailable(String),
    /// A setting the operator cannot work with, and the cure.
    Setting(String),
    /// A setting of the sampler that a dataset or an operator cannot be sampled with, and the cure.
    Sampling(SamplingSetting, String),
    /// A mini-batch lies in another place than the operator reads from.
    Misplaced(String),
    /// The operator failed while it ran.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// The settings of samplers that an error may be about, so that a program can name its own option for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingSetting {
    /// Neighbours per hop.
    Fanouts,
    /// Neighbours picked by edge weight.
    WeightedPick,
    /// Random walks from each node, and their length.
    Walks,
}

impl fmt::Display for SamplingSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fanouts => "fanouts",
            Self::WeightedPick => "weighted pick",
            Self::Walks => "walks",
        })
    }
}

impl Error {
    /// An error of the given kind.
    pub fn new(context: impl fmt::Display, kind: ErrorKind) -> Self {
        Self { context: context.to_string(), kind }
    }

    /// Text that cannot be read, with the cure.
    pub(crate) fn parse(text: &str, what: impl Into<String>) -> Self {
        Self::new(format!("{text:?}"), ErrorKind::Parse(what.into()))
    }

    /// A setting that cannot work, with its cure.
    pub fn setting(context: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(context, ErrorKind::Setting(what.into()))
    }

    /// A setting of the sampler that cannot work, with its cure.
    pub fn sampling(setting: SamplingSetting, what: impl Into<String>) -> Self {
        Self::new(setting, ErrorKind::Sampling(setting, what.into()))
    }

    /// A failure while an operator ran.
    pub fn failed(context: impl fmt::Display, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(context, ErrorKind::Failed(source.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.context;
        match &self.kind {
            ErrorKind::Parse(what)
            | ErrorKind::Setting(what)
            | ErrorKind::Sampling(_, what)
            | ErrorKind::Misplaced(what) => write!(f, "{context}: {what}"),
            ErrorKind::Unknown(exists) => write!(f, "{context}: no operator has this key; {exists}"),
            ErrorKind::Duplicate => write!(f, "{context}: two linked crates register this key; unlink one of them"),
            ErrorKind::Unavailable(reason) => write!(f, "{context}: not available on this machine: {reason}"),
            ErrorKind::Failed(source) => write!(f, "{context}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Failed(source) => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// The message of a caught panic.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_string())
}

/// Implements the conversions of types that serde reads and writes as text, from `Display` and `FromStr`.
macro_rules! serialized_as_text {
    ($($Type:ty),*) => { $(
        impl From<$Type> for String {
            fn from(value: $Type) -> String {
                value.to_string()
            }
        }

        impl TryFrom<String> for $Type {
            type Error = $crate::Error;

            fn try_from(text: String) -> $crate::Result<Self> {
                text.parse()
            }
        }
    )* };
}
pub(crate) use serialized_as_text;
