//! The description of a machine that need not exist.

use std::fmt::Display;
use std::path::Path;

use morphgl_platform::{excerpt, read_text};
use morphgl_registry::{Accelerator, Error, ErrorKind, Machine, Place, Result};
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum bytes of a description's file.
const MAX_FILE: u64 = 1 << 20;
/// Maximum number of devices: a problem of the planner has at most 32 resources.
const MAX_DEVICES: usize = 15;
/// Maximum number of cores.
const MAX_CORES: usize = 512;

/// A machine by its figures, as a TOML file has them. Units stand in the names of its keys; 1 GB is 10^9 bytes.
///
/// What is computed from it is in `roofline`, and in `docs/machines.md`; nothing is measured or fitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineDescription {
    /// Its name.
    pub name: String,
    /// What it is, in one line.
    #[serde(default)]
    pub summary: String,
    /// Fraction of their peaks that GEMMs reach, on the host and on devices. Default 0.5, an assumption.
    #[serde(default = "half", deserialize_with = "part")]
    pub efficiency: f64,
    /// Bandwidth between any two devices without the host, in one direction, in GB/s; `None` where all goes over the links.
    #[serde(default, deserialize_with = "some_positive", skip_serializing_if = "Option::is_none")]
    pub peer_gb_per_s: Option<f64>,
    /// The host.
    pub host: HostDescription,
    /// Links between the host and devices: a slot's, or those of a switch.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkDescription>,
    /// The devices, by number.
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceDescription>,
}

/// The host's cores and memory in a machine description (table `[host]`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostDescription {
    /// Cores.
    #[serde(deserialize_with = "cores")]
    pub cores: usize,
    /// Memory in GB.
    #[serde(deserialize_with = "positive")]
    pub memory_gb: f64,
    /// Bandwidth of its memory in GB/s, which the cores divide evenly.
    #[serde(deserialize_with = "positive")]
    pub bandwidth_gb_per_s: f64,
    /// Edges that one core samples per microsecond.
    #[serde(deserialize_with = "positive")]
    pub sampling_m_edges_per_s: f64,
    /// Peak of one core in GFLOP/s (f32).
    #[serde(deserialize_with = "positive")]
    pub gflop_per_s: f64,
}

/// A link between the host and devices. Devices that name the same one share it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDescription {
    /// Its name.
    pub name: String,
    /// Bandwidth in one direction in GB/s.
    #[serde(deserialize_with = "positive")]
    pub gb_per_s: f64,
    /// Microseconds before the first byte of a transfer arrives. Default 0.
    #[serde(default, deserialize_with = "amount")]
    pub latency_us: f64,
}

/// A device, or several of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceDescription {
    /// Its product name.
    pub name: String,
    /// Devices of this kind on this link. Default 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: usize,
    /// Its link to the host.
    pub link: String,
    /// Memory in GB.
    #[serde(deserialize_with = "positive")]
    pub memory_gb: f64,
    /// Bandwidth of its memory in GB/s.
    #[serde(deserialize_with = "positive")]
    pub bandwidth_gb_per_s: f64,
    /// Peak in TFLOP/s, in the type that it trains in.
    #[serde(deserialize_with = "positive")]
    pub tflop_per_s: f64,
    /// Edges that it samples per microsecond from its own memory; `None` for a device that only trains.
    #[serde(default, deserialize_with = "some_positive", skip_serializing_if = "Option::is_none")]
    pub sampling_m_edges_per_s: Option<f64>,
    /// Microseconds of launching the kernels of one phase of a mini-batch. Default 0.
    #[serde(default, deserialize_with = "amount")]
    pub launch_us: f64,
}

fn half() -> f64 {
    0.5
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(count: &usize) -> bool {
    *count == 1
}

/// Reads a number for which `is_valid` holds; the error says what it has to be.
fn number<'de, D: Deserializer<'de>>(
    deserializer: D,
    is_valid: impl Fn(f64) -> bool,
    wanted: &str,
) -> std::result::Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let valid = number.is_finite() && number <= 1e12 && is_valid(number);
    if valid { Ok(number) } else { Err(serde::de::Error::custom(format!("{number} is no {wanted}; give one"))) }
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    number(deserializer, |x| x >= 1e-9, "number from 10^-9 to 10^12")
}

fn some_positive<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<f64>, D::Error> {
    positive(deserializer).map(Some)
}

fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    number(deserializer, |x| x >= 0.0, "number of at least 0")
}

fn part<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    number(deserializer, |x| (1e-3..=1.0).contains(&x), "fraction from 0.001 to 1")
}

fn cores<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<usize, D::Error> {
    let cores = usize::deserialize(deserializer)?;
    if (1..=MAX_CORES).contains(&cores) {
        return Ok(cores);
    }
    Err(serde::de::Error::custom(format!("{cores} cores cannot be planned with; give 1 to {MAX_CORES}")))
}

impl MachineDescription {
    /// Reads a description from a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as [`MachineDescription::parse`].
    pub fn load(path: &Path) -> Result<Self> {
        let text = read_text(path, MAX_FILE).map_err(|e| Error::failed(path.display(), e))?;
        Self::parse(path.display(), &text)
    }

    /// Reads a description from TOML; `source` names it in errors. Devices of a kind are listed one by one.
    ///
    /// # Errors
    ///
    /// A key that does not exist or is missing, a number out of bounds, a link that does not exist, too many devices: with the
    /// source, its line and the cure.
    pub fn parse(source: impl Display, text: &str) -> Result<Self> {
        let at = |line: Option<usize>, what: &str| {
            let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
            let what = format!("{}; docs/machines.md has every key", excerpt(what, 300));
            Error::new(format!("{source}{line}"), ErrorKind::Parse(what))
        };
        let described: Self = toml::from_str(text).map_err(|e| {
            let line = e.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            at(line, e.message())
        })?;
        described.check().map_err(|(word, what)| {
            let line = text.lines().position(|line| line.split('#').next().is_some_and(|line| line.contains(&word)));
            at(line.map(|line| line + 1), &what)
        })?;
        Ok(described.one_by_one())
    }

    /// What TOML cannot say; the error has a text of the line it is about, and the cure.
    fn check(&self) -> std::result::Result<(), (String, String)> {
        let quoted = |name: &str| format!("{name:?}");
        let names: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return Err((quoted(name), format!("link {name:?} is described twice; give each a name of its own")));
            }
        }
        let mut count = 0_usize;
        for device in &self.devices {
            if !names.contains(&device.link.as_str()) {
                let known = if names.is_empty() { "there is no [[link]]".to_string() } else { names.join(", ") };
                let what = format!("device {:?} is on link {:?}; give one of: {known}", device.name, device.link);
                return Err((format!("link = {:?}", device.link), what));
            }
            count = count.saturating_add(device.count);
            if device.count == 0 || count > MAX_DEVICES {
                let what = format!("{count} devices with those of {:?}; give 1 to {MAX_DEVICES}", device.name);
                return Err((format!("count = {}", device.count), what));
            }
        }
        Ok(())
    }

    fn one_by_one(mut self) -> Self {
        let each = |device: DeviceDescription| {
            let count = device.count;
            std::iter::repeat_n(DeviceDescription { count: 1, ..device }, count)
        };
        self.devices = self.devices.into_iter().flat_map(each).collect();
        self
    }

    /// The same machine while one trainer works on each of its devices: devices that share a link have an even part of its bandwidth
    /// each, as links of their own.
    pub fn in_use_by_all(&self) -> Self {
        let mut shared = self.clone();
        for link in &mut shared.links {
            let devices = self.devices.iter().filter(|device| device.link == link.name).count();
            link.gb_per_s /= devices.max(1) as f64;
        }
        shared
    }

    /// The machine as the registry has one that was probed.
    pub fn machine(&self) -> Machine {
        let bytes = |gb: f64| (gb * 1e9) as u64;
        let accelerator = |(index, device): (usize, &DeviceDescription)| Accelerator {
            place: place(index as u32),
            name: format!("{}, simulated", device.name),
            memory_bytes: bytes(device.memory_gb),
        };
        Machine {
            cpu: format!("{}, simulated", self.name),
            cores: self.host.cores,
            memory_bytes: bytes(self.host.memory_gb),
            available_bytes: bytes(self.host.memory_gb),
            accelerators: self.devices.iter().enumerate().map(accelerator).collect(),
        }
    }

    /// The device at a place; `None` for the host, or where there is no such device.
    pub fn device(&self, place: &Place) -> Option<&DeviceDescription> {
        match place {
            Place::Device { backend, index } if backend == "sim" => self.devices.get(*index as usize),
            _ => None,
        }
    }

    /// The link of a device.
    pub(crate) fn link(&self, device: &DeviceDescription) -> &LinkDescription {
        self.links.iter().find(|link| link.name == device.link).expect("checked: every device is on a link")
    }
}

/// The place of the device with this number.
pub(crate) fn place(index: u32) -> Place {
    Place::Device { backend: "sim".into(), index }
}

#[cfg(test)]
mod tests;
