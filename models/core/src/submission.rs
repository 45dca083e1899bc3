//! Models, losses and scores that crates submit, beside those of this crate.

use std::fmt;
use std::hash::{Hash, Hasher};

use morphgl_registry::{Error, ErrorKind, OptionSpec, Result, check_options};
use serde_json::{Map, Value};

use crate::{LayerShape, ParameterList, Predicted};

/// Names of the models, losses and scores of this crate.
const OWN_MODELS: [&str; 6] = ["gcn", "sage", "gat", "gin", "mlp", "custom"];
pub(crate) const OWN_LOSSES: [&str; 7] = ["cross-entropy", "bce", "mse", "mae", "huber", "bpr", "margin"];
pub(crate) const OWN_SCORES: [&str; 12] = [
    "accuracy",
    "loss",
    "balanced-accuracy",
    "macro-f1",
    "micro-f1",
    "roc-auc",
    "average-precision",
    "mae",
    "rmse",
    "r2",
    "mrr",
    "filtered-mrr",
];

/// Settings of a model or a loss: those that are declared, and the values of those that are given.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub(crate) specs: &'static [OptionSpec],
    pub(crate) given: &'a Map<String, Value>,
}

impl Settings<'_> {
    /// The value of a setting, or its default.
    ///
    /// # Panics
    ///
    /// When no setting of this name is declared, or its default is not of its type.
    pub fn value(&self, name: &str) -> Value {
        self.given.get(name).cloned().unwrap_or_else(|| {
            let spec = self.specs.iter().find(|spec| spec.name == name);
            let spec = spec.unwrap_or_else(|| panic!("a setting named {name} is not declared"));
            let default = serde_json::from_str(spec.default).unwrap_or_else(|_| spec.default.into());
            assert!(spec.takes(&default), "the default of {name} is {}, expected {}", spec.default, spec.kind);
            default
        })
    }

    /// The value of a setting of type Number or Count.
    ///
    /// # Panics
    ///
    /// As [`Settings::value`], and when the setting is of another type.
    pub fn number(&self, name: &str) -> f64 {
        self.value(name).as_f64().unwrap_or_else(|| panic!("the setting {name} is not a number"))
    }

    /// The value of a setting of type Choice or Text.
    ///
    /// # Panics
    ///
    /// As [`Settings::value`], and when the setting is of another type.
    pub fn word(&self, name: &str) -> String {
        self.value(name).as_str().unwrap_or_else(|| panic!("the setting {name} is not a word")).to_string()
    }

    /// Checks names and types; `field` is the context of errors.
    pub(crate) fn check(&self, field: &str) -> Result<()> {
        if self.given.is_empty() {
            return Ok(());
        }
        check_options(&field, self.specs, &Value::Object(self.given.clone()))
    }
}

/// Refuses values of settings in one sentence; names and types were checked before.
pub type CheckSettings = fn(Settings<'_>) -> std::result::Result<(), String>;

/// A model of a crate: its name, settings and parameters. Its layers are submitted with it, for the operators that compute them:
/// over burn by `submit_model!` of `morphgl-layers`.
#[derive(Clone, Copy)]
pub struct ModelDescription {
    /// The name that `--model` takes: lower-case ASCII letters, digits and `-`.
    pub name: &'static str,
    /// What it is, in one line without a full stop.
    pub summary: &'static str,
    /// Its settings; the default of each is a value.
    pub settings: &'static [OptionSpec],
    /// Appends the parameters of a layer of these widths.
    pub parameters: fn(Settings<'_>, LayerShape, &mut ParameterList),
    /// Refuses values of the settings.
    pub check: CheckSettings,
}

/// A loss of a crate: its name and settings. Its function is submitted with it, over burn by `submit_loss!` of `morphgl-layers`.
#[derive(Clone, Copy)]
pub struct LossDescription {
    /// The name that `--loss` takes: lower-case ASCII letters, digits and `-`.
    pub name: &'static str,
    /// What it is, in one line without a full stop.
    pub summary: &'static str,
    /// Its settings; the default of each is a value.
    pub settings: &'static [OptionSpec],
    /// Refuses values of the settings.
    pub check: CheckSettings,
}

/// A score of a crate: its name and its function. [`submit_score!`](crate::submit_score) submits it.
#[derive(Clone, Copy)]
pub struct ScoreDescription {
    /// The name that `--score` takes: lower-case ASCII letters, digits and `-`.
    pub name: &'static str,
    /// What it is, in one line without a full stop.
    pub summary: &'static str,
    /// Whether the highest value is the best one.
    pub highest_is_best: bool,
    /// Its value of the labelled nodes of a set; NaN where it is not defined.
    pub value: fn(&Predicted<'_>) -> f64,
}

impl ModelDescription {
    /// A model without settings.
    ///
    /// # Panics
    ///
    /// When the name has other characters or is one of MorphGL's own, which is seen when the crate is compiled.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        parameters: fn(Settings<'_>, LayerShape, &mut ParameterList),
    ) -> Self {
        check_name(name, &OWN_MODELS);
        Self { name, summary, settings: &[], parameters, check: |_| Ok(()) }
    }

    /// The same model with settings, and a check of their values.
    pub const fn with_settings(mut self, settings: &'static [OptionSpec], check: CheckSettings) -> Self {
        (self.settings, self.check) = (settings, check);
        self
    }

    /// The models of all linked crates, by name.
    ///
    /// # Panics
    ///
    /// When two crates submit the same name.
    pub fn linked() -> Vec<&'static ModelDescription> {
        by_name("model", inventory::iter::<ModelDescription>.into_iter().map(|model| (model.name, model)))
    }
}

impl LossDescription {
    /// A loss without settings.
    ///
    /// # Panics
    ///
    /// When the name has other characters or is one of MorphGL's own, which is seen when the crate is compiled.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        check_name(name, &OWN_LOSSES);
        Self { name, summary, settings: &[], check: |_| Ok(()) }
    }

    /// The same loss with settings, and a check of their values.
    pub const fn with_settings(mut self, settings: &'static [OptionSpec], check: CheckSettings) -> Self {
        (self.settings, self.check) = (settings, check);
        self
    }

    /// The losses of all linked crates, by name.
    ///
    /// # Panics
    ///
    /// When two crates submit the same name.
    pub fn linked() -> Vec<&'static LossDescription> {
        by_name("loss", inventory::iter::<LossDescription>.into_iter().map(|loss| (loss.name, loss)))
    }
}

impl ScoreDescription {
    /// A score of which the highest value is the best.
    ///
    /// # Panics
    ///
    /// When the name has other characters or is one of MorphGL's own, which is seen when the crate is compiled.
    pub const fn new(name: &'static str, summary: &'static str, value: fn(&Predicted<'_>) -> f64) -> Self {
        check_name(name, &OWN_SCORES);
        Self { name, summary, highest_is_best: true, value }
    }

    /// The same score, of which the lowest value is the best.
    pub const fn lowest_is_best(mut self) -> Self {
        self.highest_is_best = false;
        self
    }

    /// The scores of all linked crates, by name.
    ///
    /// # Panics
    ///
    /// When two crates submit the same name.
    pub fn linked() -> Vec<&'static ScoreDescription> {
        by_name("score", inventory::iter::<ScoreDescription>.into_iter().map(|score| (score.name, score)))
    }
}

inventory::collect!(ModelDescription);
inventory::collect!(LossDescription);
inventory::collect!(ScoreDescription);

/// Registers a score, a constant of type [`ScoreDescription`], in each program that links the crate.
#[macro_export]
macro_rules! submit_score {
    ($score:expr) => {
        $crate::__inventory::submit! { $score }
    };
}

/// Refuses an empty name, other characters, and names that are taken.
const fn check_name(name: &str, taken: &[&str]) {
    let (bytes, mut i) = (name.as_bytes(), 0);
    while i < bytes.len() {
        let allowed = bytes[i].is_ascii_lowercase() || bytes[i].is_ascii_digit() || bytes[i] == b'-';
        assert!(allowed, "a name has lower-case ASCII letters, digits and -");
        i += 1;
    }
    assert!(!bytes.is_empty(), "a name is not empty");
    let mut t = 0;
    while t < taken.len() {
        assert!(!equal(bytes, taken[t].as_bytes()), "the name is one of MorphGL's own");
        t += 1;
    }
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Submissions in the order of their names, which are unique.
fn by_name<T>(what: &str, submitted: impl Iterator<Item = (&'static str, T)>) -> Vec<T> {
    let mut all: Vec<_> = submitted.collect();
    all.sort_by_key(|(name, _)| *name);
    let twice = all.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[0].0);
    assert!(twice.is_none(), "two linked crates submit the {what} {twice:?}; link one of them");
    all.into_iter().map(|(_, submission)| submission).collect()
}

/// The error for a name that is none of `names`.
pub(crate) fn unknown(name: &str, what: &str, names: impl IntoIterator<Item = String>) -> Error {
    let names: Vec<String> = names.into_iter().collect();
    Error::new(format!("{name:?}"), ErrorKind::Parse(format!("not a {what}; use one of {}", names.join(", "))))
}

macro_rules! identified_by_name {
    ($($description:ident),+) => {$(
        impl fmt::Debug for $description {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($description), "({})"), self.name)
            }
        }
        impl PartialEq for $description {
            fn eq(&self, other: &Self) -> bool {
                self.name == other.name
            }
        }
        impl Eq for $description {}
        impl Hash for $description {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.name.hash(state);
            }
        }
    )+};
}

identified_by_name!(ModelDescription, LossDescription, ScoreDescription);
