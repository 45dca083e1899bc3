//! Source of the configuration: an operator's options, which describe a machine or configure durations, else the environment.

use std::ffi::OsString;

use morphgl_registry::{
    Accelerator, Description, Error, ErrorKind, Key, Machine, OptionSpec, OptionType, Place, Result, Unavailable,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{Config, Device, MachineDescription};

/// Environment variable with a [`Config`]; if unset or empty, there is no simulated accelerator.
pub const VARIABLE: &str = "MORPHGL_SIM";

const ABSENT: &str = "no simulated accelerator; set MORPHGL_SIM, for example MORPHGL_SIM=training=5ms";

/// The configuration that the value of [`VARIABLE`] gives, if it is set.
fn parse(value: Option<OsString>) -> Option<Result<Config>> {
    let text = value.filter(|text| !text.is_empty())?;
    // A character that is not UTF-8 becomes one that no part accepts.
    let parsed = text.to_string_lossy().parse::<Config>();
    Some(parsed.map_err(|e| Error::new(VARIABLE, ErrorKind::Parse(e.to_string()))))
}

fn environment() -> Option<OsString> {
    std::env::var_os(VARIABLE)
}

/// Probe of the simulated operators: whether the environment configures a simulated accelerator.
///
/// # Errors
///
/// It does not, or the value of [`VARIABLE`] cannot be parsed.
pub fn probe(_: &Machine) -> std::result::Result<(), Unavailable> {
    match parse(environment()) {
        None => Err(Unavailable { reason: ABSENT.to_string() }),
        Some(Err(e)) => Err(Unavailable { reason: e.to_string() }),
        Some(Ok(_)) => Ok(()),
    }
}

/// The devices `sim:0`, `sim:1`, … that the environment configures.
pub fn accelerators(_: &Machine) -> Vec<Accelerator> {
    let devices = parse(environment()).and_then(Result::ok).map_or(0, |config| config.devices);
    (0..devices).map(accelerator).collect()
}

/// The device `sim:0`, regardless of the environment.
pub fn found(_: &Machine) -> Vec<Accelerator> {
    vec![accelerator(0)]
}

fn accelerator(index: u32) -> Accelerator {
    // Its memory is counted in mini-batches, not in bytes.
    Accelerator { place: place(index), name: "simulated accelerator".to_string(), memory_bytes: 0 }
}

fn place(index: u32) -> Place {
    Place::Device { backend: "sim".into(), index }
}

/// Makes an operator available regardless of the environment, for programs and tests that configure every operator by its
/// options. (The environment cannot be changed safely while threads run.)
pub const fn available(description: Description) -> Description {
    description.with_probe(|_| Ok(())).with_accelerators(found)
}

/// Probe of the operators of a described machine's host, which no configuration simulates.
///
/// # Errors
///
/// Always: the registry of a described machine does not ask.
pub fn described_only(_: &Machine) -> std::result::Result<(), Unavailable> {
    Err(Unavailable { reason: "it is of a described machine; give --machine to plan or train".to_string() })
}

/// The options of every operator of a simulated device.
pub const OPTIONS: [OptionSpec; 2] = [
    OptionSpec::new(
        "sim",
        OptionType::Settings,
        "$MORPHGL_SIM",
        "durations, memory and faults of the simulated device",
    )
    .such_as(&["training=0s"]),
    OptionSpec::new("machine", OptionType::Settings, "none", "the described machine that the device is of")
        .such_as(&[EXAMPLE])
        .of_machine(),
];

/// A machine for the suites, as JSON.
const EXAMPLE: &str = r#"{"name":"m","host":{"cores":1,"memory_gb":1,"bandwidth_gb_per_s":1,"sampling_m_edges_per_s":1,"gflop_per_s":1},"link":[{"name":"l","gb_per_s":1}],"device":[{"name":"d","link":"l","memory_gb":1,"bandwidth_gb_per_s":1,"tflop_per_s":1,"sampling_m_edges_per_s":1}]}"#;

/// The device of an operator: of the machine that `options.machine` describes, or configured by `options.sim` (a [`Config`]), else by
/// the environment. Operators of the same place and configuration share one device. The host as a place means the first device of
/// a configuration, and the host of a described machine.
///
/// # Errors
///
/// An invalid or missing configuration, another option, or a place that is no simulated device.
pub fn device(key: &Key, at: &Place, options: &Value) -> Result<Device> {
    if let Some(described) = options.get("machine") {
        let machine = MachineDescription::deserialize(described)
            .map_err(|e| Error::setting(key, format!("option machine: {e}; give a described machine")))?;
        if *at != Place::Host && machine.device(at).is_none() {
            return Err(Error::setting(key, format!("machine {} has no device {at}; name another", machine.name)));
        }
        return Ok(Device::shared_described(at.clone(), machine));
    }
    let at = match at {
        Place::Host => place(0),
        Place::Device { backend, .. } if backend == "sim" => at.clone(),
        other => {
            let message = format!("it runs on a simulated device, not at {other}; choose an operator of that device");
            return Err(Error::setting(key, message));
        }
    };
    Ok(Device::shared(at, config(key, options, environment())?))
}

fn config(key: &Key, options: &Value, variable: Option<OsString>) -> Result<Config> {
    let given = match options {
        Value::Null => None,
        Value::Object(parts) => {
            if let Some(other) = parts.keys().find(|k| *k != "sim") {
                let message =
                    format!("{other:?} is none of its options; it has \"sim\" and \"machine\", leave {other:?} out");
                return Err(Error::setting(key, message));
            }
            parts.get("sim")
        }
        other => {
            let message = format!("options are an object, not {other}; give for example {{\"sim\": \"training=5ms\"}}");
            return Err(Error::setting(key, message));
        }
    };
    match given {
        Some(config) => Config::try_from(config.clone()),
        None => parse(variable).unwrap_or_else(|| Err(Error::new(key, ErrorKind::Unavailable(ABSENT.to_string())))),
    }
}

#[cfg(test)]
mod tests;
