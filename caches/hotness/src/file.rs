//! Hotness in files.

use std::path::Path;

use morphgl_graph_store::{Error, Load, NpyWriter, Position, Result, read_npy};
use morphgl_platform::Replacement;

use crate::Hotness;

impl Hotness {
    /// Saves the scores as a `.npy` file, f32 of shape `[2, num_nodes]`: row 0 those of features, row 1 those of rows. The
    /// file is written beside `path` and renamed when it is complete; an older one is replaced.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or there are no nodes.
    ///
    /// # Panics
    ///
    /// When there are not as many scores of features as of rows.
    pub fn save(&self, path: &Path) -> Result<()> {
        assert_eq!(self.features.len(), self.rows.len(), "scores of features and of rows");
        if self.features.is_empty() {
            let cure = "score a graph that has nodes";
            return Err(Error::invalid(path, Position::File, "there are no scores to save", cure));
        }
        let io = |e| Error::io(path, e);
        let replacement = Replacement::new(path).map_err(io)?;
        let mut writer = NpyWriter::<f32>::of(path, replacement.create().map_err(io)?)?;
        writer.write(&self.features)?;
        writer.write(&self.rows)?;
        writer.finish(Some(self.features.len()))?;
        replacement.finish().map_err(io)
    }

    /// Loads the scores of a graph of `num_nodes` nodes, as [`Hotness::save`] or numpy saved them.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, another element type than f32, another shape than `[2, num_nodes]`, or NaN.
    pub fn load(path: &Path, num_nodes: usize) -> Result<Self> {
        let (scores, shape) = read_npy::<f32>(path, Load::Ram)?;
        if shape != [2, num_nodes as u64] {
            let what = format!("the shape is {shape:?}, and hotness of {num_nodes} nodes has [2, {num_nodes}]");
            return Err(Error::invalid(path, Position::Byte(0), what, "score this graph again, or give its own file"));
        }
        if let Some(at) = scores.iter().position(|score| score.is_nan()) {
            let at = Position::Element(at as u64);
            return Err(Error::invalid(path, at, "the score is NaN", "score the graph again"));
        }
        let (features, rows) = scores.split_at(num_nodes);
        Ok(Self { features: features.into(), rows: rows.into() })
    }
}
