//! The machines that come with MorphGL.

use morphgl_registry::{Error, ErrorKind, Result};

use crate::MachineDescription;
use crate::machine::{DeviceDescription, LinkDescription};

/// Names of the machines that come with MorphGL, and their files.
pub const NAMED: [(&str, &str); 11] = [
    ("laptop", include_str!("../machines/laptop.toml")),
    ("a100", include_str!("../machines/a100.toml")),
    ("eight-v100", include_str!("../machines/eight-v100.toml")),
    ("morphgl-3090", include_str!("../machines/morphgl-3090.toml")),
    ("neutronorch-v100", include_str!("../machines/neutronorch-v100.toml")),
    ("unified-a5000", include_str!("../machines/unified-a5000.toml")),
    ("unified-a100", include_str!("../machines/unified-a100.toml")),
    ("tiering-v100", include_str!("../machines/tiering-v100.toml")),
    ("ducati-2080ti", include_str!("../machines/ducati-2080ti.toml")),
    ("direct-3090", include_str!("../machines/direct-3090.toml")),
    ("npu", include_str!("../machines/npu.toml")),
];

impl MachineDescription {
    /// A machine that comes with MorphGL.
    ///
    /// # Errors
    ///
    /// There is none of this name; the error lists those there are.
    pub fn named(name: &str) -> Result<Self> {
        let Some((_, text)) = NAMED.iter().find(|(known, _)| *known == name) else {
            let names = NAMED.map(|(name, _)| name).join(", ");
            let what = format!("no machine of this name, and no file; there are {names}; `list` describes them");
            return Err(Error::new(name, ErrorKind::Parse(what)));
        };
        Self::parse(name, text)
    }
}

/// The table of the machines that come with MorphGL, in Markdown.
pub fn table() -> String {
    let row = |(name, text): &(&str, &str)| {
        let machine = MachineDescription::parse(name, text).expect("a test reads every one");
        let host = &machine.host;
        let device = |device: &DeviceDescription| {
            let sampling = device.sampling_m_edges_per_s.map_or("none".to_string(), |edges| format!("{edges}"));
            let DeviceDescription { name, memory_gb, bandwidth_gb_per_s, tflop_per_s, .. } = device;
            format!("{name}: {memory_gb} GB, {bandwidth_gb_per_s} GB/s, {tflop_per_s} TFLOP/s, {sampling}")
        };
        // Devices of a kind follow each other.
        let mut devices: Vec<(usize, String)> = Vec::new();
        for text in machine.devices.iter().map(device) {
            match devices.last_mut().filter(|(_, last)| *last == text) {
                Some((count, _)) => *count += 1,
                None => devices.push((1, text)),
            }
        }
        let devices: Vec<String> = devices.into_iter().map(|(count, text)| format!("{count} x {text}")).collect();
        let link = |link: &LinkDescription| {
            let count = machine.devices.iter().filter(|device| device.link == link.name).count();
            let noun = if count == 1 { "device" } else { "devices" };
            format!("{}: {} GB/s, {count} {noun}", link.name, link.gb_per_s)
        };
        let links: Vec<String> = machine.links.iter().map(link).collect();
        let or_none = |list: Vec<String>| if list.is_empty() { "none".to_string() } else { list.join("; ") };
        format!(
            "| `{name}` | {} | {} x {} M edges/s, {} GFLOP/s; {} GB, {} GB/s | {} | {} |\n",
            machine.summary,
            host.cores,
            host.sampling_m_edges_per_s,
            host.gflop_per_s,
            host.memory_gb,
            host.bandwidth_gb_per_s,
            or_none(devices),
            or_none(links)
        )
    };
    let head = "| name | machine | cores, each; memory | devices, each with M edges/s of sampling | links |\n|---|---|---|---|---|\n";
    NAMED.iter().fold(head.to_string(), |table, machine| table + &row(machine))
}

/// Names and summaries of the machines that come with MorphGL, a line each.
pub fn list() -> String {
    let summary = |text: &str| MachineDescription::parse("", text).expect("a test reads every one").summary;
    let width = NAMED.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    NAMED.iter().map(|(name, text)| format!("{name:width$}  {}\n", summary(text))).collect()
}
