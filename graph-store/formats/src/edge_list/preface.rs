//! The comments before the first line of an edge list, in which KONECT and SNAP write what the list holds.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use morphgl_graph_store::{Error, Result};

use super::{Column, Columns, EdgeListOptions};
use crate::files::invalid;
use crate::text::{Separator, fields, open_text};
use crate::{Ingest, Silent};

/// Maximum bytes of comments that are looked at.
const MAX_BYTES: u64 = 64 << 10;

/// Facts about the list that the comments before its first row state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Preface {
    konect: Option<Konect>,
    /// Whether edges have no direction.
    undirected: bool,
    num_edges: Option<u64>,
    /// Numbers of sources and of targets.
    sizes: Option<[u64; 2]>,
    /// Number of fields of the first line after the comments.
    num_fields: usize,
}

/// KONECT's first line, such as `% bip posweighted asc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Konect {
    /// Whether sources and targets are two kinds of nodes.
    bipartite: bool,
    /// Whether the third column is a weight.
    weighted: bool,
}

impl Preface {
    /// Reads the comments of a text file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = open_text(path, "read", &Silent)?;
        let mut lines = BufReader::new(text.reader.take(MAX_BYTES));
        let (mut preface, mut line) = (Self::default(), Vec::new());
        loop {
            line.clear();
            // What is damaged further on is found and named when the edges are read.
            let read = lines.read_until(b'\n', &mut line).or_else(|e| match crate::files::is_damage(&e) {
                true => Ok(0),
                false => Err(Error::io(path, e)),
            })?;
            let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
            match text.first() {
                Some(b'#' | b'%') => preface.comment(&String::from_utf8_lossy(&text[1..])),
                None if read > 0 => {}
                _ => {
                    preface.num_fields = fields(text, Separator::Blanks).count();
                    return Ok(preface);
                }
            }
        }
    }

    fn comment(&mut self, text: &str) {
        let lower = text.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
        match (words.as_slice(), numbers.as_deref()) {
            (&[form @ ("sym" | "asym" | "bip"), weights, ..], _) if self.konect.is_none() => {
                let weighted = matches!(
                    weights,
                    "posweighted" | "signed" | "multisigned" | "weighted" | "multiweighted" | "multiposweighted"
                );
                self.konect = Some(Konect { bipartite: form == "bip", weighted });
                self.undirected = form == "sym";
            }
            (_, Some(&[edges, sources, targets])) if self.konect.is_some() => {
                self.num_edges = Some(edges);
                self.sizes = Some([sources, targets]);
            }
            (&["nodes:", _, "edges:", edges], _) => self.num_edges = edges.parse().ok(),
            (&["undirected", ..], _) => self.undirected = true,
            _ => {}
        }
    }

    /// Refuses a list of two kinds of nodes unless the options say how to read it; notes what the comments decide.
    pub(super) fn check(&self, ingest: &mut Ingest<'_>, source: &Path, format: &EdgeListOptions) -> Result<()> {
        let options = ingest.options();
        if self.konect.is_some_and(|konect| konect.bipartite) && options.bipartite.is_none() {
            let sizes = self.sizes.map_or(String::new(), |[left, right]| format!(", {left} and {right} of them"));
            let what = format!("the header (% bip) says that the columns are ids of two kinds of nodes{sizes}");
            return invalid(source, what, "keep them apart by --bipartite");
        }
        if self.konect.is_some() && format.first_id.is_none() && format.ids == super::Ids::Keep {
            ingest.note("the header is KONECT's: ids count from 1");
        }
        if self.undirected && !options.symmetrise {
            ingest.note("the header says that edges have no direction: --symmetrise adds the reverse of each");
        }
        ingest.announced_edges = self.num_edges;
        Ok(())
    }

    /// `format` with its unset options filled in from the comments.
    pub(super) fn complete(&self, format: &EdgeListOptions) -> EdgeListOptions {
        let mut format = format.clone();
        let Some(konect) = self.konect else { return format };
        format.first_id = format.first_id.or(Some(1));
        if format.columns.ids_and_weight() == Columns::default() && self.num_fields > 2 {
            let [src, dst, weight] = [1, 2, 3].map(|number| Some(Column::Number(number)));
            let is_taken = format.columns.are_labelled() || !format.columns.features.is_empty();
            let weight = weight.filter(|_| konect.weighted && !is_taken);
            format.columns = Columns { src, dst, weight, ..format.columns };
        }
        format
    }

    /// The numbers of sources and of targets.
    pub(super) fn sizes(&self) -> Option<[u64; 2]> {
        self.sizes
    }
}

#[cfg(test)]
mod tests;
