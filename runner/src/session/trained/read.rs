//! Files of nodes and of pairs.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use morphgl_graph_store::{Dataset, NodeNames};
use morphgl_platform::{excerpt, open_regular, text};

/// Maximum bytes of a line of a file of nodes: an id or a name.
const MAX_LINE: u64 = 64 << 10;
/// Characters of a line in a message.
const QUOTED: usize = 100;

/// The nodes of a file of ids of the graph's source.
pub(super) fn read_nodes(path: &Path, dataset: &Dataset, names: Option<&NodeNames>) -> anyhow::Result<Vec<u32>> {
    let cure = "--nodes takes all, train, valid, test or a file of ids";
    let find = NodeFinder::new(dataset, names);
    let mut nodes = Vec::new();
    each_line(path, cure, "give one id per line", |line, at| {
        nodes.push(find.node(line, at)?);
        Ok(())
    })?;
    Ok(nodes)
}

/// The pairs of a file of two ids a line.
pub(super) fn read_pairs(path: &Path, dataset: &Dataset, names: Option<&NodeNames>) -> anyhow::Result<Vec<[u32; 2]>> {
    let cure = "--edges takes a file of two ids a line";
    let find = NodeFinder::new(dataset, names);
    let mut pairs = Vec::new();
    each_line(path, cure, "give two ids per line", |line, at| {
        let ends = line.split_once(['\t', ',']).or_else(|| line.split_once(char::is_whitespace));
        let Some((from, to)) = ends.map(|(from, to)| (from.trim(), to.trim())) else {
            let line = excerpt(line, QUOTED);
            anyhow::bail!("{at}: {line:?} is no pair; give source and destination, separated by a comma or a space");
        };
        pairs.push([find.node(from, at)?, find.node(to, at)?]);
        Ok(())
    })?;
    Ok(pairs)
}

/// Calls `read` with each line that is not empty, and the place of it for errors.
fn each_line(
    path: &Path,
    cure: &str,
    shorter: &str,
    mut read: impl FnMut(&str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cannot = || format!("{}: cannot be read; {cure}", path.display());
    let mut file = BufReader::new(open_regular(path).with_context(cannot)?);
    for number in 1.. {
        let mut line = Vec::new();
        let length = file.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line).with_context(cannot)?;
        if length == 0 {
            break;
        }
        let at = format!("{}, line {number}", path.display());
        if length as u64 > MAX_LINE {
            anyhow::bail!("{at}: it is longer than {MAX_LINE} bytes; {shorter}");
        }
        let line = text(line).with_context(|| at.clone())?;
        if !line.trim().is_empty() {
            read(line.trim(), &at)?;
        }
    }
    Ok(())
}

/// Finds nodes by their ids or names in the graph's source.
struct NodeFinder<'a> {
    num_nodes: usize,
    by_id: Option<HashMap<u64, u32>>,
    names: Option<&'a NodeNames>,
}

impl<'a> NodeFinder<'a> {
    fn new(dataset: &Dataset, names: Option<&'a NodeNames>) -> Self {
        let by_id = dataset.node_ids.as_ref().map(|ids| ids.iter().copied().zip(0..).collect());
        Self { num_nodes: dataset.num_nodes(), by_id, names }
    }

    /// The node of this id or name; `at` is its place, for errors.
    fn node(&self, text: &str, at: &str) -> anyhow::Result<u32> {
        let id = text.parse::<u64>().ok();
        let node = match (self.names, &self.by_id) {
            (Some(names), _) => names.find(text.as_bytes()),
            (None, Some(by_id)) => id.and_then(|id| by_id.get(&id).copied()),
            (None, None) => id.and_then(|id| u32::try_from(id).ok()).filter(|&v| (v as usize) < self.num_nodes),
        };
        node.with_context(|| {
            let cure = match &self.by_id {
                _ if self.names.is_some() => "give names as the graph's source has them".to_string(),
                Some(_) => "give ids as the graph's source has them".to_string(),
                None => format!("give ids from 0 to below {}", self.num_nodes),
            };
            format!("{at}: {:?} is no node; {cure}", excerpt(text, QUOTED))
        })
    }
}
