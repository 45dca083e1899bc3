//! Hotness in files.

use std::fs;
use std::path::Path;

use morphgl_graph_store::{Error, Load, NpyWriter, Position, Result, read_npy};

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
        let Some(name) = path.file_name() else {
            let what = "the path names no file";
            return Err(Error::invalid(path, Position::File, what, "give a path such as hotness.npy"));
        };
        if self.features.is_empty() {
            let cure = "score a graph that has nodes";
            return Err(Error::invalid(path, Position::File, "there are no scores to save", cure));
        }
        // Ignored by git and recognised as incomplete, like those of datasets.
        let mut partial = name.to_os_string();
        partial.push(format!(".partial-{}", std::process::id()));
        let partial = path.with_file_name(partial);
        let write = || {
            let mut writer = NpyWriter::<f32>::create(&partial)?;
            writer.write(&self.features)?;
            writer.write(&self.rows)?;
            writer.finish(Some(self.features.len()))?;
            fs::rename(&partial, path).map_err(|e| Error::io(path, e))
        };
        write().inspect_err(|_| {
            // Best effort: the error that is reported is the one of writing.
            let _ = fs::remove_file(&partial);
        })
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
