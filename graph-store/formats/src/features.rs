//! Feature rows on their way into a dataset.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use morphgl_graph_store::{ArrayMeta, Dtype, Element, Error, NpyWriter, Position, Result};
use rayon::prelude::*;

use crate::{Ingest, RandomFeatures, random};

/// Takes feature rows in order, as f32, and stores them in the type the options ask for.
#[derive(Debug)]
pub struct FeatureSink<'s, 'a> {
    ingest: &'s mut Ingest<'a>,
    source: PathBuf,
    rows: Rows,
    normalize: bool,
    scaled: Vec<f32>,
}

impl<'s, 'a> FeatureSink<'s, 'a> {
    pub(crate) fn new(source: &Path, ingest: &'s mut Ingest<'a>, dim: usize, stored: Dtype) -> Result<Self> {
        let options = ingest.options();
        let normalize = options.normalize_features;
        let kept = match stored {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => stored,
            Dtype::U8 if !normalize => stored,
            _ => Dtype::F32,
        };
        if dim == 0 {
            let cure = "leave the features out or give them columns";
            return Err(Error::invalid(source, Position::File, "the features have no columns", cure));
        }
        let rows = Rows::create(ingest, dim, options.feature_dtype.unwrap_or(kept))?;
        Ok(Self { ingest, source: source.to_path_buf(), rows, normalize, scaled: Vec::new() })
    }

    /// Appends whole rows, any number of them at a time (many at once is faster: they are converted in parallel).
    ///
    /// # Errors
    ///
    /// A value that is NaN or infinite, or that the stored type cannot hold.
    ///
    /// # Panics
    ///
    /// When `rows` is not a whole number of rows.
    pub fn push(&mut self, rows: &[f32]) -> Result<()> {
        let dim = self.rows.dim;
        assert_eq!(rows.len() % dim, 0, "{} values in rows of {dim}", rows.len());
        // The source's values are looked at first: a row with a NaN must not be scaled into a row of them.
        let bad = rows.par_iter().position_first(|v| !v.is_finite());
        let mut values = rows;
        if self.normalize && bad.is_none() {
            self.scaled.resize(rows.len(), 0.0);
            self.scaled.par_chunks_mut(dim).zip(rows.par_chunks(dim)).for_each(|(out, row)| {
                let sum: f64 = row.iter().map(|v| f64::from(v.abs())).sum();
                let scale = if sum > 0.0 { 1.0 / sum } else { 1.0 };
                out.iter_mut().zip(row).for_each(|(o, &v)| *o = (f64::from(v) * scale) as f32);
            });
            values = &self.scaled;
        }
        let bad = match bad {
            Some(bad) => Some(bad),
            None => self.rows.write(values)?,
        };
        let Some(i) = bad else { return Ok(()) };
        let element = self.rows.written + i as u64;
        let (node, column, dtype) = (element / dim as u64, element % dim as u64, self.rows.dtype());
        let (what, cure) = if values[i].is_finite() {
            (format!("{}, which {dtype} cannot hold", values[i]), "choose the feature type f32")
        } else {
            (format!("{}, not a finite number", values[i]), "clean the data")
        };
        let what = format!("the feature of node {node}, column {column} is {what}");
        Err(Error::invalid(&self.source, Position::Element(element), what, cure))
    }

    /// Ends the features.
    ///
    /// # Errors
    ///
    /// What the disk refuses.
    pub fn finish(self) -> Result<()> {
        let num_rows = self.rows.written / self.rows.dim as u64;
        let meta = self.rows.finish()?;
        self.ingest.add_features(&self.source, num_rows, meta);
        Ok(())
    }
}

/// Writes random features for `num_nodes` nodes.
pub(crate) fn random(ingest: &Ingest<'_>, num_nodes: u64, wanted: &RandomFeatures) -> Result<ArrayMeta> {
    const BLOCK: u64 = 1 << 20;
    let mut rows = Rows::create(ingest, wanted.dim, wanted.dtype)?;
    let total = num_nodes * wanted.dim as u64;
    ingest.progress().stage("random features", Some(total));
    for start in (0..total).step_by(BLOCK as usize) {
        let range = start..total.min(start + BLOCK);
        let len = range.end - range.start;
        let values: Vec<f32> = match wanted.dtype {
            Dtype::U8 => range.into_par_iter().map(|i| (random::hash(wanted.seed, i) >> 56) as f32).collect(),
            _ => range.into_par_iter().map(|i| random::normal(wanted.seed, i)).collect(),
        };
        let bad = rows.write(&values)?;
        assert_eq!(bad, None, "every random value fits every feature type");
        ingest.progress().advance(len);
    }
    rows.finish()
}

/// A feature matrix being written in its stored type.
#[derive(Debug)]
struct Rows {
    dim: usize,
    written: u64,
    out: Out,
}

#[derive(Debug)]
enum Out {
    F32(NpyWriter<f32>),
    F16(NpyWriter<f16>, Vec<f16>),
    Bf16(NpyWriter<bf16>, Vec<bf16>),
    U8(NpyWriter<u8>, Vec<u8>),
}

impl Rows {
    fn create(ingest: &Ingest<'_>, dim: usize, dtype: Dtype) -> Result<Self> {
        let writer = &ingest.writer;
        let out = match dtype {
            Dtype::F16 => Out::F16(writer.stream("features")?, Vec::new()),
            Dtype::Bf16 => Out::Bf16(writer.stream("features")?, Vec::new()),
            Dtype::U8 => Out::U8(writer.stream("features")?, Vec::new()),
            _ => Out::F32(writer.stream("features")?),
        };
        Ok(Self { dim, written: 0, out })
    }

    fn dtype(&self) -> Dtype {
        match self.out {
            Out::F32(_) => Dtype::F32,
            Out::F16(..) => Dtype::F16,
            Out::Bf16(..) => Dtype::Bf16,
            Out::U8(..) => Dtype::U8,
        }
    }

    /// Appends values; the position of the first that the type cannot hold, and nothing written, if there is one.
    fn write(&mut self, values: &[f32]) -> Result<Option<usize>> {
        let bad = match &mut self.out {
            Out::F32(out) => {
                out.write(values)?;
                None
            }
            Out::F16(out, buffer) => narrow(out, buffer, values, |v| Some(f16::from_f32(v)).filter(|h| h.is_finite()))?,
            Out::Bf16(out, buffer) => {
                narrow(out, buffer, values, |v| Some(bf16::from_f32(v)).filter(|h| h.is_finite()))?
            }
            Out::U8(out, buffer) => narrow(out, buffer, values, |v| (f32::from(v as u8) == v).then_some(v as u8))?,
        };
        if bad.is_none() {
            self.written += values.len() as u64;
        }
        Ok(bad)
    }

    fn finish(self) -> Result<ArrayMeta> {
        let dim = Some(self.dim);
        match self.out {
            Out::F32(out) => out.finish(dim),
            Out::F16(out, _) => out.finish(dim),
            Out::Bf16(out, _) => out.finish(dim),
            Out::U8(out, _) => out.finish(dim),
        }
    }
}

fn narrow<T: Element>(
    out: &mut NpyWriter<T>,
    buffer: &mut Vec<T>,
    values: &[f32],
    convert: impl Fn(f32) -> Option<T> + Sync,
) -> Result<Option<usize>> {
    const CHUNK: usize = 1 << 14;
    buffer.resize(values.len(), T::zeroed());
    let one = |(i, (to, from)): (usize, (&mut [T], &[f32]))| {
        to.iter_mut().zip(from).enumerate().find_map(|(j, (t, &v))| match convert(v) {
            Some(value) => {
                *t = value;
                None
            }
            None => Some(i * CHUNK + j),
        })
    };
    let bad = buffer.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).enumerate().filter_map(one).min();
    if bad.is_none() {
        out.write(buffer)?;
    }
    Ok(bad)
}
