//! Parsers of option values.

use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use morphgl_formats::edge_list::Column;
use morphgl_formats::{Format, Standardise};
use morphgl_graph_store::Dtype;
use morphgl_hotness::{CachePolicy, PolicyKind};
use morphgl_registry::{Key, SamplingSpec};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Maximum number of threads: planning considers every split of them.
const MAX_THREADS: usize = 512;

/// Reads a format of `morphgl import`.
pub(crate) fn format() -> impl TypedValueParser<Value = Format> {
    let values = Format::ALL.map(|format| PossibleValue::new(format.argument()).help(format.help()));
    PossibleValuesParser::new(values).map(|name| {
        Format::ALL
            .into_iter()
            .find(|format| format.argument() == name)
            .expect("the parser takes these arguments alone")
    })
}

/// Reads a finite number: model descriptions are JSON, which has neither NaN nor infinity.
pub(crate) fn finite<T: FromStr + Copy + Into<f64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<T>().ok().filter(|&x| x.into().is_finite());
    number.ok_or_else(|| "not a finite number; give for example 0.003".to_string())
}

/// Reads a probability.
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x| (0.0..=1.0).contains(x));
    number.ok_or_else(|| "not a probability; give a number from 0 to 1".to_string())
}

/// Reads a count that is not 0.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| "not a count; give a whole number of at least 1".to_string())
}

/// Reads a number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=MAX_THREADS).contains(n));
    number.ok_or_else(|| format!("not a number of threads to plan with; give 1 to {MAX_THREADS}"))
}

/// Reads a positive number of seconds, at most 1e9.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= 1e9);
    number.map(Duration::from_secs_f64).ok_or_else(|| "give a positive number of seconds, for example 2.5".to_string())
}

/// Reads three shares, for example `0.6,0.2,0.2`.
pub(crate) fn fractions(text: &str) -> Result<[f64; 3], String> {
    let shares: Option<Vec<f64>> = text.split(',').map(|t| t.trim().parse().ok()).collect();
    let shares: Option<[f64; 3]> = shares.and_then(|s| s.try_into().ok());
    let possible = |s: &[f64; 3]| s.iter().all(|x| (0.0..=1.0).contains(x)) && s.iter().sum::<f64>() <= 1.0 + 1e-9;
    shares.filter(possible).ok_or_else(|| "not three shares that sum to at most 1; give for example 0.6,0.2,0.2".into())
}

/// Reads an operator's option: key, name, and a value that is JSON or else text.
pub(crate) fn setting(text: &str) -> Result<(Key, String, Value), String> {
    let parts = text.split_once('=').and_then(|(name, value)| Some((name.rsplit_once('.')?, value)));
    let Some(((key, name), value)) = parts.filter(|((_, name), _)| !name.is_empty()) else {
        return Err("expected KEY.NAME=VALUE; `morphgl ops --options` lists keys and names".to_string());
    };
    let key = key.parse().map_err(|e: morphgl_registry::Error| e.to_string())?;
    Ok((key, name.to_string(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// Reads a setting by name, whose value is JSON or else text.
pub(crate) fn named(text: &str) -> Result<(String, Value), String> {
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err("expected NAME=VALUE; `morphgl ops --options` lists names".to_string());
    };
    Ok((name.to_string(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// The name of a kind of sampling by which a linked operator samples.
pub(crate) fn sampler() -> PossibleValuesParser {
    PossibleValuesParser::new(
        SamplingSpec::linked().into_iter().map(|spec| PossibleValue::new(spec.name).help(spec.help)),
    )
}

/// Bytes with or without a unit: `8GiB` or `8G`, `500MiB`, `1.5GB`, `4096`; in upper or lower case.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (rest, base) = match (lower.strip_suffix("ib"), lower.strip_suffix('b')) {
        (Some(rest), _) => (rest, 1024f64),
        (None, Some(rest)) => (rest, 1000.0),
        (None, None) => (&lower[..], 1024.0),
    };
    let prefix = "kmgt".chars().zip(1..).find_map(|(prefix, power)| Some((rest.strip_suffix(prefix)?, power)));
    let (number, power) = prefix.unwrap_or((rest, 0));
    match number.trim().parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok((x * base.powi(power)) as u64),
        _ => Err(format!("{text:?}: not an amount of memory; give for example 8GiB or 500MB")),
    }
}

/// As [`bytes`], or 0.
pub(crate) fn bytes_or_none(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { bytes(text) }
}

/// What operators cache, and the limit of each cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// What the caches are filled by.
    pub policy: CachePolicy,
    /// Maximum bytes of a cache.
    pub bytes: Option<u64>,
}

/// Reads `POLICY[:SIZE]`. A number after `presample` or `smoothed` is one of epochs: `presample:2` counts two, `presample:2GiB` one.
pub(crate) fn cache(text: &str) -> Result<Cache, String> {
    let whole = text.parse::<CachePolicy>();
    let Some((policy, size)) = text.rsplit_once(':').filter(|_| whole.is_err()) else {
        let policy = whole.map_err(|e| e.to_string())?;
        return Ok(Cache { policy, bytes: None });
    };
    let policy: CachePolicy = policy.parse().map_err(|e: morphgl_registry::Error| e.to_string())?;
    match (policy, bytes(size)) {
        (CachePolicy::None, _) => Err("none caches nothing; leave the size out".to_string()),
        (policy, Ok(bytes)) => Ok(Cache { policy, bytes: Some(bytes) }),
        (CachePolicy::By(PolicyKind::PreSample { .. } | PolicyKind::Smoothed { .. }), Err(_)) => {
            Err(format!("{size:?} is neither a number of epochs nor a size; give for example presample:2:8GiB"))
        }
        (_, Err(e)) => Err(e),
    }
}

/// Reads `yes` or `no`.
pub(crate) fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("give yes or no".to_string()),
    }
}

/// The means and deviations of `--standardise`: the training nodes' where no dataset is named.
pub(crate) fn standardise(text: &str) -> Result<Standardise, String> {
    Ok(if text.is_empty() { Standardise::ByTraining } else { Standardise::As(text.into()) })
}

pub(crate) fn column(text: &str) -> Result<Column, std::convert::Infallible> {
    Ok(text.parse().map_or_else(|_| Column::Name(text.to_string()), Column::Number))
}

/// Reads a type of stored features.
pub(crate) fn feature_dtype(text: &str) -> Result<Dtype, String> {
    let dtype = text.parse().ok().filter(|d| matches!(d, Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::U8));
    dtype.ok_or_else(|| "not a type of features; give f32, f16, bf16 or u8".to_string())
}

/// Reads one of `names`, the serialized names of an enum's variants.
pub(crate) fn one_of<T, const N: usize>(names: [impl Into<PossibleValue>; N]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value::<T>(name.into()))
}

#[cfg(test)]
mod tests;
