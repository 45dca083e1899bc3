//! Where data lies.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A place of data, printed `host`, `disk` or `backend:index`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Place {
    /// The host's memory.
    Host,
    /// The files of a dataset that does not fit in memory. Mini-batches never lie there.
    Disk,
    /// A device's memory.
    Device {
        /// The backend, for example `cuda`.
        backend: Cow<'static, str>,
        /// Which of the backend's devices.
        index: u32,
    },
}

/// The kind of place an operator reads from or writes to; the machine lists the devices of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    /// The host's memory.
    Host,
    /// The dataset's files.
    Disk,
    /// A device of this backend.
    Device(&'static str),
}

impl At {
    /// Whether `place` is of this kind.
    pub fn matches(self, place: &Place) -> bool {
        match (self, place) {
            (At::Host, Place::Host) | (At::Disk, Place::Disk) => true,
            (At::Device(a), Place::Device { backend, .. }) => a == backend,
            _ => false,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            At::Host => "host",
            At::Disk => "disk",
            At::Device(backend) => backend,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.pad("host"),
            Place::Disk => f.pad("disk"),
            Place::Device { backend, index } => f.pad(&format!("{backend}:{index}")),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let device = || {
            let (backend, index) = s.split_once(':')?;
            let is_name = !backend.is_empty() && backend.bytes().all(|b| b.is_ascii_alphanumeric());
            Some(Place::Device { backend: backend.to_string().into(), index: index.parse().ok().filter(|_| is_name)? })
        };
        match s {
            "host" => Ok(Place::Host),
            "disk" => Ok(Place::Disk),
            _ => device().ok_or_else(|| {
                Error::parse(s, "not a place; places read host, disk or backend:index, for example cuda:0")
            }),
        }
    }
}

crate::error::serialized_as_text!(Place);
