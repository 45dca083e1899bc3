//! Files of nodes and of pairs.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use morphgl_graph_store::{Dataset, NodeNames, Types};
use morphgl_platform::{excerpt, open_regular, text};

/// Maximum bytes of a line of a file of nodes: an id or a name.
const MAX_LINE: u64 = 64 << 10;
/// Characters of a line in a message.
const QUOTED: usize = 100;

/// The nodes of a file of ids of the graph's source; of a graph with types the ids are those of the type `of`, or `type:id`.
pub(super) fn read_nodes(
    path: &Path,
    dataset: &Dataset,
    names: Option<&NodeNames>,
    of: Option<usize>,
) -> anyhow::Result<Vec<u32>> {
    let cure = "--nodes takes all, train, valid, test or a file of ids";
    let find = NodeFinder::new(dataset, names);
    let mut nodes = Vec::new();
    each_line(path, cure, "give one id per line", |line, at| {
        nodes.push(find.node(line, of, at)?);
        Ok(())
    })?;
    Ok(nodes)
}

/// The pairs of a file of two ids a line, as of [`read_nodes`] with the types of both ends.
pub(super) fn read_pairs(
    path: &Path,
    dataset: &Dataset,
    names: Option<&NodeNames>,
    of: Option<[usize; 2]>,
) -> anyhow::Result<Vec<[u32; 2]>> {
    let cure = "--edges takes a file of two ids a line";
    let find = NodeFinder::new(dataset, names);
    let mut pairs = Vec::new();
    each_line(path, cure, "give two ids per line", |line, at| {
        let ends = line.split_once(['\t', ',']).or_else(|| line.split_once(char::is_whitespace));
        let Some((from, to)) = ends.map(|(from, to)| (from.trim(), to.trim())) else {
            let line = excerpt(line, QUOTED);
            anyhow::bail!("{at}: {line:?} is no pair; give source and destination, separated by a comma or a space");
        };
        pairs.push([find.node(from, of.map(|of| of[0]), at)?, find.node(to, of.map(|of| of[1]), at)?]);
        Ok(())
    })?;
    Ok(pairs)
}

/// The rows of a file of a node and a time a line: the nodes, as of [`read_nodes`], and the times.
pub(super) fn read_rows(
    path: &Path,
    dataset: &Dataset,
    names: Option<&NodeNames>,
    of: Option<usize>,
) -> anyhow::Result<(Vec<u32>, Vec<i64>)> {
    let cure = "--rows takes all, train, valid, test or a file of a node and a time a line";
    let find = NodeFinder::new(dataset, names);
    let (mut nodes, mut times) = (Vec::new(), Vec::new());
    each_line(path, cure, "give a node and a time per line", |line, at| {
        let fields = line.rsplit_once(['\t', ',']).or_else(|| line.rsplit_once(char::is_whitespace));
        let row = fields.and_then(|(node, time)| Some((node.trim(), time.trim().parse::<i64>().ok()?)));
        let Some((node, time)) = row else {
            let line = excerpt(line, QUOTED);
            anyhow::bail!(
                "{at}: {line:?} is no row; give a node and a time, a whole number, separated by a comma or a space"
            );
        };
        nodes.push(find.node(node, of, at)?);
        times.push(time);
        Ok(())
    })?;
    Ok((nodes, times))
}

/// The pairs of a file of two ids and the name of an edge type a line, and the numbers of these types.
pub(super) fn read_typed_pairs(
    path: &Path,
    dataset: &Dataset,
    names: Option<&NodeNames>,
) -> anyhow::Result<(Vec<[u32; 2]>, Vec<u16>)> {
    let cure = "--edges takes a file of two ids and an edge type a line";
    let find = NodeFinder::new(dataset, names);
    let types = dataset.topology.types().context("a model with a vector per edge type is of a graph with types")?;
    let (mut pairs, mut of_pairs) = (Vec::new(), Vec::new());
    each_line(path, cure, "give two ids and an edge type per line", |line, at| {
        let separator = ['\t', ','].into_iter().find(|&separator| line.contains(separator));
        let fields: Vec<&str> = match separator {
            Some(separator) => line.split(separator).map(str::trim).collect(),
            None => line.split_whitespace().collect(),
        };
        let [from, to, name] = fields[..] else {
            let line = excerpt(line, QUOTED);
            anyhow::bail!("{at}: {line:?} is no pair with an edge type; give source, destination and edge type");
        };
        let of = edge_type(types, name).map_err(|what| anyhow::anyhow!("{at}: {what}"))?;
        let ends = types.ends(of.into());
        let pair = [find.node(from, Some(ends[0]), at)?, find.node(to, Some(ends[1]), at)?];
        if let Some(end) = [0, 1].into_iter().find(|&end| types.node_type(pair[end]) != ends[end]) {
            let (text, of) = (excerpt(fields[end], QUOTED), &types.edge_types()[usize::from(of)]);
            anyhow::bail!("{at}: {text:?} is of another node type than the ends of {of}");
        }
        pairs.push(pair);
        of_pairs.push(of);
        Ok(())
    })?;
    Ok((pairs, of_pairs))
}

/// Number of an edge type by its name alone, where one type has it, or with its ends, `source-name-target`; or what is wrong with it.
pub(super) fn edge_type(types: &Types, name: &str) -> Result<u16, String> {
    let all = || (0u16..).zip(types.edge_types());
    let whole = all().find(|(_, of)| of.to_string() == name);
    let mut named = all().filter(|(_, of)| of.name == name);
    let text = excerpt(name, QUOTED);
    match (whole, named.next(), named.next()) {
        (Some((of, _)), ..) | (None, Some((of, _)), None) => Ok(of),
        (None, Some((_, first)), Some((_, second))) => {
            Err(format!("{text:?}: it is of several types; give {first} or {second}"))
        }
        (None, None, _) => {
            let known: Vec<String> = types.edge_types().iter().take(10).map(|of| of.name.clone()).collect();
            let more = if types.edge_types().len() > known.len() { ", …" } else { "" };
            Err(format!("{text:?}: there is no such edge type; there are {}{more}", known.join(", ")))
        }
    }
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
    types: Option<&'a Types>,
    /// By the number of the node's type, 0 in a graph without types.
    by_id: Option<HashMap<(usize, u64), u32>>,
    names: Option<&'a NodeNames>,
}

impl<'a> NodeFinder<'a> {
    fn new(dataset: &'a Dataset, names: Option<&'a NodeNames>) -> Self {
        let types = dataset.topology.types().map(|types| &**types);
        let key = |(node, &id): (u32, &u64)| ((types.map_or(0, |types| types.node_type(node)), id), node);
        let by_id = dataset.node_ids.as_ref().map(|ids| (0..).zip(ids.iter()).map(key).collect());
        Self { num_nodes: dataset.num_nodes(), types, by_id, names }
    }

    /// The node of this id or name, which is of the type `of` unless it names its type or one type alone has it; `at` is its place, for
    /// errors.
    fn node(&self, text: &str, of: Option<usize>, at: &str) -> anyhow::Result<u32> {
        let node = match self.types {
            None => self.find(0, None, text),
            Some(types) => {
                let of_name = |(name, own): (&str, &'_ str)| {
                    let of = types.node_type_of_name(name)?;
                    self.find(of, Some(name), own)
                };
                let num_types = types.node_types().len();
                let in_type = |of: usize| self.find(of, Some(&types.node_types()[of].name), text);
                let named = text.split_once(':').map(|(name, own)| (name.trim(), own.trim()));
                match named.and_then(of_name).or_else(|| of.and_then(in_type)) {
                    Some(node) => Some(node),
                    None if of.is_some() => None,
                    None => {
                        let all: Vec<(usize, u32)> = (0..num_types).filter_map(|of| Some((of, in_type(of)?))).collect();
                        if let [(first, _), (second, _), ..] = all[..] {
                            let [first, second] = [first, second].map(|of| &types.node_types()[of].name);
                            let text = excerpt(text, QUOTED);
                            anyhow::bail!(
                                "{at}: {text:?} is an id of {first} and of {second}; give {first}:{text} or {second}:{text}"
                            );
                        }
                        all.first().map(|&(_, node)| node)
                    }
                }
            }
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

    /// The node of an id among those of the type number `of`, whose name is that of all nodes' names, too.
    fn find(&self, of: usize, type_name: Option<&str>, text: &str) -> Option<u32> {
        let id = || text.parse::<u64>().ok();
        match (self.names, &self.by_id, self.types) {
            (Some(names), ..) => {
                let prefixed = type_name.map(|name| format!("{name}:{text}"));
                names.find(prefixed.as_deref().unwrap_or(text).as_bytes())
            }
            (None, Some(by_id), _) => by_id.get(&(of, id()?)).copied(),
            (None, None, Some(types)) => {
                let Range { start, end } = types.range(of);
                id().and_then(|id| u32::try_from(id).ok()?.checked_add(start)).filter(|&node| node < end)
            }
            (None, None, None) => id().and_then(|id| u32::try_from(id).ok()).filter(|&v| (v as usize) < self.num_nodes),
        }
    }
}
