//! Fitting a model to a dataset by the names of features and classes.
//!
//! The model changes, not the data: the first layer's weights take the order of the dataset's columns, the last layer's outputs
//! that of its classes. So it holds for datasets in memory, mapped and on disk, and on every device.

use std::collections::BTreeMap;

use morphgl_graph_store::Schema;
use morphgl_platform::excerpt;
use morphgl_registry::{Error, NamedTensor, Result};

use crate::{ModelKind, ModelSpec};

/// Names that a message lists.
const LISTED: usize = 3;

/// How a model is used on a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fitting {
    /// The model's column for each column of the dataset, `None` for a column that the model does not know; `None` where they
    /// are the same.
    columns: Option<Vec<Option<usize>>>,
    /// The model's class for each output: the dataset's classes first. `None` where they are the same.
    classes: Option<Vec<usize>>,
    /// Names of the outputs, where the model's classes have names.
    pub class_names: Option<Vec<String>>,
    /// Classes of the dataset that the model does not know; its own keep their numbers then.
    pub unknown_classes: Vec<String>,
    /// What was matched otherwise than by position, a line each.
    pub remarks: Vec<String>,
}

impl Fitting {
    /// Matches a model of `spec` with a dataset of `num_classes` classes. Where one of the two has no names, position decides,
    /// but for classes that are named by numbers.
    ///
    /// # Errors
    ///
    /// A feature of the model that the dataset lacks; features that were normalised otherwise.
    pub fn new(spec: &ModelSpec, model: &Schema, dataset: &Schema, num_classes: usize) -> Result<Self> {
        let mut fitting = Self { class_names: model.classes.clone(), ..Self::default() };
        if let (Some(model), Some(dataset)) = (&model.normalization, &dataset.normalization)
            && model != dataset
        {
            return Err(wrong(other_normalization(model, dataset)));
        }
        if let (Some(model), Some(dataset)) = (&model.features, &dataset.features) {
            fitting.match_features(model, dataset)?;
        }
        fitting.match_classes(spec, model.classes.as_deref(), dataset.classes.as_deref(), num_classes);
        Ok(fitting)
    }

    fn match_features(&mut self, model: &[String], dataset: &[String]) -> Result<()> {
        let known = positions(dataset);
        let missing: Vec<&String> = model.iter().filter(|name| !known.contains_key(name.as_str())).collect();
        if !missing.is_empty() {
            let what = format!("it has no feature {}, which the model reads", list(&missing));
            return Err(wrong(format!("{what}; give the columns these names and import it again")));
        }
        let known = positions(model);
        let columns: Vec<Option<usize>> = dataset.iter().map(|name| known.get(name.as_str()).copied()).collect();
        let added: Vec<&String> = dataset.iter().filter(|name| !known.contains_key(name.as_str())).collect();
        if columns.iter().flatten().is_sorted() {
            if added.is_empty() {
                return Ok(());
            }
        } else {
            self.remarks.push("features are matched by name: the dataset's columns are in another order".to_string());
        }
        if !added.is_empty() {
            self.remarks.push(format!("features that the model does not know are left out: {}", list(&added)));
        }
        self.columns = Some(columns);
        Ok(())
    }

    fn match_classes(
        &mut self,
        spec: &ModelSpec,
        model: Option<&[String]>,
        dataset: Option<&[String]>,
        num_classes: usize,
    ) {
        if num_classes == 0 || (model.is_none() && dataset.is_none()) {
            return;
        }
        let numbers = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        let by_name = model.is_some() && dataset.is_some();
        let (model, dataset) = (
            model.map_or_else(|| numbers(spec.num_classes), <[String]>::to_vec),
            dataset.map_or_else(|| numbers(num_classes), <[String]>::to_vec),
        );
        let known = positions(&model);
        let unknown: Vec<&String> = dataset.iter().filter(|name| !known.contains_key(name.as_str())).collect();
        if !unknown.is_empty() {
            if by_name {
                self.unknown_classes = unknown.into_iter().cloned().collect();
            } else {
                let remark = "classes are matched by number: the dataset and the model do not both have their names";
                self.remarks.push(remark.to_string());
            }
            return;
        }
        let mut classes: Vec<usize> = dataset.iter().map(|name| known[name.as_str()]).collect();
        let ours = positions(&dataset);
        classes.extend((0..model.len()).filter(|&class| !ours.contains_key(model[class].as_str())));
        if classes.is_sorted() {
            return;
        }
        self.remarks.push("classes are matched by name: the dataset numbers them otherwise than the model".to_string());
        self.class_names = self.class_names.take().map(|names| classes.iter().map(|&c| names[c].clone()).collect());
        self.classes = Some(classes);
    }

    /// Whether the model needs other parameters for the dataset.
    pub fn changes_model(&self) -> bool {
        self.columns.is_some() || self.classes.is_some()
    }

    /// Whether the model has the dataset's features and classes, and no other features, if in another order.
    pub fn is_permutation(&self) -> bool {
        let columns = self.columns.as_ref().is_none_or(|columns| columns.iter().all(Option::is_some));
        columns && self.unknown_classes.is_empty()
    }

    /// The model for the dataset: one of its columns, whose first outputs are its classes in its order. Weights of columns that
    /// the model does not know are 0.
    ///
    /// # Errors
    ///
    /// A custom model or one of another crate, whose parameters have no known meaning, that would have to change.
    pub fn apply(&self, spec: &ModelSpec, mut parameters: Vec<NamedTensor>) -> Result<(ModelSpec, Vec<NamedTensor>)> {
        if !self.changes_model() {
            return Ok((spec.clone(), parameters));
        }
        if spec.has_edge_types() || !spec.input_widths.is_empty() {
            let what = "the dataset has features or classes in another order than the typed model; \
                        import it with the columns and classes that the model was trained on";
            return Err(wrong(what.to_string()));
        }
        if matches!(spec.kind, ModelKind::Custom | ModelKind::Submitted(_)) {
            let what = "the dataset has features or classes in another order than the model, whose parameters only its own code \
                        can read; import the dataset with the columns and classes that the model was trained on";
            return Err(wrong(what.to_string()));
        }
        if spec.kind == ModelKind::Embedding {
            let what = "the dataset has features in another order than the model, whose decoder reads them as they are; \
                        import it with the columns that the model was trained on";
            return Err(wrong(what.to_string()));
        }
        let described = spec.parameters();
        for tensor in &mut parameters {
            let Some(layer) = described.iter().find(|p| p.name == tensor.name).map(|p| p.layer) else { continue };
            // GIN has two linear maps per layer: the first one reads features, the second one has the outputs.
            let (reads, ends) = (!tensor.name.contains(".nn.lins.1."), !tensor.name.contains(".nn.lins.0."));
            if let (Some(columns), 0, true, &[rows, dim]) = (&self.columns, layer, reads, &tensor.shape[..]) {
                let value = |row: usize, column: Option<usize>| column.map_or(0.0, |c| tensor.values[row * dim + c]);
                let rows = (0..rows).flat_map(|row| columns.iter().map(move |&column| (row, column)));
                let values = rows.map(|(row, column)| value(row, column)).collect();
                (tensor.shape[1], tensor.values) = (columns.len(), values);
            }
            let ends = ends && layer + 1 == spec.layers && !tensor.name.ends_with(".eps");
            if let (Some(classes), true) = (&self.classes, ends) {
                // Weights `[heads * classes, in]`, biases `[classes]` and attention `[1, heads, classes]` alike.
                let width = if tensor.shape.len() == 2 { tensor.shape[1] } else { 1 };
                let values = tensor.values.chunks_exact(classes.len() * width).flat_map(|head| {
                    classes.iter().flat_map(move |&class| &head[class * width..(class + 1) * width]).copied()
                });
                tensor.values = values.collect();
            }
        }
        let in_dim = self.columns.as_ref().map_or(spec.in_dim, Vec::len);
        Ok((ModelSpec { in_dim, ..spec.clone() }, parameters))
    }
}

fn positions(names: &[String]) -> BTreeMap<&str, usize> {
    names.iter().map(String::as_str).zip(0..).collect()
}

fn wrong(what: String) -> Error {
    Error::setting("dataset", what)
}

/// Names in quotes, the first of many.
fn list(names: &[&String]) -> String {
    let some = names.iter().take(LISTED).map(|name| format!("{:?}", excerpt(name, 60))).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED { format!("{some} and {} more", names.len() - LISTED) } else { some }
}

fn other_normalization(model: &str, dataset: &str) -> String {
    let words = |how: &str| match how {
        Schema::AS_IS => "as they are in the source".to_string(),
        Schema::ROWS => "normalised by rows".to_string(),
        other if other.starts_with(Schema::STANDARDISED) => other.to_string(),
        other => format!("normalised as {other}"),
    };
    let cure = match model {
        Schema::AS_IS => "without --normalize-features and --standardise".to_string(),
        Schema::ROWS => "with --normalize-features".to_string(),
        other if other.starts_with(Schema::STANDARDISED) => {
            "with --standardise=DATASET, the dataset that the model was trained on".to_string()
        }
        other => format!("with --normalize-features {other}"),
    };
    let (trained, found) = (words(model), words(dataset));
    format!("its features are {found}, those that the model was trained on {trained}; import it again {cure}")
}
