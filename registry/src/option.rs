//! Options of one operator: declared as constants, checked before the operator is built.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Result};

/// Type of an option's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionType {
    /// `true` or `false`.
    Bool,
    /// A whole number from 0.
    Count,
    /// A whole number from 0, or `auto`.
    AutoOrCount,
    /// A finite number.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A word, or a list of places such as `["cuda:1"]`.
    Places,
    /// Text, or a table of settings by name.
    Settings,
    /// Text in a form of the operator's own, which its help names.
    Text,
}

/// The source of an option that the user does not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptionRole {
    /// The operator's default.
    #[default]
    Setting,
    /// The operator's part of the host memory budget, in bytes; its default where there is no budget.
    HostBudget,
    /// The operator's part of the device memory budget, in bytes; its default where there is no budget.
    DeviceBudget,
    /// What all caches of a run are filled by (`--cache`), by the names of `morphgl-hotness`; its default where that is `auto`.
    CachePolicy,
    /// The limit of all caches of a run (`--cache POLICY:SIZE`), in bytes; its default where there is none.
    CacheBytes,
    /// The machine description that the run is simulated on (`--machine`), as a JSON object; the option's default in other runs.
    Machine,
}

/// One option of an operator, as `morphgl ops --options` lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSpec {
    /// Its name: lower-case ASCII letters, digits and `_`.
    pub name: &'static str,
    /// Type of its values.
    pub kind: OptionType,
    /// Unit of its values, such as `bytes`; empty without one.
    pub unit: &'static str,
    /// Its default: a value, or a few words on how the operator finds one.
    pub default: &'static str,
    /// One line of help, without a full stop.
    pub help: &'static str,
    /// Its source where the user does not set it.
    pub role: OptionRole,
    /// The default for mini-batches that are made once, as for evaluation, where preparation over several epochs does not pay;
    /// `None` where it makes no difference.
    pub single_pass: Option<&'static str>,
    /// Values that the operator takes on any graph, as `--set` has them: the suites set them, beside those that
    /// [`OptionSpec::tried`] finds by the type.
    pub examples: &'static [&'static str],
}

impl OptionSpec {
    /// An option without a unit that only the user sets.
    pub const fn new(name: &'static str, kind: OptionType, default: &'static str, help: &'static str) -> Self {
        Self { name, kind, unit: "", default, help, role: OptionRole::Setting, single_pass: None, examples: &[] }
    }

    /// The same option with values of this unit.
    pub const fn in_unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// The same option, in bytes and set by the budget of this role where the user does not set it.
    pub const fn of_budget(mut self, role: OptionRole) -> Self {
        self.role = role;
        self.in_unit("bytes")
    }

    /// The same option, set by the run's cache policy where the user does not set it.
    pub const fn of_cache_policy(mut self) -> Self {
        self.role = OptionRole::CachePolicy;
        self
    }

    /// The same option, set by the machine that the run is simulated on.
    pub const fn of_machine(mut self) -> Self {
        self.role = OptionRole::Machine;
        self
    }

    /// The same option with another default for mini-batches that are made once.
    pub const fn for_single_pass(mut self, value: &'static str) -> Self {
        self.single_pass = Some(value);
        self
    }

    /// The same option with values that the suites set, as `--set` has them. An option of type Count, Number, Places, Settings or
    /// Text whose default is no value needs one.
    pub const fn such_as(mut self, examples: &'static [&'static str]) -> Self {
        self.examples = examples;
        self
    }

    /// The values that a suite sets: the default where it is a value, the examples, and all values of types that have few.
    pub fn tried(&self) -> Vec<Value> {
        let all: &[&str] = match self.kind {
            OptionType::Bool => &["false", "true"],
            OptionType::Choice(words) => words,
            _ => &[],
        };
        let mut values: Vec<Value> = Vec::new();
        for text in [self.default].iter().chain(self.examples).chain(all) {
            if let Some(value) = self.read(text).filter(|value| !values.contains(value)) {
                values.push(value);
            }
        }
        values
    }

    /// The default where it is a value; `None` where it is in words.
    pub fn default_value(&self) -> Option<Value> {
        self.read(self.default)
    }

    /// The value that a text is, as `--set` reads it; `None` where it is of another type.
    fn read(&self, text: &str) -> Option<Value> {
        let value = serde_json::from_str(text).ok().filter(|value| self.takes(value));
        Some(value.unwrap_or_else(|| Value::from(text))).filter(|value| self.takes(value))
    }

    /// Whether `value` is of the option's type; its range is for the operator to check.
    pub fn takes(&self, value: &Value) -> bool {
        match self.kind {
            OptionType::Bool => value.is_boolean(),
            OptionType::Count => value.is_u64(),
            OptionType::AutoOrCount => value.is_u64() || value == "auto",
            OptionType::Number => value.is_number(),
            OptionType::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            OptionType::Places => value.is_string() || value.as_array().is_some_and(|a| a.iter().all(Value::is_string)),
            OptionType::Settings => value.is_string() || value.is_object(),
            OptionType::Text => value.is_string(),
        }
    }
}

impl fmt::Display for OptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OptionType::Bool => "true or false",
            OptionType::Count => "whole number",
            OptionType::AutoOrCount => "auto or a whole number",
            OptionType::Number => "number",
            OptionType::Choice(words) => return f.pad(&words.join(", ")),
            OptionType::Places => "list of places",
            OptionType::Settings => "text or table of settings",
            OptionType::Text => "text",
        })
    }
}

/// The name in `known` with the highest Jaro-Winkler similarity to `name`; `None` where none is above 0.7.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |k: &str| strsim::jaro_winkler(&name.to_lowercase(), &k.to_lowercase());
    let scored = known.into_iter().map(|k| (likeness(k), k)).filter(|(score, _)| *score > 0.7);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}

/// Checks names and types of the options given to `key`: an operator, a kind of sampling, a model or a loss.
///
/// # Errors
///
/// A name that is not in `specs`, with the nearest that is; a value of another type.
pub fn check_options(key: &dyn fmt::Display, specs: &[OptionSpec], given: &Value) -> Result<()> {
    let given = match given {
        Value::Null => return Ok(()),
        Value::Object(given) => given,
        other => return Err(Error::setting(key, format!("options are an object by name, not {other}"))),
    };
    for (name, value) in given {
        let Some(spec) = specs.iter().find(|s| s.name == name) else {
            let names: Vec<&str> = specs.iter().map(|s| s.name).collect();
            let hint = match (nearest(name, names.iter().copied()), names.is_empty()) {
                (_, true) => "it has no options; leave it out".to_string(),
                (Some(near), _) => format!("did you mean {near:?}? There are {}", names.join(", ")),
                (None, _) => format!("there are {}", names.join(", ")),
            };
            return Err(Error::setting(key, format!("{name:?} is none of its options; {hint}")));
        };
        if !spec.takes(value) {
            let unit = if spec.unit.is_empty() { String::new() } else { format!(" of {}", spec.unit) };
            return Err(Error::setting(key, format!("option {name} is {value}; give {}{unit}", spec.kind)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
