//! Recognises files in unsupported formats by their first bytes, with the command that converts them.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::Path;

use morphgl_graph_store::Result;

use super::named_cure;
use crate::files::invalid;

/// A format, and the cure, in which `FILE` stands for the file.
type Foreign = (&'static str, &'static str);

/// Bytes of the beginning of a text that say its format.
const HEAD: u64 = 64 << 10;

/// Refuses a file that begins like one in an unsupported format.
pub(super) fn refuse(path: &Path, head: &[u8]) -> Result<()> {
    kind(head).map_or(Ok(()), |(what, cure)| invalid(path, what, named_cure(cure, path)))
}

/// Whether a text is N-Triples, by its first line that is no comment.
pub(crate) fn is_n_triples(reader: impl Read) -> io::Result<bool> {
    let mut head = Vec::new();
    reader.take(HEAD).read_to_end(&mut head)?;
    Ok(kind(&head) == Some(N_TRIPLES))
}

/// The fault of a file that is not an archive of arrays; `None` where it may be a damaged one.
pub(crate) fn not_an_archive(head: &[u8]) -> Option<Foreign> {
    if head.starts_with(b"PK\x03\x04") {
        return kind(head).filter(|(what, _)| what.contains("PyTorch"));
    }
    if head.starts_with(b"\x93NUMPY") {
        return Some((
            "this is one array alone",
            "put it into a directory, under its name, with the arrays of the edges",
        ));
    }
    kind(head).or(Some(("this is no .npz archive", "read a list of edges with `morphgl import edges`")))
}

const SAVE_ARRAYS: &str = "save its arrays with numpy.savez and read them with `morphgl import numpy`";
const WRITE_CSV: &str = "write the edges as csv";

const MAGIC: &[(&[u8], Foreign)] = &[
    (
        b"PK\x03\x04",
        (
            "this is a zip archive, such as numpy's .npz",
            "read it with `morphgl import numpy` or `import npz`, or unpack it",
        ),
    ),
    (b"\x93NUMPY", ("this is a numpy array", "read a directory of arrays with `morphgl import numpy`")),
    (b"\x89HDF", ("this is an HDF5 file", SAVE_ARRAYS)),
    (b"SQLite format 3", ("this is an SQLite database", WRITE_CSV)),
    (b"PAR1", COLUMNAR),
    (b"ARROW1", COLUMNAR),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
];
const COLUMNAR: Foreign = ("this is a table of columns (Parquet or Arrow)", "read it with `morphgl import edges`");
const UTF_16: Foreign = ("this is text in UTF-16", "convert it: `iconv -f UTF-16 -t UTF-8 FILE > utf8.txt`");

/// The cure that writes edges with networkx.
macro_rules! networkx {
    ($reader:literal) => {
        concat!(
            "write its edges: `python3 -c \"import networkx as nx; print('src', 'dst', 'weight', sep='\\t'); ",
            "[print(*e, sep='\\t') for e in nx.",
            $reader,
            ".to_directed().edges(data='weight', default=1)]\" > edges.tsv`, ",
            "and read them: `morphgl import edges edges.tsv --ids strings`"
        )
    };
}

const JSON: Foreign = ("this looks like JSON, which is not read", WRITE_CSV);
const GEXF: Foreign = ("this is GEXF, which is not read", networkx!("read_gexf('FILE')"));
const GRAPHML: Foreign = ("this is GraphML, which is not read", networkx!("read_graphml('FILE')"));
const GML: Foreign = ("this is GML, which is not read", networkx!("read_gml('FILE', label='id')"));
const DOT: Foreign = ("this looks like Graphviz's DOT, which is not read", networkx!("nx_pydot.read_dot('FILE')"));
const PAJEK: Foreign = ("this is a Pajek network, which is not read", networkx!("read_pajek('FILE')"));
const GDF: Foreign = (
    "this is GDF, which is not read",
    "write its edges: `python3 -c \"import re; head, rows = open('FILE').read().split('edgedef>')[1].split('\\n', 1); \
     print(re.sub(' [^,]*', '', head)); print(rows)\" > edges.csv`, and read them: `morphgl import edges edges.csv \
     --ids strings --src node1 --dst node2 --symmetrise`",
);
const TGF: Foreign = (
    "this is Trivial Graph Format, which is not read",
    "write its edges: `python3 -c \"print('src dst'); [print(*s.split()[:2]) for s in \
     open('FILE').read().split('\\n#\\n')[1].splitlines()]\" > edges.txt`, and read them: `morphgl import edges edges.txt \
     --ids strings`",
);
const DIMACS: Foreign = (
    "this is DIMACS, which is not read",
    "write its edges: `python3 -c \"[print(*s.split()[1:]) for s in open('FILE') if s[:2] == 'e ']\" > edges.txt`, and read \
     them: `morphgl import edges edges.txt --first-id 1 --symmetrise`",
);
const DIMACS_ARCS: Foreign = (
    "this is DIMACS, which is not read",
    "write its arcs: `python3 -c \"[print(*s.split()[1:]) for s in open('FILE') if s[:2] == 'a ']\" > edges.txt`, and read \
     them: `morphgl import edges edges.txt --first-id 1`",
);
const UCINET: Foreign = (
    "this is UCINET's DL, which is not read",
    "write its lines after \"data:\" as a list of edges: `python3 -c \"print(open('FILE').read().lower().split('data:')[1])\" \
     > edges.txt`, and read them: `morphgl import edges edges.txt --first-id 1`",
);
const UCINET_MATRIX: Foreign = ("this is UCINET's DL, which is not read", WRITE_CSV);
const N_TRIPLES: Foreign = ("this is N-Triples", "read it with `morphgl import triples FILE`");

fn kind(head: &[u8]) -> Option<Foreign> {
    if head.starts_with(b"PK\x03\x04") && head.windows(8).any(|w| w == b"data.pkl") {
        return Some(("this is a PyTorch file (.pt)", SAVE_ARRAYS));
    }
    if matches!(head, [0x80, 2..=5, ..]) {
        return Some(("this is a pickle, which could run any program", SAVE_ARRAYS));
    }
    let magic = MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
    if let Some((_, foreign)) = magic {
        return Some(*foreign);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(("this is a tar archive", "unpack it, and name the file in it"));
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if let Some(foreign) = markup(&String::from_utf8_lossy(&text[..text.len().min(4000)]).to_lowercase()) {
        return Some(foreign);
    }
    let zeros = head[..head.len().min(512)].iter().filter(|&&byte| byte == 0).count();
    // Latin letters in UTF-16 have every other byte 0, and a text has no other bytes of this kind.
    let every_other = |first: usize| {
        let bytes = head[..head.len().min(512)].iter().skip(first).step_by(2);
        zeros > 3 && bytes.clone().all(|&byte| byte == 0) && bytes.count() == zeros
    };
    if every_other(1) || every_other(0) {
        let cure = if every_other(1) {
            "convert it: `iconv -f UTF-16LE -t UTF-8 FILE > utf8.txt`"
        } else {
            "convert it: `iconv -f UTF-16BE -t UTF-8 FILE > utf8.txt`"
        };
        return Some(("this is text in UTF-16", cure));
    }
    (zeros > 0).then_some((
        "this is no text",
        "read are edges as text or Parquet, numpy arrays, MatrixMarket, METIS, OGB, Planetoid and WebGraph",
    ))
}

/// The format of a text that begins with `ahead`, in lower case.
fn markup(ahead: &str) -> Option<Foreign> {
    let lines = ahead.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().find(|line| !line.starts_with(['#', '%']) && !line.starts_with("//"))?;
    let words: Vec<&str> = first.split_ascii_whitespace().collect();
    if ahead.starts_with('<') && ahead.contains("<gexf") {
        return Some(GEXF);
    }
    if ahead.starts_with('<') && ahead.contains("graphml") {
        return Some(GRAPHML);
    }
    if first.starts_with(['<', '_']) && words.len() > 3 && words.last().is_some_and(|word| word.ends_with('.')) {
        return Some(N_TRIPLES);
    }
    let brace = first.find('{').or_else(|| ahead.find('{')).unwrap_or(ahead.len());
    let is_graph = matches!(words[0].split(['{', '[']).next(), Some("graph" | "digraph" | "strict"));
    if is_graph && brace < ahead.find('[').unwrap_or(ahead.len()) {
        return Some(DOT);
    }
    let mut all = ahead.lines().filter(|line| !line.starts_with(['#', '%'])).flat_map(str::split_ascii_whitespace);
    if ahead.contains('[') && all.any(|word| word == "graph" || word == "graph[") {
        return Some(GML);
    }
    if first.starts_with(['{', '[']) {
        return Some(JSON);
    }
    if first.starts_with("*vertices") || first.starts_with("*network") {
        return Some(PAJEK);
    }
    if first.starts_with("nodedef>") {
        return Some(GDF);
    }
    if words[0] == "dl"
        && (words.len() == 1 || first.contains("n=") || first.contains("n =") || first.contains("format"))
    {
        return Some(if ahead.contains("edgelist") { UCINET } else { UCINET_MATRIX });
    }
    let problem = lines.into_iter().find(|line| !(line.starts_with("c ") || *line == "c"))?;
    if let &["p", of, nodes, edges] = problem.split_ascii_whitespace().collect::<Vec<_>>().as_slice()
        && [nodes, edges].iter().all(|number| number.parse::<u64>().is_ok())
    {
        return Some(if matches!(of, "edge" | "col" | "edges") { DIMACS } else { DIMACS_ARCS });
    }
    is_trivial_graph(ahead).then_some(TGF)
}

/// Whether a text has nodes, each with a label that is no number, then a line `#`, then edges between these nodes.
fn is_trivial_graph(ahead: &str) -> bool {
    let Some((nodes, edges)) = ahead.split_once("\n#\n") else { return false };
    let labels = nodes.lines().map(|line| line.split_once(' '));
    let ids = labels.map(|words| words.filter(|(_, label)| label.parse::<f64>().is_err()).map(|(id, _)| id));
    let Some(ids) = ids.collect::<Option<HashSet<&str>>>() else { return false };
    // The last line may be cut off.
    let mut edges: Vec<&str> = edges.lines().collect();
    edges.truncate(edges.len().saturating_sub(1).max(1));
    !edges.is_empty()
        && edges.iter().all(|edge| edge.split_ascii_whitespace().take(2).filter(|id| ids.contains(id)).count() == 2)
}

#[cfg(test)]
mod tests;
