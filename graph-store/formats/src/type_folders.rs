//! Directories with a folder of `.npy` files per node type and per edge type, as MAG240M and IGB have them.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result, Types};

use crate::Column;
use crate::files::{file_name, invalid};
use crate::typed::{ArrayForm, EdgeRows, EdgeTable, End, Features, TypeOf, quoted};

/// File of the edges of a type.
const EDGES: &str = "edge_index.npy";

/// The folders of a directory, `TYPE` and `SOURCE__NAME__TARGET`, by their names in ascending order.
#[derive(Debug)]
pub(crate) struct TypeFolders {
    pub(crate) dir: PathBuf,
    /// Names of node types.
    pub(crate) nodes: Vec<String>,
    /// Source, name and target of edge types, and their folders.
    pub(crate) edges: Vec<([String; 3], PathBuf)>,
}

impl TypeFolders {
    /// Reads the names of the folders in `dir`; `separator` stands between the parts of that of an edge type.
    ///
    /// # Errors
    ///
    /// No folder of an edge type; a folder whose name is of neither form.
    pub(crate) fn read(dir: &Path, separator: &str) -> Result<Self> {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir).map_err(|e| Error::io(dir, e))? {
            paths.push(entry.map_err(|e| Error::io(dir, e))?.path());
        }
        paths.retain(|path| path.is_dir());
        paths.sort();
        for path in paths {
            let name = file_name(&path);
            let parts: Vec<&str> = name.split(separator).collect();
            if let Some(long) = parts.iter().find(|part| part.len() > Types::MAX_NAME) {
                let what = format!("the name {} has more than {} bytes", quoted(long), Types::MAX_NAME);
                return invalid(path, what, "shorten it");
            }
            match parts[..] {
                [node_type] if !node_type.contains(':') => nodes.push(node_type.to_string()),
                [source, of, target] if parts.iter().all(|part| !part.is_empty()) => {
                    edges.push(([source, of, target].map(String::from), path));
                }
                _ => {
                    let cure = format!("name it TYPE or SOURCE{separator}NAME{separator}TARGET, or remove it");
                    return invalid(path, "a folder that is neither of a node type nor of an edge type", cure);
                }
            }
        }
        if edges.is_empty() {
            let what = format!("there is no folder of an edge type, such as paper{separator}cites{separator}paper");
            return invalid(dir, what, "name the directory of the whole set");
        }
        Ok(Self { dir: dir.into(), nodes, edges })
    }

    /// A file of a node type, where it is there.
    pub(crate) fn file(&self, node_type: &str, name: &str) -> Option<PathBuf> {
        Some(self.dir.join(node_type).join(name)).filter(|path| path.exists())
    }

    /// The edges between these node types, whose arrays have this form.
    ///
    /// # Errors
    ///
    /// An edge type between other node types.
    pub(crate) fn edge_tables(&self, node_types: &[String], form: ArrayForm) -> Result<Vec<EdgeTable>> {
        let table = |([source, name, target], folder): &([String; 3], PathBuf)| {
            let end = |of: &String, number| match node_types.iter().position(|name| name == of) {
                Some(space) => Ok(End { space, column: Column::Number(number) }),
                None => {
                    let known = node_types.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
                    let what = format!("there is no node type {}: there are {known}", quoted(of));
                    invalid(folder, what, "correct the folder's name, or add the files of the type")
                }
            };
            Ok(EdgeTable {
                rows: EdgeRows::Array(folder.join(EDGES), form),
                of: TypeOf::Fixed(name.clone()),
                source: end(source, 1)?,
                target: end(target, 2)?,
                weight: None,
                time: None,
                features: Features::None,
                reverse: None,
                links: false,
                split: None,
            })
        };
        self.edges.iter().map(table).collect()
    }

    /// Files of all folders but those whose name is one of `known`, `FOLDER/FILE`.
    pub(crate) fn unread(&self, known: &[&str]) -> Result<Vec<String>> {
        let mut unread = Vec::new();
        let of_nodes = self.nodes.iter().map(|name| self.dir.join(name));
        for folder in of_nodes.chain(self.edges.iter().map(|(_, folder)| folder.clone())) {
            for entry in fs::read_dir(&folder).map_err(|e| Error::io(&folder, e))? {
                let name = entry.map_err(|e| Error::io(&folder, e))?.file_name().to_string_lossy().into_owned();
                if name != EDGES && !known.contains(&&*name) {
                    unread.push(format!("{}/{name}", file_name(&folder)));
                }
            }
        }
        unread.sort();
        Ok(unread)
    }
}
