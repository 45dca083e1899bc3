//! Dense feature matrices of an archive, streamed.

use morphgl_graph_store::{Dtype, Error, Position, Result};

use crate::Ingest;
use crate::archive::{Archive, Member};
use crate::elements::Kind;
use crate::ingest::features::BATCH_VALUES;

/// How the type of stored features is found, where the options name none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The source's own type.
    Source,
    /// u8 where every value is a whole number of at most 255, which takes a pass over the values.
    Exact,
}

/// Whether u8 holds `value` exactly.
pub(crate) fn is_small_integer(value: f32) -> bool {
    (0.0..=255.0).contains(&value) && value.fract() == 0.0
}

/// Streams the matrix `name` of `archive` as the features of `num_nodes` nodes.
pub(crate) fn push_matrix(
    ingest: &mut Ingest<'_>,
    archive: &mut Archive,
    name: &str,
    num_nodes: u64,
    choice: Choice,
) -> Result<()> {
    let mut member = archive.member(name)?;
    let path = member.path.clone();
    let (&[rows, dim], false) = (member.shape.as_slice(), member.fortran) else {
        let what = format!("features of shape {:?}, expected a matrix in C order", member.shape);
        return Err(Error::invalid(&path, Position::File, what, "save it with numpy.ascontiguousarray"));
    };
    if rows != num_nodes {
        let what = format!("{rows} feature rows for {num_nodes} nodes");
        return Err(Error::invalid(
            &path,
            Position::File,
            what,
            "the files do not belong together: download them again",
        ));
    }
    let stored = match (member.ty.kind, member.ty.size) {
        (Kind::Uint, 1) | (Kind::Bool, _) => Dtype::U8,
        (Kind::Float, 2) => Dtype::F16,
        _ if choice == Choice::Exact && ingest.options().feature_dtype.is_none() => exact(&mut member)?,
        _ => Dtype::F32,
    };
    drop(member);
    let dim = usize::try_from(dim).unwrap_or(usize::MAX);
    if dim == 0 || dim > 1 << 24 {
        return Err(Error::invalid(&path, Position::File, format!("{dim} features a node"), "download the file again"));
    }
    let mut member = archive.member(name)?;
    ingest.progress().stage("features", Some(rows));
    let progress = ingest.progress();
    let mut sink = ingest.features(&path, dim, stored)?;
    let step = (BATCH_VALUES / dim).max(1) as u64;
    let mut values = vec![];
    let mut row = 0;
    while member.remaining() > 0 {
        values.clear();
        member.floats(step * dim as u64, &mut values)?;
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            let what = format!("feature {} of node {} is {}", i % dim, row + (i / dim) as u64, values[i]);
            return Err(Error::invalid(
                &path,
                Position::Element(row * dim as u64 + i as u64),
                what,
                "only finite features are stored: replace it",
            ));
        }
        sink.push(&values)?;
        row += (values.len() / dim) as u64;
        progress.advance((values.len() / dim) as u64);
    }
    sink.finish()
}

/// The smallest type that holds every value.
fn exact(member: &mut Member<'_>) -> Result<Dtype> {
    let mut values = vec![];
    while member.remaining() > 0 {
        values.clear();
        member.floats(BATCH_VALUES as u64, &mut values)?;
        if !values.iter().all(|&v| is_small_integer(v)) {
            return Ok(Dtype::F32);
        }
    }
    Ok(Dtype::U8)
}
