//! Source of the configuration: an operator's options, else the environment.

use std::ffi::OsString;

use morphgl_registry::{
    Accelerator, Description, Error, ErrorKind, Key, Machine, OptionSpec, OptionType, Place, Result, Unavailable,
};
use serde_json::Value;

use crate::{Config, Device};

/// Environment variable with a [`Config`]; if unset or empty, there is no simulated accelerator.
pub const VARIABLE: &str = "MORPHGL_SIM";

const ABSENT: &str = "no simulated accelerator; set MORPHGL_SIM, for example MORPHGL_SIM=training=5ms";

fn read(variable: Option<OsString>) -> Option<Result<Config>> {
    let text = variable.filter(|text| !text.is_empty())?;
    let parsed = match text.to_str() {
        Some(text) => text.parse(),
        None => Err(Error::new("it", ErrorKind::Parse("not UTF-8; write it in ASCII".to_string()))),
    };
    Some(parsed.map_err(|e| Error::new(VARIABLE, ErrorKind::Parse(e.to_string()))))
}

fn environment() -> Option<Result<Config>> {
    read(std::env::var_os(VARIABLE))
}

/// Probe of the simulated operators: whether the environment configures a simulated accelerator.
///
/// # Errors
///
/// It does not, or the value of [`VARIABLE`] cannot be parsed.
pub fn probe(_: &Machine) -> std::result::Result<(), Unavailable> {
    match environment() {
        None => Err(Unavailable { reason: ABSENT.to_string() }),
        Some(Err(e)) => Err(Unavailable { reason: e.to_string() }),
        Some(Ok(_)) => Ok(()),
    }
}

/// The device `sim:0`, if the environment configures it.
pub fn accelerators(machine: &Machine) -> Vec<Accelerator> {
    match environment() {
        Some(Ok(_)) => found(machine),
        _ => Vec::new(),
    }
}

/// The device `sim:0`, regardless of the environment.
pub fn found(_: &Machine) -> Vec<Accelerator> {
    // Its memory is counted in mini-batches, not in bytes.
    vec![Accelerator { place: place(), name: "simulated accelerator".to_string(), memory_bytes: 0 }]
}

fn place() -> Place {
    Place::Device { backend: "sim".into(), index: 0 }
}

/// Makes an operator available regardless of the environment, for programs and tests that configure every operator by its
/// options. (The environment cannot be changed safely while threads run.)
pub const fn available(description: Description) -> Description {
    description.with_probe(|_| Ok(())).with_accelerators(found)
}

/// The option of every operator of a simulated device.
pub const OPTIONS: [OptionSpec; 1] = [OptionSpec::new(
    "sim",
    OptionType::Settings,
    "$MORPHGL_SIM",
    "durations, memory and faults of the simulated device",
)];

/// The device of an operator, configured by `options.sim` (a [`Config`]), else by the environment.
/// Operators of the same place and configuration share one device; the host as a place means the first device.
///
/// # Errors
///
/// An invalid or missing configuration, another option, or a place that is no simulated device.
pub fn device(key: &Key, at: &Place, options: &Value) -> Result<Device> {
    let at = match at {
        Place::Host => place(),
        Place::Device { backend, .. } if backend == "sim" => at.clone(),
        other => {
            let what = format!("it runs on a simulated device, not at {other}; choose an operator of that device");
            return Err(Error::setting(key, what));
        }
    };
    Ok(Device::shared(at, config(key, options, environment)?))
}

fn config(key: &Key, options: &Value, environment: impl FnOnce() -> Option<Result<Config>>) -> Result<Config> {
    let given = match options {
        Value::Null => None,
        Value::Object(parts) => {
            if let Some(other) = parts.keys().find(|k| *k != "sim") {
                let what = format!("{other:?} is none of its options; it has \"sim\" alone, leave {other:?} out");
                return Err(Error::setting(key, what));
            }
            parts.get("sim")
        }
        other => {
            let what = format!("options are an object, not {other}; give for example {{\"sim\": \"training=5ms\"}}");
            return Err(Error::setting(key, what));
        }
    };
    match given {
        Some(config) => Config::try_from(config.clone()),
        None => environment().unwrap_or_else(|| Err(Error::new(key, ErrorKind::Unavailable(ABSENT.to_string())))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key() -> Key {
        "Training_SIM_Ledger".parse().expect("a key")
    }

    #[track_caller]
    fn check(options: Value, environment: Option<&str>, expected: std::result::Result<&str, &str>) {
        let read = || read(environment.map(OsString::from));
        let actual = config(&key(), &options, read).map_err(|e| e.to_string());
        let expected = expected.map(|text| text.parse::<Config>().expect("a configuration")).map_err(String::from);
        assert_eq!(actual, expected);
    }

    #[test]
    fn options_come_first_then_the_environment() {
        check(json!(null), Some("training=7ms"), Ok("training=7ms"));
        check(json!({}), Some("training=7ms"), Ok("training=7ms"));
        check(json!({"sim": "training=8ms"}), Some("training=7ms"), Ok("training=8ms"));
        check(json!({"sim": {"training": "8ms", "memory": 3}}), None, Ok("training=8ms,memory=3"));
        check(
            json!({"sim": {"fault": ["training:hang@1:2"], "noise": 0.5}}),
            None,
            Ok("noise=0.5,fault=training:hang@1:2"),
        );
    }

    #[test]
    fn without_either_there_is_none() {
        let absent = "Training_SIM_Ledger: not available on this machine: no simulated accelerator; \
                      set MORPHGL_SIM, for example MORPHGL_SIM=training=5ms";
        check(json!(null), None, Err(absent));
        check(json!(null), Some(""), Err(absent));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        check(
            json!(null),
            Some("training=5"),
            Err(
                "MORPHGL_SIM: simulated accelerator, \"training=5\": not a duration; give a number with a unit of s, ms, \
                 us or ns, for example 5ms or 2.5ms",
            ),
        );
        check(
            json!({"sim": 5}),
            None,
            Err(
                "simulated accelerator: 5 is not a configuration; give a text or an object, for example \"training=5ms\"",
            ),
        );
        check(
            json!({"simulated": 5}),
            None,
            Err(
                "Training_SIM_Ledger: \"simulated\" is none of its options; it has \"sim\" alone, leave \"simulated\" out",
            ),
        );
    }
}
