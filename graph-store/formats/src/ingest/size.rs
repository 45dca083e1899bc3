//! Refusal of datasets that are far larger than their source.

use std::ffi::OsStr;
use std::fs::{self, ReadDir};
use std::path::Path;

use morphgl_graph_store::{MAX_NODES, Result};

use crate::files::invalid;
use crate::{Ingest, RandomFeatures};

/// Factor to the bytes of the source up to which an array larger than [`Options::large`](crate::Options::large) is plausible: compressed edges, random features of many
/// columns, and sparse features stored densely (300 for Coauthor Physics).
const GROWTH: u64 = 1024;

/// Bytes of a source: of a file, of all files of a directory, or of those whose names begin with a prefix.
fn size_of_input(path: &Path) -> u64 {
    fn sum(entries: std::io::Result<ReadDir>, depth: u32, keep: impl Fn(&OsStr) -> bool) -> u64 {
        let entries = entries.into_iter().flatten().flatten().filter(|entry| keep(&entry.file_name()));
        entries.fold(0, |total: u64, entry| total.saturating_add(size(&entry.path(), depth)))
    }
    /// Directories are entered three levels deep, more than any format has.
    fn size(path: &Path, depth: u32) -> u64 {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() && depth < 3 => sum(fs::read_dir(path), depth + 1, |_| true),
            Ok(found) if found.is_file() => found.len(),
            _ => 0,
        }
    }
    let (Some(parent), Some(prefix)) = (path.parent(), path.file_name()) else { return size(path, 0) };
    if path.exists() {
        return size(path, 0);
    }
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let begins = |name: &OsStr| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
    sum(fs::read_dir(parent), 1, begins)
}

impl Ingest<'_> {
    /// Refuses a dataset whose arrays by node take far more than the source has, unless the options allow it.
    pub(crate) fn check_size(&self, num_nodes: u64) -> Result<()> {
        if num_nodes > MAX_NODES {
            let what = format!("{num_nodes} nodes are more than the {MAX_NODES} that ids of 32 bits allow");
            return invalid(&self.source, what, "cut the graph into smaller ones");
        }
        self.refuse_large(&format!("{num_nodes} nodes"), 8 * num_nodes, "check the number of nodes")?;
        let Some(RandomFeatures { dim, dtype, .. }) = self.options.random_features else { return Ok(()) };
        let bytes = num_nodes.saturating_mul(dim as u64).saturating_mul(dtype.size() as u64);
        self.refuse_large(&format!("random features of {dim} columns"), bytes, "give a smaller --random-features")
    }

    /// Refuses `bytes` of an array, `what`, that are far more than the source has, unless the options allow it: a number in a
    /// damaged header, or a mistyped option, would otherwise fill the disk.
    pub(crate) fn refuse_large(&self, what: &str, bytes: u64, cure: &str) -> Result<()> {
        if bytes <= self.options.large {
            return Ok(());
        }
        let nodes = &self.options.nodes;
        let files = [&nodes.table, &nodes.features, &nodes.labels].into_iter().chain(&nodes.splits).flatten();
        let files = files.chain(&self.inputs);
        let input =
            [&self.source].into_iter().chain(files).fold(0u64, |sum, path| sum.saturating_add(size_of_input(path)));
        if bytes / GROWTH <= input {
            return Ok(());
        }
        let what =
            format!("{what} would take {:.1} GiB, and the source has {input} bytes", bytes as f64 / f64::from(1 << 30));
        invalid(&self.source, what, format!("{cure}, or confirm the size by --allow-large"))
    }
}
