//! The same graph in every format.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Edges drawn by a hash: sources uniform, targets skewed, so that a percent of the nodes has a tenth of the edges.
pub(crate) struct Graph {
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
}

impl Graph {
    fn edge(&self, i: u64) -> (u64, u64) {
        let unit = |x: u64| (x >> 11) as f64 / (1u64 << 53) as f64;
        let (a, b) = (hash(2 * i), hash(2 * i + 1));
        let rank = (unit(b).powi(2) * self.nodes as f64) as u64;
        // Neighbouring ranks are far apart.
        (a % self.nodes, rank.wrapping_mul(2_654_435_761) % self.nodes)
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.edges).map(|i| self.edge(i))
    }
}

fn hash(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Writes the sources of the selected formats below `dir`.
pub(crate) fn write_all(dir: &Path, graph: &Graph, formats: &[(&str, &str)]) {
    fs::create_dir_all(dir).expect("the disk takes the sources");
    let mut files: Vec<&str> = formats.iter().map(|(_, file)| *file).collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        write(&dir.join(file), file, graph).expect("the disk takes the sources");
    }
}

fn write(path: &Path, name: &str, graph: &Graph) -> std::io::Result<()> {
    let lines =
        |out: &mut dyn Write, between: char| graph.all().try_for_each(|(u, v)| writeln!(out, "{u}{between}{v}"));
    let create = |path: &Path| File::create(path).map(|f| BufWriter::with_capacity(1 << 20, f));
    let gzip = |path: &Path| create(path).map(|f| GzEncoder::new(f, Compression::default()));
    match name {
        "edges.csv" => lines(&mut create(path)?, ','),
        "edges.tsv" => lines(&mut create(path)?, '\t'),
        "weighted.csv" => {
            let mut out = create(path)?;
            let weight = |u: u64, v: u64| hash(u ^ v << 32) % 10_000_000;
            graph.all().try_for_each(|(u, v)| writeln!(out, "{u},{v},0.{:07}", weight(u, v)))
        }
        "edges.csv.gz" => lines(&mut gzip(path)?, ','),
        "edges.csv.zst" => lines(&mut zstd::Encoder::new(create(path)?, 3)?.auto_finish(), ','),
        "ogb" => {
            let raw = path.join("raw");
            fs::create_dir_all(&raw)?;
            writeln!(gzip(&raw.join("num-node-list.csv.gz"))?, "{}", graph.nodes)?;
            writeln!(gzip(&raw.join("num-edge-list.csv.gz"))?, "{}", graph.edges)?;
            lines(&mut gzip(&raw.join("edge.csv.gz"))?, ',')
        }
        "graph.mtx" => {
            let mut out = create(path)?;
            writeln!(out, "%%MatrixMarket matrix coordinate pattern general\n{0} {0} {1}", graph.nodes, graph.edges)?;
            graph.all().try_for_each(|(u, v)| writeln!(out, "{} {}", u + 1, v + 1))
        }
        "graph.metis" => {
            let half = Graph { nodes: graph.nodes, edges: graph.edges / 2 };
            let (indptr, neighbours) = rows(half.nodes, || half.all().chain(half.all().map(|(u, v)| (v, u))));
            let mut out = create(path)?;
            writeln!(out, "{} {}", half.nodes, half.edges)?;
            for row in indptr.windows(2) {
                neighbours[row[0] as usize..row[1] as usize].iter().try_for_each(|v| write!(out, "{} ", v + 1))?;
                writeln!(out)?;
            }
            out.flush()
        }
        "edge_index" => {
            fs::create_dir_all(path)?;
            edge_index(&mut create(&path.join("edge_index.npy"))?, graph)
        }
        "edge_index.npz" => {
            let mut zip = zip::ZipWriter::new(File::create(path)?);
            let stored = zip::write::SimpleFileOptions::default();
            let stored = stored.compression_method(zip::CompressionMethod::Stored).large_file(true);
            zip.start_file("edge_index.npy", stored).map_err(std::io::Error::other)?;
            edge_index(&mut BufWriter::with_capacity(1 << 20, &mut zip), graph)?;
            zip.finish().map(drop).map_err(std::io::Error::other)
        }
        "csc" => csc(path, graph, "<u4", |out, values| out.write_all(bytemuck::cast_slice(values))),
        "csc_i64" => csc(path, graph, "<i8", |out, values| {
            values.iter().try_for_each(|&v| out.write_all(&i64::from(v).to_le_bytes()))
        }),
        "features_f32" => features(path, graph, "<f4", |x| (x as f32).to_le_bytes()),
        "features_f16" => features(path, graph, "<f2", |x| half::f16::from_f64(x).to_le_bytes()),
        other => unreachable!("{other} is no source"),
    }
}

/// `indptr` and `indices` of a directory.
fn csc(
    path: &Path,
    graph: &Graph,
    descr: &str,
    write: impl Fn(&mut BufWriter<File>, &[u32]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    fs::create_dir_all(path)?;
    let (indptr, mut sources) = rows(graph.nodes, || graph.all());
    indptr.windows(2).for_each(|row| sources[row[0] as usize..row[1] as usize].sort_unstable());
    let create = |name: &str| File::create(path.join(name)).map(|f| BufWriter::with_capacity(1 << 20, f));
    let mut out = create("indptr.npy")?;
    out.write_all(&header("<u8", &format!("({},)", indptr.len())))?;
    out.write_all(bytemuck::cast_slice(&indptr))?;
    out.flush()?;
    let mut out = create("indices.npy")?;
    out.write_all(&header(descr, &format!("({},)", sources.len())))?;
    write(&mut out, &sources)?;
    out.flush()
}

/// A hundred features per node, labels, and a single edge.
fn features<const N: usize>(
    path: &Path,
    graph: &Graph,
    descr: &str,
    bytes: impl Fn(f64) -> [u8; N],
) -> std::io::Result<()> {
    const DIM: u64 = 100;
    fs::create_dir_all(path)?;
    let create = |name: &str| File::create(path.join(name)).map(|f| BufWriter::with_capacity(1 << 20, f));
    for name in ["src.npy", "dst.npy"] {
        let mut out = create(name)?;
        out.write_all(&header("<i8", "(1,)"))?;
        out.write_all(&0i64.to_le_bytes())?;
        out.flush()?;
    }
    let mut out = create("labels.npy")?;
    out.write_all(&header("<i8", &format!("({},)", graph.nodes)))?;
    (0..graph.nodes).try_for_each(|v| out.write_all(&(hash(v) % 40).to_le_bytes()))?;
    out.flush()?;
    let mut out = create("features.npy")?;
    out.write_all(&header(descr, &format!("({}, {DIM})", graph.nodes)))?;
    let value = |i: u64| (hash(i) >> 40) as f64 / (1 << 24) as f64;
    (0..graph.nodes * DIM).try_for_each(|i| out.write_all(&bytes(value(i))))?;
    out.flush()
}

/// The rows of in-neighbours, by counting.
fn rows<I: Iterator<Item = (u64, u64)>>(nodes: u64, edges: impl Fn() -> I) -> (Vec<u64>, Vec<u32>) {
    let mut next = vec![0u64; nodes as usize + 1];
    edges().for_each(|(_, v)| next[v as usize + 1] += 1);
    (0..nodes as usize).for_each(|v| next[v + 1] += next[v]);
    let indptr = next.clone();
    let mut sources = vec![0; indptr[nodes as usize] as usize];
    for (u, v) in edges() {
        sources[next[v as usize] as usize] = u as u32;
        next[v as usize] += 1;
    }
    (indptr, sources)
}

fn edge_index(out: &mut impl Write, graph: &Graph) -> std::io::Result<()> {
    out.write_all(&header("<i8", &format!("(2, {})", graph.edges)))?;
    graph.all().try_for_each(|(u, _)| out.write_all(&u.to_le_bytes()))?;
    graph.all().try_for_each(|(_, v)| out.write_all(&v.to_le_bytes()))?;
    out.flush()
}

fn header(descr: &str, shape: &str) -> [u8; 128] {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut header = [b' '; 128];
    header[..10].copy_from_slice(b"\x93NUMPY\x01\x00\x76\x00");
    header[10..10 + dict.len()].copy_from_slice(dict.as_bytes());
    header[127] = b'\n';
    header
}
