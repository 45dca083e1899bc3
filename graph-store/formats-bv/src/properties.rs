//! `.properties`: what is checked before a bit is decoded.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};

/// What the properties say of a graph.
#[derive(Debug, PartialEq)]
pub(crate) struct Properties {
    pub(crate) num_nodes: u64,
    pub(crate) num_arcs: u64,
    pub(crate) little_endian: bool,
    /// Bits of the graph file without its padding, where every part is given.
    pub(crate) bits: Option<u64>,
}

impl Properties {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let map: BTreeMap<&str, &str> =
            text.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once('=')).map(trim).collect();
        let invalid = |what: String, cure: &str| Error::invalid(path, Position::File, what, cure);
        let number = |key: &str| {
            let value = map.get(key).ok_or_else(|| invalid(format!("the property {key} is missing"), RIGHT_FILE))?;
            value.parse::<u64>().map_err(|_| invalid(format!("{key}={value} is not a whole number"), RIGHT_FILE))
        };
        let (num_nodes, num_arcs) = (number("nodes")?, number("arcs")?);
        if num_nodes > MAX_NODES {
            let what = format!("{num_nodes} nodes are more than the {MAX_NODES} that ids of 32 bits allow");
            return Err(invalid(what, "cut the graph into smaller ones"));
        }
        let class = map.get("graphclass").copied().unwrap_or("BVGraph");
        if !class.rsplit('.').next().unwrap_or("").contains("BVGraph") {
            return Err(invalid(format!("a graph of class {class}"), "convert it to BVGraph with WebGraph's tools"));
        }
        let parts = ["outdegrees", "references", "blocks", "intervals", "residuals"];
        let bits = parts.iter().map(|part| map.get(format!("bitsfor{part}").as_str())?.parse::<u64>().ok()).sum();
        let little_endian = map.get("endianness") == Some(&"little");
        Ok(Self { num_nodes, num_arcs, little_endian, bits })
    }
}

const RIGHT_FILE: &str = "check that these are the properties of a BV graph";

fn trim<'t>((key, value): (&'t str, &'t str)) -> (&'t str, &'t str) {
    (key.trim(), value.trim())
}
