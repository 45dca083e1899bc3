//! The `.properties` file of a BV graph: `key=value` lines of Java.

use std::collections::BTreeMap;
use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};
use morphgl_platform::read_text;

/// Maximum bytes of the file; WebGraph's has some thousand.
const MAX_PROPERTIES: u64 = 1 << 20;

/// The properties of a graph that the import uses.
#[derive(Debug, PartialEq)]
pub(crate) struct Properties {
    pub(crate) num_nodes: u64,
    pub(crate) num_arcs: u64,
    pub(crate) little_endian: bool,
    /// Bits of the graph file without padding: the sum of the properties `bitsfor…`; `None` if one is missing.
    pub(crate) bits: Option<u64>,
}

impl Properties {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = read_text(path, MAX_PROPERTIES).map_err(|e| Error::io(path, e))?;
        let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
        let map: BTreeMap<&str, &str> = lines.map(|(key, value)| (key.trim(), value.trim())).collect();
        let invalid = |what: String, cure: &str| Error::invalid(path, Position::File, what, cure);
        let number = |key: &str| {
            let cure = "check that these are the properties of a BV graph";
            let value = map.get(key).ok_or_else(|| invalid(format!("the property {key} is missing"), cure))?;
            value.parse::<u64>().map_err(|_| invalid(format!("{key}={value} is not a whole number"), cure))
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
        let bits = parts
            .iter()
            .try_fold(0u64, |sum, part| sum.checked_add(map.get(format!("bitsfor{part}").as_str())?.parse().ok()?));
        let little_endian = map.get("endianness") == Some(&"little");
        Ok(Self { num_nodes, num_arcs, little_endian, bits })
    }
}
